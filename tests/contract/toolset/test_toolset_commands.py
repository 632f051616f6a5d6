"""`steersman toolset`: with manifests alone, and on a server."""

from __future__ import annotations

import asyncio
import io
import json

import pytest
import yaml

from steersman.cli.main import _run
from steersman.kube.api.types import ConfigMap
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from steersman.operators.toolset.render.conformance import check_holmes
from steersman.testing import eventually
from tests.support.toolset.services import running_toolset, service

NAME = "kubernaut-toolset-config"
ROWS = [
    service("prometheus", labels={"app": "prometheus"}, ports=[("web", 9090)]),
    service("prometheus-operator", labels={"app": "prometheus-operator"}, ports=[8080]),
    service("my-grafana", ports=[3000]),
]


@pytest.fixture
def manifests(tmp_path):
    path = tmp_path / "services.yaml"
    path.write_text(yaml.safe_dump_all(ROWS))
    return path


def run(capsys, *arguments):
    code = _run(["toolset", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_render_prints_what_the_operator_would_write_and_the_same_every_time(manifests, capsys):
    code, first, _ = run(capsys, "render", "-f", manifests)
    assert code == 0
    assert run(capsys, "render", "-f", manifests)[1] == first
    data = yaml.safe_load(first)["data"]
    assert set(data) == {"custom_toolset.yaml", "kubernetes-toolset.yaml", "prometheus-toolset.yaml"}
    assert check_holmes(data["custom_toolset.yaml"]) == ()
    code, text, _ = run(capsys, "render", "-f", manifests, "-o", "json")
    assert json.loads(text)["data"] == data


def test_render_merges_overrides_that_are_among_the_manifests(manifests, capsys, tmp_path):
    overrides = tmp_path / "configmap.yaml"
    meta = {"name": NAME}
    body = {"overrides.yaml": "prometheus: {url: 'http://mine.example:1'}"}
    overrides.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": body}))
    _, text, _ = run(capsys, "render", "-f", manifests, "-f", overrides)
    assert "mine.example" in yaml.safe_load(text)["data"]["custom_toolset.yaml"]


def test_render_reads_services_and_overrides_from_standard_input(manifests, capsys, monkeypatch):
    data = {"overrides.yaml": "prometheus: {url: 'http://mine.example:1'}"}
    overrides = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump_all([*ROWS, overrides])))
    _, text, _ = run(capsys, "render", "-f", "-")
    rendered = yaml.safe_load(text)["data"]
    assert "prometheus-toolset.yaml" in rendered
    assert "mine.example" in rendered["custom_toolset.yaml"]


def test_explain_says_why_and_why_not(manifests, capsys):
    code, text, _ = run(capsys, "explain", "monitoring/prometheus", "-f", manifests)
    assert code == 0
    assert "by label" in text
    code, text, _ = run(capsys, "explain", "monitoring/prometheus-operator", "-f", manifests, "-o", "json")
    assert (code, json.loads(text)["reason"]) == (3, "Excluded")
    assert run(capsys, "explain", "nobody", "-f", manifests)[0] == 1


def test_the_top_level_plan_says_which_keys_of_the_toolset_would_change(manifests, capsys):
    assert _run(["plan", "-f", str(manifests), "-o", "json"]) == 3
    rows = json.loads(capsys.readouterr().out)["toolset"]
    assert [(row["configmap"], row["key"], row["action"]) for row in rows] == [
        (NAME, "custom_toolset.yaml", "update"),
        (NAME, "prometheus-toolset.yaml", "create"),
    ]
    assert {row["why"] for row in rows} == {"service monitoring/prometheus"}
    assert _run(["plan", "-f", str(manifests), "-l", "app!=prometheus"]) == 0
    assert "toolset" not in capsys.readouterr().out


def test_a_service_that_cannot_be_read_is_reported_and_the_rest_of_the_plan_is_shown(capsys, tmp_path):
    broken = service("prometheus", labels={"app": "prometheus"}, ports=[9090])
    broken["spec"]["ports"] = "9090"
    path = tmp_path / "broken.yaml"
    path.write_text(yaml.safe_dump(broken))
    assert _run(["plan", "-f", str(path)]) == 1
    said = capsys.readouterr()
    assert "unknown whether the toolset would change" in said.err
    assert f"{path}:1: Service: " in said.err
    assert "nothing would restart" in said.out


