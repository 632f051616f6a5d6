"""Operator files with ordinary mistakes: one line that names the line of the file, never a traceback."""

from __future__ import annotations

import sys

import pytest

from steersman.cli.main import _run
from steersman.cli.python_files import bundle_in, load_python
from steersman.errors import ConfigError
from steersman.runtime.manager.operator_report import report_of

KIND = """\
import steersman as sm
class App(sm.Resource, group="example.org", version="v1"): pass
async def reconcile(ctx, app): pass
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nint('x')", ":2: ValueError: invalid literal for int() with base 10: 'x'"),
        ("def f():\n  raise KeyError\nf()", ":2: KeyError"),
        ("raise RuntimeError('one\\ntwo')", ":1: RuntimeError: one two"),
        ("import json\njson.loads('{')", ":2: JSONDecodeError: "),
        ("x = 1\nimport no_such_module", ":2: cannot be imported: No module named 'no_such_module'"),
        ("def controllers():\n  return [1 / 0]", ":2: ZeroDivisionError: division by zero"),
        ("def controllers():\n  yield 1 / 0", ":2: ZeroDivisionError: division by zero"),
        ("def controllers(): pass", ": controllers(): is None, and should be a list of controllers"),
        (KIND + "controllers = [sm.controller(App)(reconcile), 3]", ": controllers()[1]: 3 is not a controller"),
        (KIND + "def controllers(): return [reconcile]", ": controllers()[0]: reconcile is not a controller"),
        (
            "import steersman as sm\nclass App(sm.Resource): pass\n@sm.controller(App)\ndef run(ctx, app): pass",
            ":3: kind: App names no kind: give it group= and version=",
        ),
        (KIND + "sm.controller(App, own=[App])", ':4: controller: own= is not an option (did you mean "owns"?)'),
        (
            KIND + "sm.controller(App)(reconcile).with_options(timeout=3)",
            ':4: controller: timeout= is not an option (did you mean "timeout_seconds"?)',
        ),
        (
            KIND + "sm.controller(App)(reconcile).schedule(every='5 sec')",
            ':4: schedule: "5 sec" is not a duration (try 5s)',
        ),
        (
            "import steersman as sm\n@sm.controller\nasync def run(ctx, app): pass",
            ":2: controller: needs the kind that run is for: write @controller(KIND) above it",
        ),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_it(text, said, tmp_path, capsys):
    path = tmp_path / "mistaken.py"
    path.write_text(text)
    assert _run(["run", str(path)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {path}{said}")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("mistaken", ["__init__", "main", "helper"])
def test_a_mistake_in_a_module_of_a_package_names_its_file(mistaken, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / f"package_{mistaken}"
    package.mkdir()
    for name, text in {"__init__": "", "main": f"from {package.name} import helper", "helper": ""}.items():
        (package / f"{name}.py").write_text(f"{text}\nint('x')" if name == mistaken else text)
    assert _run(["run", f"{package.name}.main"]) == 1
    assert f"error: {package}/{mistaken}.py:2: ValueError: " in capsys.readouterr().err


def test_with_debug_the_whole_traceback_is_there(tmp_path):
    (tmp_path / "mistaken.py").write_text("int('x')")
    with pytest.raises(ConfigError) as caught:
        _run(["--debug", "run", str(tmp_path / "mistaken.py")])
    assert isinstance(caught.value.__cause__, ValueError)


LIT = """
import steersman as sm
from steersman.runtime.controller.builder import Controller

lamps = Controller(sm.ConfigMap, print)


def tables(cluster):
    return [sm.Table("Lamps", ["name"], [sm.Row(["hall"], sm.RowState.BAD, "no power")])]


def headline(tables):
    return f"{len(tables[0].rows)} lamp is dark"
"""


def test_a_file_with_tables_is_an_operator_that_shows_them(tmp_path):
    file = tmp_path / "lit_house.py"
    file.write_text(LIT)
    bundle = bundle_in(load_python(str(file)))
    assert [controller.name for controller in bundle.controllers] == ["configmap"]
    report = report_of("house", bundle.tables(None), headline=bundle.headline)
    assert (report.headline, report.problems[0].message) == ("1 lamp is dark", "no power")


def test_a_file_without_tables_is_left_to_its_conditions(tmp_path):
    file = tmp_path / "dark_house.py"
    file.write_text(LIT.partition("def tables")[0])
    assert bundle_in(load_python(str(file))) is None


def test_a_file_that_is_saved_twice_within_a_second_is_read_as_it_is(tmp_path):
    file = tmp_path / "saved_twice.py"
    for number in (1, 2):
        file.write_text(f"NUMBER = {number}\n")
        assert number == load_python(str(file)).NUMBER
        del sys.modules["saved_twice"]
