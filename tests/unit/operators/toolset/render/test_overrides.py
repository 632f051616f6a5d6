"""What administrators write: accepted in every form, merged so that it wins, and never trusted to be small."""

from __future__ import annotations

import pytest
import yaml

from steersman.errors import FormatError
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from steersman.operators.toolset.render.conformance import check_holmes
from steersman.operators.toolset.render.holmes import HolmesProfile, render_holmes
from steersman.operators.toolset.render.overrides import parse_overrides
from tests.support.toolset.services import desired_from, parsed, service

SETTINGS = ToolsetSection(health_check=HealthConfig(enabled=False)).settings()
FOUND = [
    service("prometheus", labels={"app": "prometheus"}, ports=[9090]),
    service("grafana", labels={"app": "grafana"}, ports=[3000]),
    service("jaeger", labels={"app": "jaeger"}, ports=[16686]),
]


def merged(text, services=FOUND, settings=SETTINGS):
    made = desired_from([parsed(one) for one in services], settings, overrides=text)
    rendered = made.layout.base["custom_toolset.yaml"]
    assert check_holmes(rendered) == ()
    return made, yaml.safe_load(rendered)["toolsets"]


def test_an_override_wins_over_what_was_discovered_and_the_generated_key_stays():
    made, toolsets = merged("prometheus:\n  url: http://custom.example:9090\n")
    assert toolsets["prometheus/metrics"]["config"]["prometheus_url"] == "http://custom.example:9090"
    assert "custom.example" not in made.layout.base["prometheus-toolset.yaml"]
    assert made.merged.conflicts == ("prometheus",)


def test_the_seeds_example_gives_one_more_instance_and_names_what_cannot_be_mapped():
    made, toolsets = merged(
        "custom-elasticsearch:\n  enabled: true\n  config:\n    url: http://es.logging:9200\n    index: logs-*\n"
        "custom-datadog:\n  enabled: false\n  config:\n    api_key: ${DATADOG_API_KEY}\n"
    )
    assert toolsets["elasticsearch/data"]["config"] == {"api_url": "http://es.logging:9200", "index": "logs-*"}
    assert [text.partition(":")[0] for text in made.merged.unmappable] == ["custom-datadog"]


def test_an_extra_instance_beside_a_discovered_one():
    _, toolsets = merged("custom-prometheus:\n  config:\n    url: http://other.example:9090\n")
    names = [instance["name"] for instance in toolsets["prometheus/metrics"]["config"]["instances"]]
    assert names == ["custom-prometheus", "monitoring-prometheus"]


@pytest.mark.parametrize(
    "text",
    [
        "grafana: {enabled: false}",
        "toolsets: {grafana: {enabled: false}}",
        "grafana/dashboards: {enabled: false}",
        "toolsets:\n  grafana/dashboards:\n    enabled: false",
    ],
)
def test_enabled_false_switches_a_discovered_toolset_off(text):
    _, toolsets = merged(text)
    assert toolsets["grafana/dashboards"]["enabled"] is False


def test_null_deletes_and_an_empty_result_is_still_loadable():
    _, toolsets = merged("prometheus:\ngrafana: null\njaeger: null\nkubernetes: null\n")
    assert toolsets == {"kubernetes/core": {"enabled": False}}


def test_maps_merge_deeply_and_lists_and_scalars_replace():
    _, toolsets = merged(
        "prometheus:\n  config:\n    headers: {X-A: '1'}\n    additional_labels: {a: b}\n    timeout: 45s\n"
    )
    config = toolsets["prometheus/metrics"]["config"]
    assert config["additional_headers"] == {"X-A": "1"}
    assert config["query_timeout_seconds_default"] == 45
    assert config["prometheus_url"].startswith("http://prometheus.")


def test_headers_of_an_override_join_those_that_were_discovered():
    tenant = {f"{SETTINGS.prefix}toolset-tenant": "shop"}
    found = service("prometheus", labels={"app": "prometheus"}, annotations=tenant, ports=[9090])
    _, toolsets = merged("prometheus:\n  config:\n    headers: {X-A: '1'}\n", [found])
    config = toolsets["prometheus/metrics"]["config"]
    assert config["additional_headers"] == {"X-Scope-OrgID": "shop", "X-A": "1"}


def test_variables_are_translated_to_what_the_consumer_expands():
    _, toolsets = merged("grafana:\n  config:\n    apiKey: ${GRAFANA_API_KEY}\n")
    assert toolsets["grafana/dashboards"]["config"]["api_key"] == "{{ env.GRAFANA_API_KEY }}"


