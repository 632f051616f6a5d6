"""One test per defect of the originals: the behaviour they had is named in the docstring, ours is shown right."""

from __future__ import annotations

import asyncio

import pytest
import yaml
from msgspec.structs import replace

from steersman.errors import ConfigError
from steersman.kube.api.errors import Conflict
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import OwnedMeta
from steersman.operators.toolset.api.annotations import read_annotations
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection, TypeConfig
from steersman.operators.toolset.api.crd import TargetConfigMap
from steersman.operators.toolset.discovery.health import (
    HealthRecord,
    HealthState,
    ProbeOutcome,
    ProbeResult,
    decide_inclusion,
)
from steersman.operators.toolset.discovery.matching import Confidence, detect
from steersman.operators.toolset.reconcile import apply, metrics
from steersman.operators.toolset.reconcile.current import CurrentState, current_state
from steersman.operators.toolset.reconcile.plan import Operation, plan_target
from steersman.operators.toolset.reconcile.rbac import rules
from steersman.operators.toolset.reconcile.setup import make_bundle
from steersman.operators.toolset.reconcile.status import services_of
from steersman.operators.toolset.render.conformance import check_holmes
from steersman.testing import settle
from tests.support.toolset.services import desired_from, parsed, service

SETTINGS = ToolsetSection(health_check=HealthConfig(enabled=False)).settings()
PROBED = ToolsetSection().settings()
PROMETHEUS = service("prometheus-server", labels={"app": "prometheus"}, ports=[("web", 9090)])
US = "steersman-toolset"


def rendered(*manifests, settings=SETTINGS, **options):
    return desired_from(map(parsed, manifests), settings, **options)


def target(data, **fields):
    return TargetConfigMap(metadata=OwnedMeta(name=SETTINGS.name, namespace=SETTINGS.namespace), data=data, **fields)


def steps(desired, base, now="now"):
    return plan_target(desired, CurrentState(base=base), SETTINGS, manager=US, now=now).steps


# -- the design document ---------------------------------------------------------------------------------------------


async def test_a_retry_plans_again_instead_of_sending_the_same_stale_object(clock):
    """Seed: every retry sent the object that had just been refused, so none could succeed."""
    revisions, sent = iter([1, 2, 3]), []

    async def attempt(_number):
        sent.append(next(revisions))
        if len(sent) < 3:
            raise Conflict("stale")

    task = asyncio.create_task(apply.retry_on_conflict(clock, attempt, met=lambda: None))
    await clock.advance(10)
    await task
    assert sent == [1, 2, 3]


async def test_there_is_no_sleep_after_the_last_attempt(clock):
    """Seed: it slept four seconds before it gave up."""

    async def attempt(_number):
        raise Conflict("stale")

    task = asyncio.create_task(apply.retry_on_conflict(clock, attempt, met=lambda: None))
    await clock.advance(3)
    assert task.done()
    assert isinstance(task.exception(), apply.ConflictsExhausted)
    assert apply.RETRY_LATER_SECONDS == 4.0


def test_the_desired_state_is_computed_at_every_reconcile():
    """Seed: the desired state was captured once at the start and never refreshed."""
    assert "prometheus-toolset.yaml" not in rendered().layout.base
    assert "prometheus-toolset.yaml" in rendered(PROMETHEUS).layout.base


def test_the_configmap_is_watched_and_never_polled():
    """Seed: "watch" was a GET every 30 seconds."""
    keeping, probing = make_bundle(registry=_registry()).controllers
    assert {watch.kind.plural for watch in keeping.watched} == {"services", "endpointslices"}
    assert keeping.schedules == probing.schedules == ()


async def test_sleeps_end_with_the_process(clock):
    """Seed: time.Sleep ignored cancellation."""
    tried = []

    async def attempt(number):
        tried.append(number)
        raise Conflict("stale")

    task = asyncio.create_task(apply.retry_on_conflict(clock, attempt, met=lambda: None))
    await settle()
    assert not task.done()  # it waits for its second attempt…
    task.cancel()
    await settle()
    assert (task.cancelled(), tried) == (True, [1])  # …and no longer, although no time has passed


def test_an_administrators_own_key_is_never_deleted():
    """Seed: every key but overrides.yaml that was not desired was deleted."""
    desired = rendered()
    base = target({**desired.layout.base, "notes.txt": "mine"}, owners={US: sorted(desired.layout.base)})
    (step,) = steps(desired, base)
    assert step.plan.prune == ()
    assert "foreign:notes.txt" in step.plan.drift


