"""The reload commands through the real entry point: answers, exit codes, and errors that say what to do."""

from __future__ import annotations

import io
import json
import sys

import click
import msgspec
import pytest
import yaml

from steersman.cli.error_hints import explain
from steersman.cli.main import _run
from steersman.cli.manifest_files import read_manifests
from steersman.cli.reload.inspection import rule_named, users_elsewhere
from steersman.cli.reload.plan import headline
from steersman.cli.reload.why import _last as last_told
from steersman.kube.api.errors import Forbidden, NotFound, RequestInfo
from steersman.kube.api.rbac_hint import with_rbac_hint
from steersman.operators.reload.api.config import ReloadConfig
from steersman.operators.reload.inspect.explain import RestartRecord, WorkloadRestartRecord
from steersman.operators.reload.inspect.forecast import Forecast, ManifestProblem, Planned, Unaffected
from steersman.operators.reload.inspect.offline import OfflineInspection
from steersman.operators.reload.workloads.kinds import BUILT_IN
from steersman.operators.reload.workloads.workload import WorkloadName

MANIFESTS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: app, namespace: shop}
data: {mode: a}
---
apiVersion: v1
kind: Broken
metadata: {name: web
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {steersman.dev/reload: auto}}
spec:
  template:
    spec:
      containers: [{name: main, envFrom: [{configMapRef: {name: app}}]}]
"""
OTHER = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: shop, labels: {tier: test}, annotations: {steersman.dev/reload: auto}}
spec:
  template:
    spec:
      containers: [{name: main, envFrom: [{configMapRef: {name: app}}]}]
"""
QUIET = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {mode: a}\n"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """No kubeconfig of the person who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


RELOADER = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {mode: a}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {reloader.stakater.com/auto: "true"}}
spec:
  template:
    spec:
      containers: [{name: main, envFrom: [{configMapRef: {name: app}}]}]