def test_validate_accepts_good_and_refuses_bad(tmp_path, capsys):
    path = tmp_path / "overrides.yaml"
    for text, expected in (("grafana: {enabled: false}", 0), ("grafana: {url: 'http://g'}", 0), ("x: {a: 1}", 3)):
        path.write_text(text)
        assert run(capsys, "validate", path)[0] == expected, text
    path.write_text("a: [")
    code, said, _ = run(capsys, "validate", path)
    assert code == 3
    assert "YAML" in said
    rendered = tmp_path / "custom_toolset.yaml"
    rendered.write_text("toolset: prometheus\n")
    assert run(capsys, "validate", rendered)[0] == 3
    assert run(capsys, "validate", tmp_path / "missing.yaml")[0] == 1


def test_merge_joins_the_parts_of_a_split_configmap(tmp_path, capsys):
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        instances = [{"name": f"n{number}", "prometheus_url": f"http://p{number}"}]
        value = {"toolsets": {"prometheus/metrics": {"enabled": True, "config": {"instances": instances}}}}
        (folder / "custom_toolset.yaml").write_text(yaml.safe_dump(value))
    target = tmp_path / "joined.yaml"
    assert run(capsys, "merge", tmp_path / "1", tmp_path / "2", "--to", target)[0] == 0
    config = yaml.safe_load(target.read_text())["toolsets"]["prometheus/metrics"]["config"]
    assert [instance["name"] for instance in config["instances"]] == ["n1", "n2"]


async def test_discover_diff_explain_and_restore_on_a_server(cluster, client, namespace, tmp_path, capsys):
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "steersman.yaml"
    cluster.write_kubeconfig(kubeconfig)
    config.write_text(
        f"toolset: {{namespace: {namespace}, namespaces: [{namespace}], healthCheck: {{enabled: false}}}}"
    )
    await client.create(service("prometheus", namespace=namespace, labels={"app": "prometheus"}, ports=[9090]))

    async def command(*arguments):
        options = ("--config", config, "--kubeconfig", kubeconfig)
        return await asyncio.to_thread(run, capsys, *arguments, *options)

    code, text, _ = await command("discover", "-o", "json")
    assert [one["name"] for one in json.loads(text)["services"]] == ["prometheus"]
    assert (await command("discover", "-o", "name", "-l", "app=prometheus"))[1] == "service/prometheus\n"
    assert (await command("discover", "-o", "name", "-l", "app!=prometheus"))[1] == ""
    options = ("--config", str(config), "--kubeconfig", str(kubeconfig), "-n", namespace)
    assert await asyncio.to_thread(_run, ["why", "service/prometheus", *options]) == 0
    assert capsys.readouterr().out.startswith(f"{namespace}/prometheus: ")
    assert (await command("diff"))[0] == 3
    grafana, moved = tmp_path / "grafana.yaml", tmp_path / "moved.yaml"
    grafana.write_text(yaml.safe_dump(service("grafana", namespace=namespace, labels={"app": "grafana"}, ports=[3000])))
    moved.write_text(yaml.safe_dump(service("prometheus", namespace=namespace, labels={"app": "web"}, ports=[80])))
    for file, key, action in (
        (grafana, "grafana-toolset.yaml", "create"),
        (moved, "prometheus-toolset.yaml", "delete"),
    ):
        assert await asyncio.to_thread(_run, ["plan", "--live", "-f", str(file), "-o", "json", *options]) == 3
        rows = json.loads(capsys.readouterr().out)["toolset"]
        assert (key, action) in {(row["key"], row["action"]) for row in rows}
    section = ToolsetSection(namespace=namespace, namespaces=[namespace], health_check=HealthConfig(enabled=False))
    async with running_toolset(client, section):

        async def same():
            return (await command("diff"))[0] == 0

        await eventually(same, "no drift", timeout=90)
        change = {"data": {"overrides.yaml": "grafana: {enabled: false}\n"}}
        await client.patch(ConfigMap, NAME, change, namespace=namespace)

        async def copied():
            found = await client.get(ConfigMap, f"{NAME}-overrides-backup", namespace=namespace)
            return "overrides.yaml" in found.data

        await eventually(copied, timeout=90)
        await eventually(same, "no drift", timeout=90)
    await client.patch(ConfigMap, NAME, {"data": {"prometheus-toolset.yaml": "x"}}, namespace=namespace)
    code, text, _ = await command("diff")
    assert code == 3
    assert "modified:prometheus-toolset.yaml" in text
    code, text, _ = await command("explain", f"{namespace}/prometheus", "-o", "json")
    assert json.loads(text)["candidate"]["type"] == "prometheus"
    await client.delete(ConfigMap, NAME, namespace=namespace)
    code, text, error = await command("restore")
    assert code == 0, error
    assert "overrides.yaml" in text
    found = await client.get(ConfigMap, NAME, namespace=namespace)
    assert found.data["overrides.yaml"] == "grafana: {enabled: false}\n"
