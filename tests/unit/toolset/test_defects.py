"""One test per defect of the originals: the behaviour they had is named in the docstring, ours is shown right."""

from __future__ import annotations

import asyncio

import pytest
import yaml
from msgspec.structs import replace

from steersman.kube.errors import Conflict
from steersman.kube.objects import OwnedMeta
from steersman.kube.resources import ObjectRef
from steersman.operators.toolset import apply, metrics, rights
from steersman.operators.toolset.annotations import read_annotations
from steersman.operators.toolset.backup import Backup
from steersman.operators.toolset.conformance import check_holmes
from steersman.operators.toolset.controller import make_parts
from steersman.operators.toolset.detection import Confidence, detect
from steersman.operators.toolset.health import Observed, Outcome, ProbeResult, State, admit
from steersman.operators.toolset.look import Standing, look_at
from steersman.operators.toolset.objects import TargetMap
from steersman.operators.toolset.plan import Operation
from steersman.operators.toolset.rights import rules
from steersman.operators.toolset.stand import Stand, stand_of
from steersman.operators.toolset.steps import plan_target
from steersman.operators.toolset.types import HealthConfig, ToolsetSection, TypeConfig
from steersman.operators.toolset.views import services_of
from steersman.testing import settle
from steersman.testing.toolsetting import look, service

SETTINGS = ToolsetSection(health_check=HealthConfig(enabled=False)).settings()
PROBED = ToolsetSection().settings()
PROMETHEUS = service("prometheus-server", labels={"app": "prometheus"}, ports=[("web", 9090)])
US = "steersman-toolset"


def seen(*manifests, settings=SETTINGS, **standing):
    return look_at([look(one) for one in manifests], settings, standing=Standing(**standing))


def target(data, **fields):
    return TargetMap(metadata=OwnedMeta(name=SETTINGS.name, namespace=SETTINGS.namespace), data=data, **fields)


def steps(look_, base, settings=SETTINGS):
    stand = Stand(base=base, foreign={}) if not isinstance(base, Stand) else base
    return plan_target(look_, stand, settings, manager=US, now="now")


# -- the design document ---------------------------------------------------------------------------------------------


async def test_a_retry_plans_anew_instead_of_sending_the_same_stale_object(clock):
    """Seed: every retry sent the object that had just been refused, so none could succeed."""
    revisions, sent = iter([1, 2, 3]), []

    async def attempt(_number):
        sent.append(next(revisions))
        if len(sent) < 3:
            raise Conflict("stale")

    task = asyncio.create_task(apply.on_schedule(clock, attempt, met=lambda: None))
    await clock.advance(10)
    await task
    assert sent == [1, 2, 3]


async def test_there_is_no_sleep_after_the_last_attempt(clock):
    """Seed: it slept four seconds before it gave up."""

    async def attempt(_number):
        raise Conflict("stale")

    task = asyncio.create_task(apply.on_schedule(clock, attempt, met=lambda: None))
    await clock.advance(3)
    assert task.done()
    assert isinstance(task.exception(), apply.ConflictsExhausted)
    assert apply.AGAIN_SECONDS == 4.0


def test_the_desired_state_is_computed_at_every_look():
    """Seed: the desired state was captured once at the start and never refreshed."""
    assert "prometheus-toolset.yaml" not in seen().layout.base
    assert "prometheus-toolset.yaml" in seen(PROMETHEUS).layout.base


def test_the_configmap_is_watched_and_never_polled():
    """Seed: "watch" was a GET every 30 seconds."""
    keeping, probing = make_parts(registry=_registry()).controllers
    assert {watch.kind.plural for watch in keeping.watched} == {"services", "endpointslices"}
    assert keeping.schedules == probing.schedules == ()


async def test_sleeps_end_with_the_process(clock):
    """Seed: time.Sleep ignored cancellation."""
    tried = []

    async def attempt(number):
        tried.append(number)
        raise Conflict("stale")

    task = asyncio.create_task(apply.on_schedule(clock, attempt, met=lambda: None))
    await settle()
    assert not task.done()  # it waits for its second attempt…
    task.cancel()
    await settle()
    assert (task.cancelled(), tried) == (True, [1])  # …and no longer, although no time has passed


