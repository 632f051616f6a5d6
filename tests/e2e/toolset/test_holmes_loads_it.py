"""The real HolmesGPT reads every file we render, in several of its versions, and finds nothing wrong."""

from __future__ import annotations

import pytest
import yaml
from msgspec.structs import replace

from steersman.operators.toolset.api.config import Credential, HealthConfig, ToolsetSection
from steersman.operators.toolset.render.conformance import check_holmes
from steersman.operators.toolset.render.merge import join_files
from steersman.testing.plugin import unavailable
from tests.support.toolset.holmes import HolmesError, loaded_toolsets
from tests.support.toolset.services import desired_from, parsed, service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VERSIONS = ["0.45.0", "0.26.0", "0.18.5"]
TENANT = {"toolset": "true", "toolset-type": "loki", "toolset-tenant": "shop", "toolset-verify-tls": "false"}
SERVICES = [
    service("prometheus-server", labels={"app": "prometheus"}, ports=[("web", 9090)]),
    service("prometheus", namespace="prod", labels={"app": "prometheus"}, ports=[("web", 9090)]),
    service("thanos-query", labels={"app": "thanos-query"}, ports=[10902]),
    service("grafana", labels={"app": "grafana"}, ports=[("service", 80)]),
    service("grafana", namespace="prod", labels={"app": "grafana"}, ports=[("service", 80)]),
    service("loki", labels={"app": "loki"}, annotations=TENANT, ports=[3100]),
    service("tempo", labels={"app": "tempo"}, ports=[3200]),
    service("es", labels={"app": "elasticsearch"}, ports=[9200]),
    service("opensearch", namespace="prod", labels={"app": "opensearch"}, ports=[9200]),
    service("vlogs", labels={"app": "vlogs"}, ports=[9428]),
    service("jaeger", labels={"app": "jaeger"}, ports=[16686]),
    service("jaeger", namespace="prod", labels={"app": "jaeger"}, ports=[16686]),
    service("alertmanager", labels={"app": "alertmanager"}, ports=[9093]),
    service("pyroscope", labels={"app": "pyroscope"}, ports=[4040]),
    service("wiki", annotations={"toolset": "true", "toolset-type": "mcp", "toolset-path": "/mcp"}, ports=[8000]),
    service("shop.api", annotations={"toolset": "true", "toolset-type": "inventory"}, ports=[8000]),
]
OVERRIDES = """
prometheus: {url: "http://custom.example:9090", config: {timeout: 45s, headers: {X-Team: sre}}}
grafana: {enabled: false}
custom-loki: {config: {url: "http://loki.example:3100", apiKey: "${LOKI_TOKEN}"}}
custom-datadog: {enabled: false, config: {api_key: "${DATADOG_API_KEY}"}}
kubernetes/logs: {enabled: false}
nobody: {config: {a.b: 1}}
"""
CREDENTIALS = {
    kind: Credential(env=f"{kind.upper()}_KEY") for kind in ("prometheus", "grafana", "loki", "elasticsearch", "jaeger")
}


def settings(version, **section):
    section.setdefault("health_check", HealthConfig(enabled=False))
    return ToolsetSection(holmes_profile=version, **section).settings()


def files_for(version):
    """Name to text: everything we render in one way or another."""
    rows = [parsed(one) for one in SERVICES]
    plain = desired_from(rows, settings(version)).layout
    overridden = desired_from(rows, settings(version), overrides=OVERRIDES).layout
    secret = desired_from(
        rows, settings(version, credentials=CREDENTIALS, trusted_namespaces=["monitoring", "prod"])
    ).layout
    split = desired_from(rows, replace(settings(version), max_bytes=2500), overrides=OVERRIDES).layout
    assert split.split
    parts = [split.base, *split.parts.values()]
    vm = desired_from([parsed(service("vmsingle", labels={"app": "vmsingle"}, ports=[8429]))], settings(version)).layout
    made = {
        "empty": desired_from([], settings(version)).layout.base["custom_toolset.yaml"],
        "nothing": desired_from([], settings(version), overrides="kubernetes:").layout.base["custom_toolset.yaml"],
        "plain": plain.base["custom_toolset.yaml"],
        "victoriametrics": vm.base["custom_toolset.yaml"],
        "overridden": overridden.base["custom_toolset.yaml"],
        "secret": secret.base["custom_toolset.yaml"],
        "joined": join_files([part["custom_toolset.yaml"] for part in parts]),
    }
    return made | {f"part-{number}": part["custom_toolset.yaml"] for number, part in enumerate(parts)}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_rendered_file_loads_without_a_failed_entry(version, tmp_path):
    texts = files_for(version)
    if version != VERSIONS[0]:  # older ones differ in words, not in structure; each file costs seconds
        texts = {name: texts[name] for name in ("plain", "overridden", "secret")}
    bad = "toolsets:\n  prometheus/metrics: {enabled: true, nonsense: 1}\n"
    paths = []
    for name, text in {**texts, "bad": bad}.items():
        paths.append(tmp_path / f"{name}.yaml")
        paths[-1].write_text(text, encoding="utf-8")
    try:
        answers = loaded_toolsets(version, paths)
    except HolmesError as error:
        unavailable(error)
    *good, judged_bad = answers
    for (name, text), answer in zip(texts.items(), good, strict=True):
        assert check_holmes(text) == (), name
        assert answer["error"] is None, (name, answer["error"])
        failed = {
            one: row["error"] for one, row in answer["toolsets"].items() if row["error"] or row["status"] == "failed"
        }
        assert not failed, (name, failed)
        value = yaml.safe_load(text)
        for section in value.values():
            for entry, ours in section.items():
                theirs = answer["toolsets"].get(entry)
                assert theirs is not None, (name, entry)
                assert theirs["enabled"] == ours["enabled"], (name, entry)
    wrong = judged_bad["toolsets"].get("prometheus/metrics", {})
    assert wrong.get("error") or not wrong.get("enabled"), "the judge accepts anything"