"""


@pytest.mark.parametrize("command", ["plan", "reload plan", "graph"])
def test_labels_choose_the_workloads_of_an_answer(tmp_path, capsys, command):
    web = OTHER.replace("other", "web").replace("tier: test", "tier: web")
    source = QUIET.replace("name: app", "name: app, namespace: shop")
    (tmp_path / "app.yaml").write_text(f"{source}---\n{OTHER}---\n{web}")
    for selector, names in (("tier=test", ["deployment/other"]), ("tier!=test", ["deployment/web"]), ("tier=x", [])):
        _run([*command.split(), "-f", str(tmp_path), "-l", selector, "-o", "name"])
        assert capsys.readouterr().out.split() == names


@pytest.mark.parametrize("command", ["plan", "reload plan", "graph"])
def test_annotations_of_a_dialect_that_is_off_are_reported_and_read_when_it_is_named(command, tmp_path, capsys):
    (tmp_path / "all.yaml").write_text(RELOADER)
    _run([*command.split(), "-f", str(tmp_path)])
    shown = capsys.readouterr()
    assert "the reloader dialect is off: --dialect reloader" in shown.err
    assert "app#mode" not in shown.out
    _run([*command.split(), "-f", str(tmp_path), "--dialect", "reloader"])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "configmap/default/app" in shown.out or "configmap/app" in shown.out


def test_a_graph_can_be_of_workloads_with_some_labels_and_print_their_names(tmp_path, capsys):
    web = RELOADER.replace('reloader.stakater.com/auto: "true"', "steersman.dev/reload: auto")
    other = web.partition("---\n")[2].replace("{name: web,", "{name: api, labels: {tier: back},")
    (tmp_path / "all.yaml").write_text(f"{web}---\n{other}")
    assert _run(["graph", "-f", str(tmp_path), "-o", "name"]) == 0
    assert capsys.readouterr().out == "deployment/api\ndeployment/web\n"
    assert _run(["graph", "-f", str(tmp_path), "-o", "name", "-l", "tier=back"]) == 0
    assert capsys.readouterr().out == "deployment/api\n"


def test_a_broken_document_is_named_with_file_and_line_and_the_others_are_still_planned(tmp_path, capsys):
    (tmp_path / "all.yaml").write_text(MANIFESTS)
    assert _run(["plan", "-f", str(tmp_path), "-o", "json"]) == 3
    made = json.loads(capsys.readouterr().out)
    (change,) = made["changes"]
    assert change["workload"] == {"kind": "Deployment", "namespace": "shop", "name": "web"}
    assert change["sources"] == [{"kind": "ConfigMap", "namespace": "shop", "name": "app", "keys": ["mode"]}]
    assert set(change) == {"workload", "sources", "action", "wave", "due", "reason"}
    (problem,) = made["problems"]
    assert problem["where"].startswith(f"{tmp_path}/all.yaml:")
    assert 6 <= int(problem["where"].rpartition(":")[2]) <= 9


def test_a_plan_without_restarts_is_code_0_and_has_no_other_keys(tmp_path, capsys):
    (tmp_path / "app.yaml").write_text(QUIET)
    assert _run(["plan", "-f", str(tmp_path / "app.yaml"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"changes": [], "unaffected": []}


def test_a_plan_that_sees_no_workload_says_how_to_see_those_of_the_cluster(tmp_path, capsys):
    (tmp_path / "app.yaml").write_text(QUIET)
    assert _run(["plan", "-f", str(tmp_path / "app.yaml")]) == 0
    assert "--live also asks those of the cluster" in capsys.readouterr().out
    (tmp_path / "all.yaml").write_text(MANIFESTS)
    assert _run(["plan", "-f", str(tmp_path)]) == 3
    assert "--live" not in capsys.readouterr().out


def test_manifests_are_read_from_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(MANIFESTS))
    assert _run(["plan", "-f", "-"]) == 3
    shown = capsys.readouterr()
    assert "1 workload would restart" in shown.out
    assert "configmap/app#mode" in shown.out
    assert "error: <stdin>:" in shown.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "is not a Kubernetes object"),
        ("kind: ConfigMap\nmetadata: {name: a}", "apiVersion: is missing"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {}", "metadata.name: is missing"),
        ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: [1]}", "Deployment a:"),
    ],
)
def test_what_is_not_an_object_is_code_1_and_says_where(text, said, tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(text)
    assert _run(["plan", "-f", str(tmp_path / "a.yaml")]) == 1
    shown = capsys.readouterr().err
    assert f"error: {tmp_path}/a.yaml:1: " in shown
    assert said in shown


def test_what_a_secret_says_as_text_is_what_the_server_would_keep(tmp_path):
    """`stringData` wins, in base64."""
    (tmp_path / "db.yaml").write_text(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\ndata: {user: YQ==, password: YQ==}\n"
        "stringData: {password: b, none: }\n"
    )
    ((_, secret),) = read_manifests([str(tmp_path)]).objects
    assert secret["data"] == {"user": "YQ==", "password": "Yg==", "none": ""}
    assert "stringData" not in secret


def test_a_plan_knows_the_keys_that_a_secret_says_as_text(tmp_path, capsys):
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: db, namespace: shop}\nstringData: {password: tea-cosy}\n"
    key = "valueFrom: {secretKeyRef: {name: db, key: password}}"
    workload = MANIFESTS.partition("---\napiVersion: apps/v1")[2]
    used = workload.replace("envFrom: [{configMapRef: {name: app}}]", f"env: [{{name: A, {key}}}]")
    (tmp_path / "all.yaml").write_text(f"{secret}---\napiVersion: apps/v1{used}")
    assert _run(["plan", "-f", str(tmp_path)]) == 3
    shown = capsys.readouterr()
    assert "secret/db#password" in shown.out
    assert "has no key" not in shown.out
    assert "tea-cosy" not in shown.out + shown.err


def test_a_list_of_objects_is_all_of_them(tmp_path, capsys):
    items = list(yaml.safe_load_all(MANIFESTS.replace("metadata: {name: web\n", "metadata: {name: web}\n")))
    (tmp_path / "list.json").write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    assert _run(["plan", "-f", str(tmp_path)]) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "-f", "nothere"], "nothere: no such file or folder"),
        (["plan", "--live", "-f", "-"], "set KUBECONFIG or pass --kubeconfig"),
        (["why", "deploy/web"], "set KUBECONFIG or pass --kubeconfig"),
        (["graph"], "set KUBECONFIG or pass --kubeconfig"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_code_1(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(QUIET))
    assert _run(arguments) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


def test_a_workload_needs_a_kind_and_a_name(capsys):
    assert _run(["why", "web"]) == 2
    assert "try deployment/web" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["dot", "svg", "mermaid", "json", "yaml", "table"])
def test_a_graph_of_manifests_needs_no_cluster(form, tmp_path, capsys):
    (tmp_path / "all.yaml").write_text(MANIFESTS.replace("metadata: {name: web\n", "metadata: {name: web}\n"))
    assert _run(["graph", "-f", str(tmp_path), "-o", form]) == 0
    shown = capsys.readouterr().out
    assert "configmap" in shown
    assert "deployment" in shown


@pytest.mark.parametrize(
    ("option", "said"), [("--for", '"5 sec" is not a duration (try 5s)'), ("--until", '"5 sec" is not')]
)
def test_an_end_of_a_freeze_that_is_none_is_named_with_its_option(option, said, capsys):
    assert _run(["reload", "freeze", "deployment/web", option, "5 sec"]) == 2
    shown = capsys.readouterr().err
    assert f"Invalid value for {option}: {said}" in shown


def test_a_missing_right_is_printed_as_a_role_to_copy():
    refusal = Forbidden(
        'deployments.apps is forbidden: User "x" cannot list resource "deployments" in API group "apps"'
    )
    told = explain(with_rbac_hint(refusal, "GET", "/apis/apps/v1/namespaces/shop/deployments", {}))
    line, _, manifest = told.partition("\nthis would allow it:\n")
    role = yaml.safe_load(manifest)
    assert line.startswith("error: deployments.apps is forbidden")
    assert "{" not in line
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "shop")
    assert role["rules"] == [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]}]
    assert "steersman rbac --operators" in told


def test_a_missing_kind_of_ours_comes_with_the_command_that_installs_it():
    url = "https://cluster/apis/steersman.dev/v1alpha1/reloadpolicies"
    missing = NotFound("the server could not find the requested resource", request=RequestInfo("GET", url))
    told = explain(missing)
    assert "reloadpolicies.steersman.dev is not installed in this cluster" in told
    assert "steersman crds --operators reload | kubectl apply -f -" in told
    absent = NotFound("no such policy", request=RequestInfo("GET", f"{url}/a"), details={"name": "a"})
    assert "crds" not in explain(absent)


HISTORY = """\
{"at":"2026-11-16T22:01:16Z","cause":"configmap/app#mode secret/lab/db","workload":{"kind":"Deployment","namespace":"shop","name":"web"}}
{"at":"2026-11-16T21:01:16Z","cause":"configmap/app","outcome":"available","workload":{"kind":"Deployment","namespace":"shop","name":"web"}}
"""  # noqa: E501
HOOK = """
from steersman.operators.reload.planning.hooks import hold