def test_an_administrators_own_key_is_never_deleted():
    """Seed: every key but overrides.yaml that was not desired was deleted."""
    look_ = seen()
    base = target({**look_.layout.base, "notes.txt": "mine"}, owners={US: sorted(look_.layout.base)})
    (step,) = steps(look_, base)
    assert step.plan.prune == ()
    assert "foreign:notes.txt" in step.plan.drift


def test_overrides_survive_the_deletion_of_the_configmap():
    """Seed and original: a deleted ConfigMap came back without its overrides."""
    last = target({"overrides.yaml": "mine", "kubernetes-toolset.yaml": "x"})
    watched = stand_of(None, {}, Backup(), last=last, backup_object=None, settings=SETTINGS)
    unwatched = stand_of(
        None, {}, Backup(foreign={"overrides.yaml": "mine"}), last=None, backup_object=last, settings=SETTINGS
    )
    assert watched.overrides == unwatched.overrides == "mine"
    assert watched.existed
    assert unwatched.existed


def test_what_is_too_large_is_split_instead_of_refused():
    """Seed: the size was checked and the ConfigMap rejected."""
    many = [service(f"p{n}", labels={"app": "prometheus"}, ports=[9090]) for n in range(20)]
    layout = seen(*many, settings=replace(SETTINGS, max_bytes=3000)).layout
    assert layout.split
    assert not layout.skipped


def test_labels_annotations_and_immutability_are_part_of_the_plan():
    """Seed: no handling of labels, annotations, binaryData or immutable."""
    last = target({"kubernetes-toolset.yaml": "x"}, binary_data={"logo": "AAEC"})
    deleted = stand_of(None, {}, Backup(), last=last, backup_object=None, settings=SETTINGS)
    assert deleted.foreign_binary == {"logo": "AAEC"}
    look_ = seen()
    good = target(dict(look_.layout.base), owners={US: sorted(look_.layout.base)})
    (step,) = steps(look_, good)
    assert any(one.startswith("metadata:") for one in step.plan.drift)
    (step,) = steps(look_, replace(good, immutable=True))
    assert step.plan.blocked


def test_the_merge_with_overrides_happens_on_our_side():
    """Seed: it relied on a merge that the consumer does not do."""
    text = seen(PROMETHEUS, overrides="prometheus: {url: 'http://mine.example:9090'}").layout.base[
        "custom_toolset.yaml"
    ]
    config = yaml.safe_load(text)["toolsets"]["prometheus/metrics"]["config"]
    assert config == {"prometheus_url": "http://mine.example:9090"}


def test_the_output_can_be_loaded_by_the_consumer():
    """Seed: files with `toolset:` at the top break the consumer's whole load."""
    base = seen(PROMETHEUS).layout.base
    assert check_holmes(base["custom_toolset.yaml"]) == ()
    assert check_holmes(base["prometheus-toolset.yaml"])


def test_placeholders_are_in_the_consumers_words():
    """Seed: `${VAR}` is not expanded by the consumer."""
    text = seen(overrides="custom-grafana: {url: 'http://g', apiKey: '${TOKEN}'}").layout.base["custom_toolset.yaml"]
    assert "{{ env.TOKEN }}" in text
    assert "${" not in text


# -- the original's code ----------------------------------------------------------------------------------------------


def test_nothing_is_written_when_nothing_differs():
    """Original: each cycle replaced all data and always wrote."""
    look_ = seen(PROMETHEUS)
    (first,) = steps(look_, None)
    desired = first.desired
    meta = OwnedMeta(name=SETTINGS.name, labels=dict(desired.labels), annotations=dict(desired.annotations))
    written = TargetMap(metadata=meta, data=dict(desired.data), owners={US: sorted(desired.data)})
    (again,) = plan_target(look_, Stand(base=written), SETTINGS, manager=US, now="much later")
    assert again.plan.operation is Operation.NOOP
    assert not again.plan.write