def test_overrides_survive_the_deletion_of_the_configmap():
    """Seed and original: a deleted ConfigMap came back without its overrides."""
    last = target({"overrides.yaml": "mine", "kubernetes-toolset.yaml": "x"})
    watched = current_state(None, {}, None, last=last, settings=SETTINGS)
    unwatched = current_state(None, {}, target({"overrides.yaml": "mine"}), settings=SETTINGS)
    assert watched.overrides == unwatched.overrides == "mine"
    assert watched.existed
    assert unwatched.existed


def test_what_is_too_large_is_split_instead_of_refused():
    """Seed: the size was checked and the ConfigMap rejected."""
    many = [service(f"p{n}", labels={"app": "prometheus"}, ports=[9090]) for n in range(20)]
    layout = rendered(*many, settings=replace(SETTINGS, max_bytes=3000)).layout
    assert layout.split
    assert not layout.skipped


def test_labels_annotations_and_immutability_are_part_of_the_plan():
    """Seed: no handling of labels, annotations, binaryData or immutable."""
    last = target({"kubernetes-toolset.yaml": "x"}, binary_data={"logo": "AAEC"})
    deleted = current_state(None, {}, None, last=last, settings=SETTINGS)
    assert deleted.foreign_binary == {"logo": "AAEC"}
    desired = rendered()
    good = target(dict(desired.layout.base), owners={US: sorted(desired.layout.base)})
    (step,) = steps(desired, good)
    assert any(difference.startswith("metadata:") for difference in step.plan.drift)
    (step,) = steps(desired, replace(good, immutable=True))
    assert step.plan.blocked


def test_the_merge_with_overrides_happens_on_our_side():
    """Seed: it relied on a merge that the consumer does not do."""
    text = rendered(PROMETHEUS, overrides="prometheus: {url: 'http://mine.example:9090'}").layout.base[
        "custom_toolset.yaml"
    ]
    config = yaml.safe_load(text)["toolsets"]["prometheus/metrics"]["config"]
    assert config == {"prometheus_url": "http://mine.example:9090"}


def test_the_output_can_be_loaded_by_the_consumer():
    """Seed: files with `toolset:` at the top break the consumer's whole load."""
    base = rendered(PROMETHEUS).layout.base
    assert check_holmes(base["custom_toolset.yaml"]) == ()
    assert check_holmes(base["prometheus-toolset.yaml"])


def test_placeholders_are_in_the_consumers_format():
    """Seed: `${VAR}` is not expanded by the consumer."""
    text = rendered(overrides="custom-grafana: {url: 'http://g', apiKey: '${TOKEN}'}").layout.base[
        "custom_toolset.yaml"
    ]
    assert "{{ env.TOKEN }}" in text
    assert "${" not in text


# -- the original's code ----------------------------------------------------------------------------------------------


def test_nothing_is_written_when_nothing_differs():
    """Original: each cycle replaced all data and always wrote."""
    desired = rendered(PROMETHEUS)
    (first,) = steps(desired, None)
    wanted = first.desired
    meta = OwnedMeta(name=SETTINGS.name, labels=dict(wanted.labels), annotations=dict(wanted.annotations))
    written = TargetConfigMap(metadata=meta, data=dict(wanted.data), owners={US: sorted(wanted.data)})
    (again,) = steps(desired, written, now="much later")
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
    assert detect(parsed(PROMETHEUS), settings).reason == "OutOfScope"


def test_metrics_are_incremented():
    """Original: its metrics were defined and never incremented."""
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    made.count_drift(["missing:a", "modified:b", "extra:c", "deleted", "foreign:d"])
    for kind in ("missing_key", "modified_value", "extra_key", "deleted"):
        assert registry.get_sample_value("toolset_configmap_drift_detected_total", {"drift_type": kind}) == 1


def test_services_are_a_gauge_that_goes_back_to_zero():
    """Original: a counter, which made its own alert for zero services useless."""
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    target = NamespacedName("one", "ns")
    labels = {"service_type": "prometheus", "namespace": "a"}
    made.set_observation(
        target, metrics.Observation(included=frozenset({("prometheus", "a", "x"), ("prometheus", "a", "y")}))
    )
    assert registry.get_sample_value("toolset_services_discovered", labels) == 2
    made.set_observation(target, metrics.Observation())
    assert registry.get_sample_value("toolset_services_discovered", labels) == 0


def test_namespaces_that_come_and_go_leave_no_series_behind():
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    for number in range(5):
        found = frozenset({("prometheus", "stays", "x"), ("prometheus", f"team-{number}", "x")})
        made.set_observation(NamespacedName("one", "ns"), metrics.Observation(included=found))
    shown = [sample for family in made.services.collect() for sample in family.samples]
    assert {sample.labels["namespace"] for sample in shown} == {"stays", "team-4"}