def test_the_list_form_and_a_new_http_toolset():
    _, toolsets = merged(
        "tools:\n- {name: wiki, type: custom, endpoint: 'http://wiki.example:80'}\n"
        "- {name: second-prometheus, type: prometheus, endpoint: 'http://p.example:9090'}\n"
    )
    assert toolsets["wiki"]["type"] == "http"
    names = [instance["name"] for instance in toolsets["prometheus/metrics"]["config"]["instances"]]
    assert "second-prometheus" in names


def test_a_toolset_in_the_consumers_own_format_and_mcp_servers():
    made = desired_from(
        [],
        SETTINGS,
        overrides="toolsets:\n  mine: {type: http, config: {endpoints: []}}\n"
        "mcp_servers:\n  wiki: {description: a wiki, config: {url: 'http://m.example/mcp', mode: sse}}\n",
    )
    value = yaml.safe_load(made.layout.base["custom_toolset.yaml"])
    assert value["mcp_servers"]["wiki"]["config"]["mode"] == "sse"
    assert value["toolsets"]["mine"]["type"] == "http"


@pytest.mark.parametrize(
    "text",
    [
        "prometheus/metrics: {config: {headers.x: 1}}",
        "prometheus: {config: {a: {b.c: 1}}}",
        "prometheus/metrics: {nonsense: 1}",
        "a.b: {type: http, config: {endpoints: []}}",
        "nobody: {config: {x: 1}}",
        "nobody: null",
        "kubernetes: {config: {incluster: true}}",
        "loki: {config: {x: 1}}",
    ],
)
def test_what_would_break_the_consumers_file_is_left_out_and_named(text):
    made, _ = merged(text)
    assert len(made.merged.unmappable) == 1
    assert any(problem.reason == "UnmappableOverride" for problem in made.problems)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "line"),
        ("prometheus: {}\nprometheus: {}", "twice"),
        ("a: {b: 1, b: 2}", "twice"),
        ("- a", "map"),
        ("prometheus: 5", "map"),
        ("prometheus: {config: 5}", "config"),
        ("prometheus: {enabled: perhaps}", "enabled"),
        ("1: {}", "not text"),
        ("? [a]\n: b", "not text"),
        ("toolsets: 5", "map"),
        ("tools: [{type: x}]", "name"),
        ("a: &a [*a]", "itself"),
        ("!!python/object/apply:os.system ['true']", "YAML"),
        ("x" * 300_000, "bytes"),
        ("a: " + "[" * 200 + "]" * 200, "deep"),
        ("[" * 100_000, "deep"),
        ("{a: " * 50_000, "deep"),
        ("- a\n" * 60_000, "more than"),
        ("a: \x00", "YAML"),
    ],
)
def test_what_cannot_be_read_says_why_and_never_what(text, says):
    with pytest.raises(FormatError, match=says) as caught:
        parse_overrides(text)
    assert len(str(caught.value)) < 300


def test_a_bomb_of_aliases_is_refused_before_it_explodes():
    rows = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]
    with pytest.raises(FormatError, match="aliases"):
        parse_overrides("\n".join(rows))


def test_anchors_that_mean_well_are_read():
    value = parse_overrides("x: &x {config: {url: 'http://a.example'}}\ncustom-loki: *x\ncustom-tempo: {<<: *x}\n")
    assert value.toolsets["custom-loki"] == value.toolsets["custom-tempo"]


def test_the_last_good_overrides_stay_in_force_while_the_new_ones_cannot_be_read():
    made = desired_from(
        [parsed(item) for item in FOUND],
        SETTINGS,
        overrides="a: [",
        last_valid="prometheus: {url: 'http://good.example:1'}",
    )
    assert "good.example" in made.layout.base["custom_toolset.yaml"]
    assert made.override_error


def test_a_literal_secret_is_warned_about_without_its_value():
    value = parse_overrides("grafana: {config: {apiKey: hunter2, token: '${T}'}}")
    assert value.warnings == ("grafana.config.apiKey: looks like a secret; use ${VARIABLE} instead",)


def test_an_older_consumer_gets_its_own_words():
    settings = ToolsetSection(health_check=HealthConfig(enabled=False), holmes_profile="0.18.5").settings()
    made, toolsets = merged("grafana: {url: 'http://g.example'}", settings=settings)
    assert toolsets["grafana/dashboards"]["config"]["url"] == "http://g.example"
    assert any(problem.reason == "NotLoadable" and "jaeger" in problem.message for problem in made.problems)
    assert HolmesProfile((0, 18, 1)).names("elasticsearch") == ("opensearch/logs",)
    assert render_holmes(made.merged.entries).endswith("\n")