def test_every_setting_is_obeyed():
    """Original: namespaces, skip_health_check and intervals were read and ignored."""
    section = ToolsetSection(
        namespaces=["a"],
        discovery_interval="7s",
        health_check=HealthConfig(enabled=False, interval="9s", timeout="3s"),
        types={"loki": TypeConfig(enabled=False)},
    )
    settings = section.settings()
    assert (settings.namespaces, settings.discovery_interval) == (frozenset({"a"}), 7)
    assert (settings.health.enabled, settings.health.interval, settings.health.timeout) == (False, 9, 3)
    assert detect(look(PROMETHEUS), settings).reason == "OutOfScope"


def test_metrics_are_incremented():
    """Original: its metrics were defined and never incremented."""
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    made.found_drift(["missing:a", "modified:b", "extra:c", "deleted", "foreign:d"])
    for kind in ("missing_key", "modified_value", "extra_key", "deleted"):
        assert registry.get_sample_value("toolset_configmap_drift_detected_total", {"drift_type": kind}) == 1


def test_services_are_a_gauge_that_goes_back_to_zero():
    """Original: a counter, which made its own alert for zero services useless."""
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    made.looked({("prometheus", "a"): 2}, {})
    made.looked({}, {})
    labels = {"service_type": "prometheus", "namespace": "a"}
    assert registry.get_sample_value("toolset_services_discovered", labels) == 0


def test_a_problem_is_shown_for_as_long_as_it_stands():
    """Original: counted what went wrong, so that nobody could see that it still does."""
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    one, two = ObjectRef("one", "ns"), ObjectRef("two", "ns")

    def standing():
        return registry.get_sample_value("toolset_problems", {"reason": "OverridesInvalid"})

    made.stands(one, ["OverridesInvalid", "NotLoadable"])
    made.stands(two, ["OverridesInvalid"])
    assert standing() == 2
    made.stands(one, ["NotLoadable"])
    assert standing() == 1
    made.stands(two, ())
    assert standing() == 0


def test_a_custom_health_path_is_used():
    """Original: stored and never used."""
    asked = {"toolset": "true", "toolset-type": "x", "toolset-health-path": "/fine"}
    assert detect(look(service("x", annotations=asked, ports=[80])), SETTINGS).candidate.health_url.endswith("/fine")


def test_the_healthy_flag_becomes_true():
    """Original: never set."""
    well = Observed(result=ProbeResult(outcome=Outcome.OK))
    made = look_at([look(PROMETHEUS)], PROBED, observed=lambda _one: well)
    assert services_of(made)[0].healthy


def test_retries_and_hysteresis_are_used():
    """Original: retries were configured and a single probe decided."""
    assert PROBED.health.attempts == 3  # requests of one probe: tests/e2e/toolset/test_probes.py counts them
    candidate, bad = detect(look(PROMETHEUS), PROBED).candidate, ProbeResult(outcome=Outcome.TIMEOUT)
    stays = [
        admit(candidate, Observed(result=bad, failures=failures), PROBED, incumbent=True).included
        for failures in (1, 2, 3)
    ]
    assert stays == [True, True, False]


def test_probes_run_side_by_side():
    """Original: one after the other, up to n times five seconds."""
    _, probing = make_parts(registry=_registry()).controllers
    assert probing.options.concurrency == 10


def test_an_annotation_is_seen_before_every_detector():
    """Original: the annotation detector ran last, so an annotated my-prometheus was never custom."""
    asked = {"toolset": "true", "toolset-type": "special"}
    found = detect(look(service("my-prometheus", annotations=asked, ports=[9090])), SETTINGS).candidate
    assert (found.type, found.confidence) == ("special", Confidence.ANNOTATION)


@pytest.mark.parametrize("name", ["prometheus-operator", "prometheus-node-exporter", "grafana-image-renderer"])
def test_a_part_of_a_name_is_no_proof(name):
    """Original: every Service whose name held `prometheus` or `grafana` was one."""
    assert detect(look(service(name, ports=[80])), SETTINGS).candidate is None


def test_a_failed_probe_does_not_make_it_something_else():
    """Original: a failed probe fell through to the next detector."""
    failed = Observed(result=ProbeResult(outcome=Outcome.STATUS), failures=5)
    candidate = detect(look(PROMETHEUS), PROBED).candidate
    judged = admit(candidate, failed, PROBED, incumbent=False)
    assert (judged.included, judged.state, candidate.type) == (False, State.UNHEALTHY, "prometheus")