def test_gauges_show_all_targets_together_and_each_service_once():
    """Two targets set each other's gauges to zero, in turns."""
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    one, two = NamespacedName("one", "ns"), NamespacedName("two", "ns")
    shared, own = ("prometheus", "a", "shared"), ("prometheus", "a", "own")
    first = metrics.Observation(
        included=frozenset({shared, own}),
        excluded=frozenset({("loki", "a", "x")}),
        override_conflicts=1,
        parts=2,
        detectors={"loki": False},
    )
    second = metrics.Observation(included=frozenset({shared}), override_conflicts=1, detectors={"loki": True})

    def shown():
        names = {
            "toolset_services_discovered": {"service_type": "prometheus", "namespace": "a"},
            "toolset_unhealthy_services": {"service_type": "loki"},
            "toolset_override_conflicts": {},
            "toolset_configmap_parts": {},
            "toolset_detectors_health_status": {"detector_type": "loki"},
            "toolset_configmap_size_bytes": {"part": "0"},
        }
        return [registry.get_sample_value(name, labels) for name, labels in names.items()]

    made.set_observation(one, first)
    made.set_sizes(one, {"0": 70, "-1": 5})
    for _ in range(2):
        made.set_observation(two, second)
        made.set_sizes(two, {"0": 50})
        assert shown() == [2, 1, 2, 2, 0, 70]
        made.set_observation(one, first)
        made.set_sizes(one, {"0": 70})
    made.forget(one)
    assert shown() == [1, 0, 1, 0, 1, 50]
    assert registry.get_sample_value("toolset_configmap_size_bytes", {"part": "-1"}) == 0


def test_a_problem_is_shown_for_as_long_as_it_stands():
    """Original: counted what went wrong, so that nobody could see that it still does."""
    registry = _registry()
    made = metrics.ToolsetMetrics(registry)
    one, two = NamespacedName("one", "ns"), NamespacedName("two", "ns")

    def standing():
        return registry.get_sample_value("toolset_problems", {"reason": "OverridesInvalid"})

    made.set_problems(one, ["OverridesInvalid", "NotLoadable"])
    made.set_problems(two, ["OverridesInvalid"])
    assert standing() == 2
    made.set_problems(one, ["NotLoadable"])
    assert standing() == 1
    made.set_problems(two, ())
    assert standing() == 0


def test_a_custom_health_path_is_used():
    """Original: stored and never used."""
    asked = {"toolset": "true", "toolset-type": "x", "toolset-health-path": "/fine"}
    assert detect(parsed(service("x", annotations=asked, ports=[80])), SETTINGS).candidate.health_url.endswith("/fine")


def test_the_healthy_flag_becomes_true():
    """Original: never set."""
    well = HealthRecord(result=ProbeResult(outcome=ProbeOutcome.OK))
    found = parsed(PROMETHEUS)
    made = desired_from([found], PROBED, health={found.ref: well})
    assert services_of(made.discovery)[0].healthy


def test_retries_and_hysteresis_are_used():
    """Original: retries were configured and a single probe decided."""
    assert PROBED.health.attempts == 3  # requests of one probe: tests/e2e/toolset/test_probes.py counts them
    candidate, bad = detect(parsed(PROMETHEUS), PROBED).candidate, ProbeResult(outcome=ProbeOutcome.TIMEOUT)
    stays = [
        decide_inclusion(candidate, HealthRecord(result=bad, failures=failures), PROBED, incumbent=True).included
        for failures in (1, 2, 3)
    ]
    assert stays == [True, True, False]


def test_probes_run_side_by_side():
    """Original: one after the other, up to n times five seconds."""
    _, probing = make_bundle(registry=_registry()).controllers
    assert probing.options.concurrency == 10


def test_an_annotation_is_seen_before_every_detector():
    """Original: the annotation detector ran last, so an annotated my-prometheus was never custom."""
    asked = {"toolset": "true", "toolset-type": "special"}
    found = detect(parsed(service("my-prometheus", annotations=asked, ports=[9090])), SETTINGS).candidate
    assert (found.type, found.confidence) == ("special", Confidence.ANNOTATION)


@pytest.mark.parametrize("name", ["prometheus-operator", "prometheus-node-exporter", "grafana-image-renderer"])
def test_a_part_of_a_name_is_not_a_proof(name):
    """Original: every Service whose name held `prometheus` or `grafana` was one."""
    assert detect(parsed(service(name, ports=[80])), SETTINGS).candidate is None


