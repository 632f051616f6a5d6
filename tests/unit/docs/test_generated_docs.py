"""What pages take from the code is what the code says now, and can be read without Sphinx."""

from __future__ import annotations

import ast
import re
import runpy
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).parents[3]
OPERATORS = ROOT / "src" / "steersman" / "operators"
REFERENCE = ROOT / "docs" / "reference"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOORS = ("## Run operators", "## Write operators")


def test_generated_pages_are_what_the_code_says():
    made = runpy.run_path(str(ROOT / "tools" / "generate_docs.py"))["generated"]()
    assert len(made) > 15
    kept = {path: path.read_text() if path.exists() else "" for path in made}
    old = [str(path.relative_to(ROOT)) for path in made if made[path] != kept[path]]
    assert old == [], "out of date: run .venv/bin/python tools/generate_docs.py"


def test_no_page_shows_directives_of_sphinx_to_readers_of_the_repository():
    assert [str(page.relative_to(ROOT)) for page in PAGES if "```{" in page.read_text()] == []


def test_every_link_has_a_text():
    assert [str(page.relative_to(ROOT)) for page in PAGES if re.search(r"(?<!!)\[\]\(", page.read_text())] == []


def test_both_doors_are_open():
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        assert [door for door in DOORS if door not in page.read_text()] == []


def test_every_page_can_be_reached_from_the_start():
    seen: set[Path] = set()
    left = [ROOT / "docs" / "index.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", page.read_text())
        left += [(page.parent / target).resolve() for target in targets if "://" not in target]
    assert [str(page.relative_to(ROOT)) for page in PAGES[1:] if page.resolve() not in seen] == []


# -- pages written by hand -------------------------------------------------------------------------------------------


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Every part of the code of the operators, with its file."""
    trees = ((path, ast.parse(path.read_text())) for path in sorted(OPERATORS.rglob("*.py")))
    return [(path, node) for path, tree in trees for node in ast.walk(tree)]


def is_call_of(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in names


def event_reasons():
    """The reasons of Events and conditions: literals, and the table of reload's gates."""
    for path, node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "event":
            words = [word.value for word in node.args if isinstance(word, ast.Constant)]
            yield from (word for word in words if re.fullmatch(r"[A-Z]\w+", str(word)))
        if is_call_of(node, "new_condition") and len(node.args) > 2 and isinstance(node.args[2], ast.Constant):
            yield node.args[2].value
        if isinstance(node, ast.keyword) and node.arg == "reason" and isinstance(node.value, ast.Constant):
            yield node.value.value
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "REASONS" and path.name == "report.py":
            yield from ast.literal_eval(node.value).values()


def test_every_reason_is_on_the_page_of_events_or_of_its_operator():
    known = "".join((ROOT / "docs" / name).read_text() for name in ("reference/events.md", "hourglass.md"))
    reasons = {reason for reason in event_reasons() if isinstance(reason, str) and re.fullmatch(r"[A-Z]\w+", reason)}
    assert len(reasons) > 60
    assert sorted(reason for reason in reasons if f"`{reason}`" not in known) == []


def test_every_reason_on_the_page_of_events_is_one_of_the_code():
    page = (REFERENCE / "events.md").read_text()
    rows = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    shown = {reason for row in rows for reason in re.findall(r"`(\w+)`", row)}
    literals = {node.value for _, node in nodes() if isinstance(node, ast.Constant)}
    assert len(shown) > 100
    assert sorted(reason for reason in shown - literals if reason.removeprefix("Pod") not in literals) == []


def condition_types():
    for _, node in nodes():
        if is_call_of(node, "new_condition", "find_condition"):
            words = [word.value for word in node.args if isinstance(word, ast.Constant)]
            yield from [word for word in words if re.fullmatch(r"[A-Z]\w+", str(word))][:1]


def test_every_type_of_condition_is_on_the_page_of_events_or_of_its_operator():
    known = "".join((ROOT / "docs" / name).read_text() for name in ("reference/events.md", "hourglass.md"))
    types = set(condition_types())
    assert len(types) > 10
    assert sorted(kind for kind in types if f"`{kind}`" not in known) == []


def test_every_type_of_condition_on_the_page_of_events_is_one_of_the_code():
    page = (REFERENCE / "events.md").read_text()
    shown = set(re.findall(r"^\|[^|]+\|[^|]*\(`(\w+)`\)[^|]*\|", page, re.MULTILINE))
    shown |= set(re.findall(r"\| `(\w+)` is (?:true|false) \|", page)) | set(re.findall(r"[Cc]ondition `(\w+)`", page))
    literals = {node.value for _, node in nodes() if isinstance(node, ast.Constant)}
    assert len(shown) > 8
    assert sorted(shown - literals) == []


def annotation_keys():
    """Keys below our domain that operators read or write."""
    for path, node in nodes():
        value = node.value if isinstance(node, ast.AnnAssign | ast.Assign) and "compat" not in path.parts else None
        if isinstance(value, ast.Constant) and re.fullmatch(r"steersman\.dev/[\w-]+", str(value.value)):
            yield value.value


def test_every_annotation_is_on_its_page_and_every_one_there_exists():
    page = (REFERENCE / "annotations.md").read_text()
    found = set(annotation_keys())
    assert len(found) > 30
    assert sorted(key for key in found if f"`{key}`" not in page) == []
    assert sorted(set(re.findall(r"`(steersman\.dev/[\w-]+)`", page)) - found) == []


def test_every_metric_that_a_page_names_exists():
    known = set(re.findall(r"`(\w+)`", (REFERENCE / "metrics.md").read_text()))
    plugin = "".join(path.read_text() for path in (ROOT / "src" / "steersman" / "testing").rglob("*.py"))
    known |= set(re.findall(r"def (steersman_\w+)", plugin))  # fixtures
    strange = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        for name in re.findall(r"`((?:steersman|toolset|workqueue|leader_election)_[a-z0-9_]+)[`{]", page.read_text())
        if not name.endswith("_") and re.sub(r"_(bucket|sum|count)$", "", name) not in known
    ]
    assert strange == []


def test_every_metric_that_alerts_and_the_dashboard_use_is_on_its_page():
    page = (REFERENCE / "metrics.md").read_text()
    known = set(re.findall(r"`(\w+)`", page))
    files = [*(ROOT / "charts/steersman/files").rglob("*.yaml"), *(ROOT / "charts/steersman/files").rglob("*.json")]
    text = "".join(path.read_text() for path in files if path.parent.name in {"alerts", "dashboards"})
    used = set(
        re.findall(r"\b(?:steersman|controller_runtime|workqueue|rest_client|leader_election|toolset)_\w+", text)
    )
    assert len(used) > 15
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert sorted(base - known) == []