def test_https_is_spoken_where_a_port_says_so():
    """Original: http only."""
    rows = [{"port": 9200, "name": "https"}]
    found = detect(look(service("es", labels={"app": "elasticsearch"}, ports=rows)), SETTINGS).candidate
    assert found.url.startswith("https://")


def test_kubernetes_is_always_there_and_no_services_is_no_empty_file():
    """Original: no kubernetes entry, and `tools: []` without services."""
    base = seen().layout.base
    assert "kubernetes-toolset.yaml" in base
    assert yaml.safe_load(base["custom_toolset.yaml"])["toolsets"]


def test_two_services_of_one_type_do_not_overwrite_each_other():
    """Original: the last one won silently, and its cache key collided across namespaces."""
    other = service("prometheus-server", namespace="prod", labels={"app": "prometheus"}, ports=[("web", 9090)])
    base = seen(PROMETHEUS, other).layout.base
    assert {"prometheus-toolset.yaml", "prometheus-prod-prometheus-server-toolset.yaml"} <= set(base)


def test_the_time_of_generation_is_that_of_the_content():
    """Original: `generated-at` was written at creation only."""
    (first,) = steps(seen(), None)
    meta = OwnedMeta(name=SETTINGS.name, labels={}, annotations=dict(first.desired.annotations))
    base = TargetMap(metadata=meta, data=dict(first.desired.data), owners={US: sorted(first.desired.data)})
    (same,) = plan_target(seen(), Stand(base=base), SETTINGS, manager=US, now="later")
    (other,) = plan_target(seen(PROMETHEUS), Stand(base=base), SETTINGS, manager=US, now="later")
    stamp = "kubernaut.io/generated-at"
    assert same.desired.annotations[stamp] == "now"
    assert other.desired.annotations[stamp] == "later"


def test_there_is_one_prefix_of_metrics_and_one_configmap():
    """Original: three prefixes of metrics and two names of the ConfigMap in its documents."""
    registry = _registry()
    metrics.ToolsetMetrics(registry)
    assert all(family.name.startswith("toolset_") for family in registry.collect())
    assert ToolsetSection().name == "kubernaut-toolset-config"


def test_all_four_vocabularies_of_annotations_are_read():
    """Original: four incompatible vocabularies in code and documents."""
    for asked in (
        {"toolset": "true", "toolset-type": "loki"},
        {"toolset": "enabled", "tool-type": "loki"},
        {"discoverable": "true", "tool-type": "loki"},
        {"toolset": "loki"},
    ):
        read = read_annotations({f"kubernaut.io/{key}": text for key, text in asked.items()}, "kubernaut.io/")
        assert (read.opted_in, read.type) == (True, "loki")


def test_both_schemas_of_overrides_are_read():
    """Original: two schemas in its documents."""
    by_name = seen(overrides="custom-loki: {url: 'http://l:1'}").layout.base["custom_toolset.yaml"]
    as_list = seen(overrides="tools: [{name: l, type: loki, endpoint: 'http://l:1'}]").layout.base[
        "custom_toolset.yaml"
    ]
    for text in (by_name, as_list):
        assert yaml.safe_load(text)["toolsets"]["grafana/loki"]["config"] == {"api_url": "http://l:1"}


def test_configmaps_are_written_by_name_and_created_by_a_rule_of_its_own():
    """Original: write access to all ConfigMaps, and `create` under resourceNames, which never matches."""
    rows = [rule for rule in rules(ToolsetSection()) if "configmaps" in rule.resources]
    writing = [rule for rule in rows if {"patch", "update", "delete"} & set(rule.verbs)]
    creating = [rule for rule in rows if "create" in rule.verbs]
    assert all("kubernaut-toolset-config" in rule.resource_names for rule in writing)
    assert [(list(rule.verbs), list(rule.resource_names)) for rule in creating] == [(["create"], [])]
    assert rights.MAX_PARTS >= 1


def _registry():
    from prometheus_client import CollectorRegistry

    return CollectorRegistry()
