"""The three-way plan, the layout and the conflict schedule."""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, settings
from msgspec.structs import replace

from steersman.kube.api.errors import Conflict
from steersman.kube.api.objects import OwnedMeta
from steersman.operators.toolset.api.config import ExtraKeys, HealthConfig, ToolsetSection, TypeConfig
from steersman.operators.toolset.api.crd import TargetConfigMap
from steersman.operators.toolset.reconcile.apply import ConflictsExhausted, retry_on_conflict
from steersman.operators.toolset.reconcile.current import (
    CurrentState,
    is_managed_key,
    record_services,
    recorded_services,
)
from steersman.operators.toolset.reconcile.plan import DesiredConfigMap, Operation, plan_object, plan_target, stamp
from steersman.operators.toolset.render.conformance import check_holmes
from steersman.operators.toolset.render.layout import content_hash, size_of
from steersman.operators.toolset.render.merge import join_files
from steersman.testing.clock import settle
from tests.support.toolset.services import desired_from, parsed, service

US = "steersman-toolset"
SETTINGS = ToolsetSection(health_check=HealthConfig(enabled=False)).settings()
DESIRED = DesiredConfigMap(
    name="c", namespace="n", data={"a-toolset.yaml": "a: 1\n"}, labels={"l": "1"}, annotations={}, prefix="k/"
)


def current(data, *, owned=None, **fields):
    desired = stamp(DESIRED, None, now="then")
    meta = OwnedMeta(name="c", namespace="n", labels={"l": "1"}, annotations=dict(desired.annotations))
    owners = {US: sorted(DESIRED.data) if owned is None else owned}
    return TargetConfigMap(metadata=meta, data=data, owners=owners, **fields)


def plan(now, *, extra_keys=ExtraKeys.PRUNE_MANAGED, **options):
    desired = stamp(DESIRED, now, now="now")
    return plan_object(now, desired, manager=US, extra_keys=extra_keys, **options)


def test_no_drift_means_no_write():
    made = plan(current(dict(DESIRED.data)))
    assert (made.operation, made.write, made.prune, made.drift) == (Operation.NOOP, False, (), ())


@pytest.mark.parametrize(
    ("data", "owned", "drift"),
    [
        ({}, [], ["missing:a-toolset.yaml"]),
        ({"a-toolset.yaml": "b: 1\n"}, None, ["modified:a-toolset.yaml"]),
        ({"a-toolset.yaml": "{a:   1}"}, None, ["cosmetic:a-toolset.yaml"]),
        ({**DESIRED.data, "x-toolset.yaml": "x"}, None, ["extra:x-toolset.yaml"]),
        ({**DESIRED.data, "index.yaml": "x"}, None, ["extra:index.yaml"]),
        ({**DESIRED.data, "odd": "x"}, ["a-toolset.yaml", "odd"], ["extra:odd"]),
        ({**DESIRED.data, "notes": "x"}, None, ["foreign:notes"]),
        ({**DESIRED.data, "overrides.yaml": "x"}, None, []),
        (dict(DESIRED.data), [], ["ownership:a-toolset.yaml"]),
    ],
)
def test_drift_is_reported_in_the_originals_format(data, owned, drift):
    assert list(plan(current(data, owned=owned)).drift) == drift


def test_cosmetic_and_foreign_are_not_counted_as_drift():
    made = plan(current({"a-toolset.yaml": "{a: 1}", "notes": "x"}))
    assert made.counted == ()
    assert made.write


def test_a_stripped_label_and_a_changed_hash_are_drift_of_metadata():
    now = current(dict(DESIRED.data))
    now.metadata.labels = {}
    now.metadata.annotations["k/content-hash"] = "0"
    assert plan(now).drift == ("metadata:k/content-hash", "metadata:l")


def test_the_time_of_generation_changes_only_with_the_hash():
    now = current(dict(DESIRED.data))
    assert stamp(DESIRED, now, now="now").annotations["k/generated-at"] == "then"
    other = replace(DESIRED, data={"a-toolset.yaml": "other"})
    assert stamp(other, now, now="now").annotations["k/generated-at"] == "now"


def test_a_deleted_object_is_one_drift_and_a_new_one_is_missing_keys():
    assert plan(None, existed=True).drift == ("deleted",)
    assert plan(None).drift == ("missing:a-toolset.yaml",)


def test_an_immutable_object_with_drift_is_blocked_and_without_is_left_alone():
    assert plan(current({}, immutable=True)).blocked
    assert not plan(current(dict(DESIRED.data), immutable=True)).drift