def test_a_failed_probe_does_not_make_it_something_else():
    """Original: a failed probe fell through to the next detector."""
    failed = HealthRecord(result=ProbeResult(outcome=ProbeOutcome.STATUS), failures=5)
    candidate = detect(parsed(PROMETHEUS), PROBED).candidate
    judged = decide_inclusion(candidate, failed, PROBED, incumbent=False)
    assert (judged.included, judged.state, candidate.type) == (False, HealthState.UNHEALTHY, "prometheus")


def test_https_is_used_where_a_port_says_so():
    """Original: http only."""
    rows = [{"port": 9200, "name": "https"}]
    found = detect(parsed(service("es", labels={"app": "elasticsearch"}, ports=rows)), SETTINGS).candidate
    assert found.url.startswith("https://")


def test_kubernetes_is_always_there_and_no_services_is_no_empty_file():
    """Original: no kubernetes entry, and `tools: []` without services."""
    base = rendered().layout.base
    assert "kubernetes-toolset.yaml" in base
    assert yaml.safe_load(base["custom_toolset.yaml"])["toolsets"]


def test_two_services_of_one_type_do_not_overwrite_each_other():
    """Original: the last one won silently, and its cache key collided across namespaces."""
    other = service("prometheus-server", namespace="prod", labels={"app": "prometheus"}, ports=[("web", 9090)])
    base = rendered(PROMETHEUS, other).layout.base
    assert {"prometheus-toolset.yaml", "prometheus-prod-prometheus-server-toolset.yaml"} <= set(base)


def test_the_time_of_generation_is_that_of_the_content():
    """Original: `generated-at` was written at creation only."""
    (first,) = steps(rendered(), None)
    meta = OwnedMeta(name=SETTINGS.name, labels={}, annotations=dict(first.desired.annotations))
    base = TargetConfigMap(metadata=meta, data=dict(first.desired.data), owners={US: sorted(first.desired.data)})
    (same,) = steps(rendered(), base, now="later")
    (other,) = steps(rendered(PROMETHEUS), base, now="later")
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
    by_name = rendered(overrides="custom-loki: {url: 'http://l:1'}").layout.base["custom_toolset.yaml"]
    as_list = rendered(overrides="tools: [{name: l, type: loki, endpoint: 'http://l:1'}]").layout.base[
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


def test_rights_are_on_the_configmaps_that_the_configuration_names_with_their_parts_and_copies():
    """A ToolsetConfig that named another ConfigMap was refused by the server, and so was a ninth part."""

    def names(**section):
        rows = [rule for rule in rules(ToolsetSection(**section)) if "patch" in rule.verbs]
        return [set(rule.resource_names) for rule in rows if "configmaps" in rule.resources]

    assert names(name="a", config_maps=["b"], max_parts=2) == [
        {"a", "a-1", "a-2", "a-overrides-backup", "b", "b-1", "b-2", "b-overrides-backup"}
    ]
    assert "kubernaut-toolset-config-10" in names(max_parts=10)[0]
    assert names(name="", config_maps=["*"]) == [set()]  # on all
    assert names(name="") == []  # on none, and not on all


@pytest.mark.parametrize(
    ("section", "field"), [({"max_parts": 0}, "maxParts"), ({"config_maps": ["A_b"]}, "configMaps")]
)
def test_rights_that_make_no_sense_are_refused_with_their_field(section, field):
    with pytest.raises(ConfigError, match=field):
        ToolsetSection(**section).settings()


def test_parts_are_named_in_the_index_and_never_more_than_there_are_rights_on():
    """The index listed parts by number only, and a part too many stopped all of them."""
    large = {"labels": {"app": "prometheus"}, "annotations": {"toolset-path": "/" + "x" * 1500}, "ports": [9090]}
    services = [parsed(service(f"p{number:02}", **large)) for number in range(10)]

    def laid_out(**section):
        health = HealthConfig(enabled=False)
        settings = ToolsetSection(max_bytes=5000, health_check=health, **section).settings()
        return desired_from(services, settings)

    enough = laid_out(max_parts=100)
    rows = yaml.safe_load(enough.layout.base["index.yaml"])["parts"]
    assert len(rows) > 8
    assert not enough.is_oversized
    assert [row["configMap"] for row in rows] == [f"kubernaut-toolset-config-{row['part']}" for row in rows]
    few = laid_out(max_parts=2)
    assert sorted(few.layout.parts) == [1, 2]
    [told, *_] = [problem.message for problem in few.problems if problem.reason == "SizeLimit"]
    assert "all parts are full; raise toolset.maxParts" in told
    written = {key for part in few.layout.parts.values() for key in part}
    assert written.isdisjoint(few.layout.left_over)
    assert len(few.layout.left_over) + len(written - {"custom_toolset.yaml"}) == 10


def _registry():
    from prometheus_client import CollectorRegistry

    return CollectorRegistry()