def decide(change):
    if "secret/lab/db" in change.names and len(change.restarts) == 1:
        return hold("twice")
"""


def test_a_hook_is_replayed_over_a_history(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_reload_hook.py").write_text(HOOK)
    (tmp_path / "history.jsonl").write_text(HISTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert _run(["reload", "replay", "history.jsonl", "--hook", "my_reload_hook:decide", "-o", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["at"], first["decision"]) == ("2026-11-16T21:01:16Z", "allow")
    assert (second["sources"], second["decision"], second["reason"]) == (
        ["configmap/app", "secret/lab/db"],
        "hold",
        "twice",
    )


def test_a_history_that_is_none_is_named_with_its_line(tmp_path, capsys):
    (tmp_path / "history.jsonl").write_text("\n{}\n")
    assert _run(["reload", "replay", str(tmp_path / "history.jsonl"), "--hook", "os:getpid"]) == 1
    assert "history.jsonl:2: is not a recorded restart" in capsys.readouterr().err


async def test_a_plan_that_may_not_ask_other_namespaces_reports_a_problem():
    class Narrow:
        """A server that lets nobody list what is outside of a namespace."""

        async def api_resources(self):
            return BUILT_IN

        async def pages(self, kind, *, namespace):
            raise Forbidden(f"{kind.plural} is forbidden at the cluster scope")
            yield

    found, problems = await users_elsewhere(Narrow(), ReloadConfig().options(), {"lib"})
    assert not found
    (told,) = problems
    assert told.startswith("workloads of other namespaces may use these sources and cannot be read: ")


@pytest.mark.parametrize(
    ("cause", "outcome", "told"),
    [
        ("configmap/app#mode", "", "at noon for configmap/app#mode"),
        ("configmap/app#mode", "available", "at noon for configmap/app#mode; available"),
        ("", "available", "at noon available"),
        ("", "", "at noon"),
    ],
)
def test_the_last_restart_is_reported_without_loose_ends(cause, outcome, told):
    assert last_told(RestartRecord(at="at noon", cause=cause, outcome=outcome)) == told


@pytest.mark.parametrize("word", ["deploy", "deployment.apps", "deployments.apps", "Deployment.v1.apps"])
def test_a_kind_may_be_written_as_kubectl_prints_it(word):
    assert rule_named(OfflineInspection(ReloadConfig().options()), word).kind.kind == "Deployment"


def test_a_kind_of_another_group_is_another_kind():
    with pytest.raises(click.BadParameter, match="unknown kind"):
        rule_named(OfflineInspection(ReloadConfig().options()), "deployment.example.org")


@pytest.mark.parametrize(
    ("arguments", "count"), [(("-o", "jsonl"), 60), ((), 50), (("-o", "jsonl", "--limit", "3"), 3)], ids=str
)
def test_a_history_for_programs_is_all_of_it(arguments, count, monkeypatch, capsys):
    who = WorkloadName("Deployment", "shop", "web")
    past = [WorkloadRestartRecord(workload=who, at=f"2026-01-01T00:00:{second:02}Z") for second in range(60)]

    async def read(*_arguments):
        return past

    monkeypatch.setattr("steersman.cli.reload.history._read", read)
    assert _run(["reload", "history", *arguments]) == 0
    assert capsys.readouterr().out.count("2026-01-01") == count


@pytest.mark.parametrize(("marks", "told"), [({}, "was not frozen"), ({"steersman.dev/freeze": "true"}, "is thawed")])
def test_a_thaw_of_what_is_not_frozen_says_so(marks, told, monkeypatch, capsys):
    written = []

    class Server:
        namespace = "shop"

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_error):
            pass

        async def get(self, _kind, name, *, namespace):
            return {"metadata": {"name": name, "namespace": namespace, "annotations": marks}}

        async def patch(self, _kind, name, _patch, *, namespace):
            written.append((namespace, name))

    monkeypatch.setattr("steersman.cli.reload.inspection.connected", lambda *_place: Server())
    assert _run(["reload", "thaw", "configmap/app"]) == 0
    assert capsys.readouterr().out == f"configmap/app {told}\n"
    assert len(written) == len(marks)


PLANNED = Planned(
    workload=WorkloadName("Deployment", "shop", "web"), sources=(), action="restart", wave=0, due=None, reason="x"
)
GAP = ManifestProblem("cluster", "configmaps cannot be read")
KEPT = Unaffected(WorkloadName("Deployment", "shop", "api"), "nothing changed")


READ = "could not be read (see above)"


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (Forecast(unaffected=(KEPT,)), "nothing would restart"),
        (Forecast(changes=(PLANNED,)), "1 workload would restart"),
        (Forecast(problems=(GAP,)), f"unknown whether anything would restart; 1 thing {READ}"),
        (Forecast(unseen=("a", "b")), f"unknown whether anything would restart; 2 things {READ}"),
        (
            Forecast(unaffected=(KEPT,), unseen=("a",)),
            f"nothing would restart among what could be read; 1 thing {READ}",
        ),
        (Forecast(changes=(PLANNED,), problems=(GAP,)), f"at least 1 workload would restart; 1 thing {READ}"),
    ],
)
def test_a_plan_never_says_more_than_what_could_be_read_allows(made, line):
    assert headline(made) == line