@pytest.mark.parametrize(
    ("policy", "pruned"),
    [
        (ExtraKeys.PRUNE_MANAGED, ("x-toolset.yaml",)),
        (ExtraKeys.PRUNE_ALL, ("notes", "x-toolset.yaml")),
        (ExtraKeys.KEEP, ()),
    ],
)
def test_extra_keys_by_policy(policy, pruned):
    now = current({**DESIRED.data, "x-toolset.yaml": "", "notes": "", "overrides.yaml": "o"})
    assert plan(now, extra_keys=policy).prune == pruned


# -- a whole target ----------------------------------------------------------------------------------------------------


def applied(steps, state):
    """What a server holds after a plan: our keys by apply, other people's as they were."""
    parts, base = dict(state.parts), state.base
    for step in steps:
        number = step.desired.name.removeprefix("kubernaut-toolset-config").lstrip("-")
        if step.plan.operation is Operation.DELETE:
            del parts[int(number)]
            continue
        if not (step.plan.write or step.plan.prune):
            continue
        old = dict(step.current.data or {}) if step.current else {}
        owned = set((step.current.owners or {}).get(US, ())) if step.current else set()
        data = {key: text for key, text in old.items() if key not in owned and key not in step.plan.prune}
        data |= step.desired.data
        known = step.current.metadata if step.current else OwnedMeta(name=step.desired.name)
        meta = replace(
            known,
            labels={**(known.labels or {}), **step.desired.labels},
            annotations={**(known.annotations or {}), **step.desired.annotations},
        )
        made = TargetConfigMap(metadata=meta, data=data, owners={US: sorted(step.desired.data)})
        if number:
            parts[int(number)] = made
        else:
            base = made
    return replace(state, base=base, parts=parts, existed=False)


def with_foreign(state):
    data = (state.base.data or {}) if state.base else {}
    return replace(state, foreign={key: text for key, text in data.items() if not is_managed_key(key)})


KINDS = {"prometheus": 9090, "grafana": 3000, "loki": 3100, "elasticsearch": 9200, "jaeger": 16686, "pyroscope": 4040}
ROWS = st.lists(
    st.tuples(st.sampled_from(sorted(KINDS)), st.sampled_from(["a", "a-b", "b"]), st.sampled_from(["x", "b-x", "y.z"])),
    max_size=12,
    unique=True,
)
TEXTS = st.sampled_from(
    [
        None,
        "",
        "prometheus: {url: 'http://o.example'}\n",
        "grafana: null",
        "custom-loki: {url: 'http://l'}",
        "a: [",
        "x",
    ]
)


def services(rows):
    return [
        parsed(service(f"{name}-{kind}", namespace=ns, labels={"app": kind}, ports=[KINDS[kind]]))
        for kind, ns, name in rows
    ]


