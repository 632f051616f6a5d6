"""The command line: answers first, errors on one line that say what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
import structlog
import yaml
from prometheus_client import REGISTRY

from steersman.cli.config import RunSettings, load_settings
from steersman.cli.main import _run, cli
from steersman.cli.run import _address as address
from steersman.cli.run import _override as override
from steersman.cli.run import _warn_of_missing
from steersman.errors import ConfigError
from steersman.kube.api.gvk import Kind
from steersman.operators import load_operator
from steersman.runtime.manager.operator_bundle import RuntimeEnvironment

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
"""
WEBAPP = str(Path(__file__).parents[3] / "examples" / "webapp.py")
DATABASE = str(Path(WEBAPP).with_name("database.py"))


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """No kubeconfig of the person who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [("crdz", "crds"), ("reload histry", "history"), ("dns chek", "check"), ("controlplane statu", "status")],
)
def test_an_unknown_command_gets_a_suggestion(arguments, meant, capsys):
    assert _run(arguments.split()) == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


def test_the_demo_does_not_begin_with_nonsense(capsys):
    assert _run(["demo", "--quiet-period", "soon"]) == 2
    assert '"soon" is not a duration' in capsys.readouterr().err


def test_help_lists_every_command_without_importing_them(capsys):
    assert _run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("apiserver", "controlplane", "crds", "demo", "run"))


def test_the_help_of_every_command_fits_80_columns_and_has_an_example(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def visit(path, command):
        assert _run([*path, "--help"]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80, f"{path}: {max(shown.splitlines(), key=len)}"
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                visit([*path, name], command.get_command(context, name))
        else:
            assert "steersman " in shown.partition("Usage:")[2].partition("\n")[2], f"{path}: no example"

    visit([], cli)


def test_definitions_of_a_file_are_printed_as_yaml(capsys):
    assert _run(["crds", WEBAPP]) == 0
    (manifest,) = yaml.safe_load_all(capsys.readouterr().out)
    assert manifest["metadata"]["name"] == "webapps.example.org"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nothere.py"], "nothere.py: no such file"),
        (["run", WEBAPP], "set KUBECONFIG or pass --kubeconfig"),
        (["run", "--config", "nothere.yaml"], "nothere.yaml: no such file"),
        (["crds", "no.such.module"], "no.such.module: cannot be imported"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_code_1(arguments, said, capsys):
    assert _run(arguments) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run", "nothing to run: name operators with --operators, or a file"),
        ("run --operators nix", '--operators: "nix" is not an operator (known: '),
        ("crds --operators=nix", '--operators: "nix" is not an operator (known: '),
        (f"run {WEBAPP} --listen foo:bar", '--listen: "foo:bar" is not an address and a port'),
        (f"run {WEBAPP} --listen 127.0.0.1:99999", '--listen: "127.0.0.1:99999" is not an address and a port'),
        (f"run {WEBAPP} --lease x", '--lease: "x" is not NAMESPACE/NAME'),
        (f"run {WEBAPP} --shard --leader-elect", "--shard: sharding and leader election exclude each other"),
        (f"webhooks {DATABASE} --host ::bad::", '--host: "::bad::" is not HOST or HOST:PORT'),
        (f"run {WEBAPP} -n Bad_Name", '"Bad_Name" is not a namespace'),
        ("rbac --namespaces Bad_Name,,x", '"Bad_Name" is not a namespace'),
        ("rbac --namespaces shop,,x", '"" is not a namespace (try shop,stage)'),
        ("manifests --namespaces a/b", '"a/b" is not a namespace'),
        ("status --url foo", '--url: "foo" is not an address'),
    ],
)
def test_a_flag_with_a_wrong_value_is_usage_and_code_2(arguments, said, capsys):
    assert _run(arguments.split()) == 2
    assert said in capsys.readouterr().err


def test_a_wrong_value_in_a_file_is_no_usage(tmp_path, capsys):
    (tmp_path / "steersman.yaml").write_text("lease: x")
    assert _run(["run", WEBAPP, "--config", str(tmp_path / "steersman.yaml")]) == 1
    assert 'lease: "x" is not NAMESPACE/NAME' in capsys.readouterr().err


def test_a_service_without_an_address_is_one_line(capsys):
    assert _run(["apiserver", "--service", "hooks=localhost"]) == 1
    said = 'error: --service "hooks=localhost" is not NAMESPACE/NAME=HOST:PORT (try shop/hooks=127.0.0.1:9443)\n'
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["apiserver", "--kubeconfig-out", "/nonexistent/kc"], "error: /nonexistent/kc: No such file or directory\n"),
        (["init", "/proc/shop"], "error: /proc/shop: cannot be made: "),
    ],
    ids=["file", "folder"],
)
def test_a_path_that_cannot_be_written_is_one_line(arguments, said, capsys):
    assert _run(arguments) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["", "import steersman as sm\nclass App(sm.Resource): pass"], ids=["empty", "no-group"]
)
def test_a_file_without_kinds_has_no_definitions(text, tmp_path, capsys):
    (tmp_path / "no_kinds.py").write_text(text)
    assert _run(["crds", str(tmp_path / "no_kinds.py")]) == 1
    assert "no_kinds.py: defines no kind: " in capsys.readouterr().err


def test_examples_in_a_help_text_keep_their_lines(capsys):
    assert _run(["apiserver", "--help"]) == 0
    assert "--kubeconfig-out kubeconfig &\n" in capsys.readouterr().out


def test_python_that_is_none_is_named_with_its_line(tmp_path, capsys):
    (tmp_path / "broken.py").write_text("x = 1\ndef (\n")
    assert _run(["run", str(tmp_path / "broken.py")]) == 1
    assert "broken.py:2: is not Python" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lissten: x", ':1: lissten: is not a setting (did you mean "listen"?)'),
        ("\nworkers: many", ":2: workers: expected `int | null`, got `str`"),
        ("reload:\n  quietPeriod: [5]", ":2: reload.quietPeriod"),
        ("reload:\n  dialects: [klingon]", ':2: reload.dialects: "klingon" is not a dialect'),
        ("reload:\n  kinds:\n    - Deployment\n    - Gizmo", ':4: reload.kinds[1]: "Gizmo" is not built in'),
        ("reload:\n  guard: {percent: 150}", ":2: reload.guard.percent: must be 100 or less"),
        ("reload:\n  namespaces: [Shop_1]", ':2: reload.namespaces[0]: "Shop_1" is not a namespace (try shop)'),
        (
            "reload:\n  pods: true\n\n  quietPeroid: 5s",
            ':4: reload.quietPeroid: is not a field (did you mean "quietPeriod"?)',
        ),
        ("reload:\n  guard:\n    workload: 5", ':3: reload.guard.workload: is not a field (did you mean "workloads"?)'),
        (
            "dns:\n  driftPeriod: 5m\nreload:\n  quietPeriod: banana",
            ':4: reload.quietPeriod: "banana" is not a duration',
        ),
        ("dns:\n  deletionGrace: banana", ":2: dns.deletionGrace: "),
        ("hourglass:\n  maxConcurrentReplacements: -1", ":2: hourglass.maxConcurrentReplacements: must be"),
        ("toolset:\n  maxBytes: 0", ":2: toolset.maxBytes: must be"),
        ("listen: null\noperators: [relaod]", ':2: operators: "relaod" is not an operator'),
        ("namespaces:\n  - shop\n  - Bad_Name", ':3: namespaces[1]: "Bad_Name" is not a namespace'),
        ("- a\n- b", "must be a mapping of settings"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_a_wrong_setting_is_named_with_its_line(text, said, tmp_path):
    path = tmp_path / "steersman.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert said in str(caught.value)
    assert "KUBECONFIG" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("STEERSMAN_OPERATORS", "nix", '"nix" is not an operator'),
        ("STEERSMAN_LISTEN", "nowhere", "nowhere"),
        ("STEERSMAN_WORKERS", "0", "0 is not in the range"),
        ("STEERSMAN_PAGE", "everywhere", "'everywhere' is not one of"),
        ("STEERSMAN_DIALECTS", "latin", '--dialect: "latin" is not a dialect (try native,'),
    ],
)
def test_every_option_of_run_is_also_a_variable(variable, value, said, monkeypatch, capsys, tmp_path):
    config = tmp_path / "kubeconfig"
    config.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv(variable, value)
    assert _run(["run", WEBAPP]) in {1, 2}
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listen", "outside", "inside"),
    [
        ("18555", "127.0.0.1:18555", "0.0.0.0:18555"),
        (":18555", "0.0.0.0:18555", "0.0.0.0:18555"),
        ("[::1]:0", "[::1]:0", "[::1]:0"),
    ],
)
def test_a_port_alone_does_not_open_the_process_to_others(listen, outside, inside, monkeypatch):
    assert address(listen, "listen") == outside
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert address(listen, "listen") == inside


def test_dialects_by_flag_come_to_those_of_the_file():
    settings = load_settings(None)
    spoken = override(settings, {"dialects": ("reloader", "xing", "wave")}).sections["reload"].dialects
    assert spoken == (*settings.sections["reload"].dialects, "reloader", "wave")
    assert override(settings, {"dialects": ()}) == settings


@pytest.fixture
def no_metrics():
    """A registry without the metrics that other tests of this process have made."""
    before = list(REGISTRY._collector_to_names)
    for one in before:
        REGISTRY.unregister(one)
    yield
    for one in list(REGISTRY._collector_to_names):
        REGISTRY.unregister(one)
    for one in before:
        REGISTRY.register(one)


@pytest.mark.parametrize(("operator", "waits"), [("dns", 12), ("hourglass", 2), ("reload", 0), ("toolset", 0)])
def test_the_kinds_an_operator_waits_for_are_reported_once_with_the_command_that_installs_them(
    operator, waits, no_metrics
):
    loaded = load_operator(operator)
    none = frozenset[Kind]()
    parts = loaded.parts(loaded.config(), RuntimeEnvironment(served=none))
    with structlog.testing.capture_logs() as logs:
        _warn_of_missing(operator, parts, none)
        _warn_of_missing(operator, parts, frozenset(kind.KIND for kind in loaded.kinds))
        _warn_of_missing(operator, parts, None)
    assert sum(len(line["kinds"].split(", ")) for line in logs) == waits
    assert all(f"steersman crds --operators {operator} |" in line["install"] for line in logs)


def test_a_file_says_what_it_says_and_the_rest_is_default(tmp_path):
    path = tmp_path / "steersman.yaml"
    path.write_text("operators: [reload]\nleaderElect: true\nworkers: 3\n")
    settings = load_settings(path)
    assert (settings.operators, settings.leader_elect, settings.workers) == (["reload"], True, 3)
    assert settings.listen is RunSettings().listen
    assert type(settings.sections["reload"]).__name__ == "ReloadConfig"


@pytest.mark.parametrize("text", [None, "operators: [reload]\nreload: {quietPeriod: 1s}\n"])
def test_settings_load_the_operators_that_are_used_and_no_others(tmp_path, text):
    path = tmp_path / "steersman.yaml"
    path.write_text(text or "")
    program = (
        "import pathlib, sys; from steersman.cli.config import load_settings\n"
        "load_settings(pathlib.Path(sys.argv[1]) if sys.argv[1:] else None).sections['reload']\n"
        "print(sorted({n.split('.')[2] for n in sys.modules if n.startswith('steersman.operators.')}))"
    )
    file = [path] if text else []
    ended = subprocess.run([sys.executable, "-c", program, *file], capture_output=True, text=True, check=True)
    assert ended.stdout == "['reload']\n"


def test_what_a_service_is_is_reported_in_words(tmp_path, capsys):
    (tmp_path / "services.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: prom, namespace: ops, labels: {app: prometheus}}\n"
        "spec: {ports: [{port: 9090}]}\n"
    )
    assert _run(["toolset", "explain", "ops/prom", "-f", str(tmp_path / "services.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "  credentials  no\n" in shown
    assert "  identity     -\n" in shown
