"""Whatever users write: parsing it costs no more than its budget, and not on the event loop."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import steersman
from steersman.bounded_parsing import FILE, Budget, BudgetError, Parser, SafeLoader, check_yaml, load_yaml, off_loop

SMALL = Budget(size=4096, nodes=200, expanded=2000, depth=10)


def bomb(levels: int = 12, *, fan: int = 10) -> str:
    """Aliases of aliases: it stands for `fan` to the power of `levels`."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * fan)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * 5000, "5000 bytes long"),
        (f"[{'a,' * 300}]", "200 values"),
        (bomb(), "200 values"),
        (f"a: &a {'x' * 500}\nb: [{','.join(['*a'] * 9)}]", "2000 bytes"),
        ("[" * 11 + "]" * 11, "10 levels"),
        ("a: &a [[[[[[1]]]]]]\nb: [[[[[*a]]]]]", "10 levels"),
        ("&a [*a]", "refers to itself"),
        ("a: {<<: *a}\nb: &a {c: {<<: *a}}", "refers to itself"),
        ("&a [x]\n--- \n&a [*a]", "refers to itself"),
        (f"a: 1{':1' * 300}", "number of more than 400 characters"),
        (f"a: 0x{'f' * 500}", "number of more than 400 characters"),
        (f"a: !!float '{'1' * 500}'", "number of more than 400 characters"),
    ],
)
def test_what_costs_more_than_its_budget_is_refused_and_not_repeated(text, why):
    with pytest.raises(BudgetError, match=why) as refused:
        load_yaml(text, SMALL)
    assert "xx" not in str(refused.value)


def test_what_an_alias_stands_for_counts_each_time_and_no_more():
    assert check_yaml("a: &a [x, y]\nb: [*a, *a]", SMALL) == (1 + 2 + 3 + 1 + 3 + 3, 8)
    assert load_yaml("a: &a [x, y]\nb: [*a, *a]", SMALL) == [{"a": ["x", "y"], "b": [["x", "y"], ["x", "y"]]}]


def test_an_anchor_of_one_document_means_nothing_in_the_next():
    with pytest.raises(yaml.YAMLError):
        load_yaml("&a [x]\n---\n[*a]", SMALL)


def test_the_values_of_one_object_share_one_budget():
    parser = Parser(SMALL, Budget(size=1000, nodes=300, expanded=2000))
    parser.yaml(f"[{'a,' * 190}]")
    with pytest.raises(BudgetError, match="more than"):
        parser.yaml(f"[{'a,' * 150}]")
    assert parser.yaml("[a]") == [["a"]]
    with pytest.raises(BudgetError):
        parser.json(b"[%s0]" % (b"0," * 150))
    with pytest.raises(BudgetError):
        parser.text(b"x" * 900)


LEAVES = st.text("ab", max_size=3) | st.integers(0, 9)


@given(st.recursive(LEAVES, lambda part: st.lists(part) | st.dictionaries(st.text("ab"), part)))
def test_the_weight_of_a_text_is_that_of_the_value_it_stands_for(value):
    def nodes(part):
        if isinstance(part, dict):
            return 1 + sum(1 + nodes(item) for item in part.values())
        return 1 + sum(map(nodes, part)) if isinstance(part, list) else 1

    shared = [value, value]  # written as an anchor and an alias where it is a collection
    assert check_yaml(yaml.safe_dump(shared), FILE)[0] == nodes(shared)
    assert load_yaml(yaml.safe_dump(shared), FILE, loader=SafeLoader) == [shared]


async def test_parsing_happens_on_another_thread_while_the_loop_goes_on():
    turns, go_on = 0, threading.Event()

    def parse() -> str:
        assert go_on.wait(20)
        return threading.current_thread().name

    parsing = asyncio.ensure_future(off_loop(parse))
    for _ in range(100):
        await asyncio.sleep(0)
        turns += 1
    assert not parsing.done()
    go_on.set()
    assert (await parsing).startswith("parser")
    assert turns == 100


async def test_only_one_budget_is_spent_at_a_time():
    inside, most = 0, 0

    def parse() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        inside -= 1

    await asyncio.gather(*(off_loop(parse) for _ in range(50)))
    assert most == 1


def test_nothing_but_the_one_door_loads_yaml():
    source = Path(steersman.__file__).parent
    loads = re.compile(r"yaml\.(safe_|unsafe_|full_)?(load|compose|parse|scan)|\bC?SafeLoader\(|PlainLoader\(\w")
    after_check = {
        "kube/config/yaml_document.py",
        "operators/toolset/render/yaml.py",
    }  # build nodes of what `check_yaml` let through
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if path.name != "bounded_parsing.py" and loads.search(path.read_text())
    }
    assert found == after_check
    assert all("check_yaml(text" in (source / name).read_text() for name in after_check)


def test_a_tag_that_a_directive_makes_long_counts_at_every_value_that_has_it() -> None:
    directive = f"%TAG !e! tag:{'x' * 60_000}\n---\n"
    with pytest.raises(BudgetError, match="expands to more than 1048576 bytes"):
        load_yaml(directive + "- !e!a b\n" * 7000, Budget())
    with pytest.raises(BudgetError, match="expands to more than 1048576 bytes"):
        load_yaml(directive + "- !e!a []\n" * 7000, Budget())


@pytest.mark.parametrize("encoding", [None, "utf-8", "utf-16"])
def test_directives_are_counted_before_the_library_compares_each_with_all_others(encoding: str | None) -> None:
    text = "".join(f"%TAG !e{number}! x\n" for number in range(2000)) + "---\na"
    with pytest.raises(BudgetError, match="TAG directives"):
        load_yaml(text if encoding is None else text.encode(encoding), Budget())
