"""The mutation check: its list fits the code as it is now, and its outcomes can be believed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutants import Mutant, Outcome, fingerprint, load, mutated, noticed, selected_tests, table, tree_digest
from tools.mutants.judge import check_baseline, compiled_copy, judge

ROOT = Path(__file__).parents[3]
PACKAGES = {
    *("kube", "cache", "crd", "runtime", "apiserver", "simulate", "web", "cli"),
    *("reload", "dns", "toolset", "hourglass"),
}


def test_every_mutant_changes_one_place_of_the_code_as_it_is_now_and_leaves_python():
    problems = []
    for mutant in load():
        source = (ROOT / mutant.path).read_text()
        try:
            changed = mutated(source, mutant)
            ast.parse(changed)
        except (ValueError, SyntaxError) as error:
            problems.append(f"{mutant.name}: {error}")
        else:
            if changed == source:
                problems.append(f"{mutant.name}: it changes nothing")
    assert problems == []


def test_every_mutant_has_tests_and_a_name_of_its_own_and_every_package_has_mutants():
    mutants = load()
    assert [path for mutant in mutants for path in selected_tests(mutant) if not (ROOT / path).exists()] == []
    assert len({mutant.name for mutant in mutants}) == len(mutants) >= 60
    assert {mutant.package for mutant in mutants} == PACKAGES


def add(old: str = "a + b", new: str = "a - b", **options) -> Mutant:
    return Mutant(file="sums/add.py", stands_for="a wrong sum", old=old, new=new, **options)


@pytest.mark.parametrize("source", ["return a * b", "a + b; a + b"])
def test_a_text_that_does_not_occur_exactly_once_is_refused(source):
    with pytest.raises(ValueError, match="the old text occurs"):
        mutated(source, add())


def test_tests_are_those_that_it_names_or_the_mirrored_file_or_the_nearest_folder(tmp_path):
    (tmp_path / "tests/unit").mkdir(parents=True)
    assert selected_tests(add(), tmp_path) == ("tests/unit",)
    (tmp_path / "tests/unit/sums").mkdir()
    assert selected_tests(add(), tmp_path) == ("tests/unit/sums",)
    (tmp_path / "tests/unit/sums/test_add.py").touch()
    assert selected_tests(add(), tmp_path) == ("tests/unit/sums/test_add.py",)
    assert selected_tests(add(tests=("tests/contract",)), tmp_path) == ("tests/contract",)


def test_hangs_count_as_noticed_and_the_table_has_a_row_per_package_and_a_sum():
    outcomes = {
        add(): Outcome("killed"),
        add("b", "c"): Outcome("timeout"),
        Mutant(file="operators/dns/x.py", stands_for="y", old="a", new="b"): Outcome("survived"),
    }
    assert noticed(outcomes.values()) == pytest.approx(200 / 3)
    assert [line.split() for line in table(outcomes)[1:]] == [
        ["dns", "1", "0", "0%"],
        ["sums", "2", "2", "100%"],
        ["all", "3", "2", "67%"],
    ]


@pytest.fixture
def miniature(tmp_path: Path) -> Path:
    """A repository with one function and one test."""
    files = {
        "src/steersman/__init__.py": "",
        "src/steersman/sums/__init__.py": "",
        "src/steersman/sums/add.py": "def add(a, b):\n    return a + b\n",
        "tests/unit/sums/test_add.py": "from steersman.sums.add import add\ndef test_add(): assert add(2, 1) == 3\n",
        "tests/conftest.py": 'from hypothesis import settings\n\nsettings.register_profile("quick")\n',
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow", "steersman_real"]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_an_outcome_is_used_again_until_the_mutant_the_package_or_its_tests_change(miniature):
    def key(mutant: Mutant = add()) -> str:  # noqa: B008  frozen
        return fingerprint(mutant, tree_digest(17, miniature), miniature)

    known = key()
    assert key() == known
    assert key(add("a + b", "a * b")) != known
    for name in ("tests/unit/sums/test_add.py", "src/steersman/__init__.py"):
        (miniature / name).write_text((miniature / name).read_text() + "\n")
        assert key() != known
        known = key()


@pytest.mark.slow
@pytest.mark.parametrize(("new", "result"), [("a - b", "killed"), ("b + a", "survived")])
def test_a_mutant_is_judged_on_a_copy_and_the_working_tree_stays_as_it_is(miniature, new, result):
    source = miniature / "src/steersman/sums/add.py"
    before = source.read_text()
    outcome = judge(add(new=new), compiled_copy(miniature / "copy", miniature), seed=17, root=miniature)
    assert outcome.result == result
    assert ("test_add" in outcome.by) is (result != "survived")
    assert source.read_text() == before


@pytest.mark.slow
def test_a_hang_is_ended_and_named(miniature):
    endless = add("return a + b", "\n    while True:\n        pass")
    package = compiled_copy(miniature / "copy", miniature)
    assert judge(endless, package, seed=17, root=miniature, timeout=3).result == "timeout"


@pytest.mark.slow
def test_tests_that_fail_without_a_mutant_end_the_run_however_long_they_take(miniature, monkeypatch):
    monkeypatch.setattr("tools.mutants.judge.RUN_TIMEOUT", 0.01)  # for the tests of one mutant
    check_baseline([add()], compiled_copy(miniature / "good", miniature), seed=17, jobs=1, root=miniature)
    (miniature / "src/steersman/sums/add.py").write_text("def add(a, b):\n    return a\n")
    with pytest.raises(SystemExit, match="tests fail without any mutant"):
        check_baseline([add()], compiled_copy(miniature / "bad", miniature), seed=17, jobs=1, root=miniature)