@given(rows=ROWS, overrides=TEXTS, limit=st.sampled_from([1500, 4000, 900_000]), seed=st.randoms())
@settings(deadline=None, max_examples=60)
def test_after_a_plan_was_applied_the_next_plan_is_empty_and_overrides_keep_their_bytes(rows, overrides, limit, seed):
    configured = replace(SETTINGS, max_bytes=limit)
    state = CurrentState()
    if overrides is not None:
        meta = OwnedMeta(name="kubernaut-toolset-config")
        state = with_foreign(
            CurrentState(
                base=TargetConfigMap(metadata=meta, data={"overrides.yaml": overrides, "mine": "x"}, owners={})
            )
        )
    for _ in range(2):
        desired = desired_from(services(rows), configured, current=state)
        if desired.is_oversized:
            return
        state = with_foreign(applied(plan_target(desired, state, configured, manager=US, now="t").steps, state))
        again = desired_from(services(rows), configured, current=state)
        plan = plan_target(again, state, configured, manager=US, now="later")
        assert plan.drift == ()
        assert all(step.plan.operation is Operation.NOOP for step in plan.steps)
        if overrides is not None:
            assert state.base.data["overrides.yaml"] == overrides
            assert state.base.data["mine"] == "x"
        rows = list(rows)
        seed.shuffle(rows)
        rows = rows[: len(rows) // 2]


@given(rows=ROWS, seed=st.randoms())
@settings(deadline=None, max_examples=60)
def test_the_same_services_in_any_order_give_the_same_bytes(rows, seed):
    one = desired_from(services(rows), SETTINGS).layout.base
    other = list(rows)
    seed.shuffle(other)
    two = desired_from(services(other), SETTINGS).layout.base
    assert one == two
    assert content_hash(one) == content_hash(two)
    assert len({key for key in one if key.endswith("-toolset.yaml")}) == len(rows) + 1
    for text in one.values():
        assert text.endswith("\n")
        assert "\r" not in text
        assert yaml.safe_load(text)


@given(rows=ROWS, limit=st.sampled_from([1200, 1800, 3000]))
@settings(deadline=None, max_examples=40)
def test_every_part_fits_loads_and_joined_they_say_what_one_file_would(rows, limit):
    whole = desired_from(services(rows), SETTINGS).layout
    cut = desired_from(services(rows), replace(SETTINGS, max_bytes=limit)).layout
    if not cut.split or cut.skipped:
        return
    for part in cut.parts.values():
        assert size_of(part) <= limit
        assert check_holmes(part["custom_toolset.yaml"]) == ()
    texts = [cut.base["custom_toolset.yaml"], *(part["custom_toolset.yaml"] for part in cut.parts.values())]
    joined, one = yaml.safe_load(join_files(texts)), yaml.safe_load(whole.base["custom_toolset.yaml"])
    assert set(joined["toolsets"]) == set(one["toolsets"])
    keys = [key for part in cut.parts.values() for key in part if key != "custom_toolset.yaml"]
    assert sorted(keys) == sorted(set(whole.base) - {"custom_toolset.yaml", "kubernetes-toolset.yaml"})


def test_exactly_the_limit_is_fine_and_one_byte_more_is_split():
    rows = services([("prometheus", "a", "x")])
    size = size_of(desired_from(rows, SETTINGS).layout.base)
    assert not desired_from(rows, replace(SETTINGS, max_bytes=size)).layout.split
    assert desired_from(rows, replace(SETTINGS, max_bytes=size - 1)).layout.split


def test_a_fragment_larger_than_a_configmap_is_left_out_whole_and_reported():
    rows = services([("prometheus", "a", "x"), ("loki", "a", "x")])
    made = desired_from(rows, replace(SETTINGS, max_bytes=400))
    assert made.layout.skipped
    assert any(problem.reason == "SizeLimit" for problem in made.problems)


# -- conflicts ---------------------------------------------------------------------------------------------------------


class ConflictingWriter:
    """Writes between our read and our write, some times."""

    def __init__(self, clock, conflicts):
        self.clock = clock
        self.conflicts = conflicts
        self.attempts = []

    async def attempt(self, number):
        self.attempts.append(self.clock.monotonic() - 1000)
        if number <= self.conflicts:
            raise Conflict("the object has been modified")
        return "written"


@pytest.mark.parametrize(("conflicts", "when"), [(0, [0]), (1, [0, 1]), (2, [0, 1, 3])])
async def test_conflicts_are_met_again_after_one_and_two_seconds(clock, conflicts, when):
    writer, met = ConflictingWriter(clock, conflicts), []
    task = asyncio.create_task(retry_on_conflict(clock, writer.attempt, met=lambda: met.append(1)))
    await clock.advance(10)
    assert await task == "written"
    assert writer.attempts == when
    assert len(met) == conflicts


async def test_the_third_conflict_gives_up_at_once_without_a_useless_sleep(clock):
    writer = ConflictingWriter(clock, 99)
    task = asyncio.create_task(retry_on_conflict(clock, writer.attempt, met=lambda: None))
    await clock.advance(3)
    await settle()
    with pytest.raises(ConflictsExhausted):
        await task
    assert writer.attempts == [0, 1, 3]


async def test_a_sleep_between_attempts_ends_when_the_process_does(clock):
    writer = ConflictingWriter(clock, 99)
    task = asyncio.create_task(retry_on_conflict(clock, writer.attempt, met=lambda: None))
    await clock.advance(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("record", [None, "x", '[{"unknown": ' + "[" * 100_000])
def test_a_record_of_services_that_cannot_be_read_is_none(record):
    assert recorded_services(record, frozenset({"shop"})) == ()


def test_the_record_of_services_changes_only_with_what_decides_a_match():
    row = TypeConfig(labels="tier!=test", annotations={"team/owner": "sre"})
    section = ToolsetSection(types={"prometheus": row})
    annotations = {"team/owner": "sre", f"{SETTINGS.prefix}enabled": "true"}
    labels = {"app": "prometheus", "tier": "web", "app.kubernetes.io/component": "server"}
    plain = parsed(service("p", labels=labels, annotations=annotations))
    foreign = {"deploy/at": "06:00"}
    noisy = parsed(service("p", labels=labels | foreign, annotations=annotations | foreign))
    record = record_services([plain], section.settings())
    assert record_services([noisy], section.settings()) == record
    (recorded,) = recorded_services(record, frozenset({plain.namespace}))
    assert recorded.annotations == annotations
    assert recorded.labels == labels
