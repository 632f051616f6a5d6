"""The three-way plan, the layout and the conflict schedule."""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given, settings
from msgspec.structs import replace

from steersman.kube.errors import Conflict
from steersman.kube.objects import OwnedMeta
from steersman.operators.toolset.apply import ConflictsExhausted, on_schedule
from steersman.operators.toolset.conformance import check_holmes
from steersman.operators.toolset.joining import join_files
from steersman.operators.toolset.layout import content_hash, size_of
from steersman.operators.toolset.look import Standing, look_at
from steersman.operators.toolset.objects import TargetMap
from steersman.operators.toolset.plan import Desired, Operation, plan_object, stamped
from steersman.operators.toolset.stand import Stand
from steersman.operators.toolset.steps import drift_of, plan_target
from steersman.operators.toolset.types import ExtraKeys, HealthConfig, ToolsetSection
from steersman.testing.clock import settle
from steersman.testing.toolsetting import look, service

US = "steersman-toolset"
SETTINGS = ToolsetSection(health_check=HealthConfig(enabled=False)).settings()
DESIRED = Desired(
    name="c", namespace="n", data={"a-toolset.yaml": "a: 1\n"}, labels={"l": "1"}, annotations={}, prefix="k/"
)


def current(data, *, owned=None, **fields):
    desired = stamped(DESIRED, None, now="then")
    meta = OwnedMeta(name="c", namespace="n", labels={"l": "1"}, annotations=dict(desired.annotations))
    owners = {US: sorted(DESIRED.data) if owned is None else owned}
    return TargetMap(metadata=meta, data=data, owners=owners, **fields)


def plan(now, *, extra_keys=ExtraKeys.PRUNE_MANAGED, **options):
    desired = stamped(DESIRED, now, now="now")
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
def test_drift_is_reported_in_the_words_of_the_original(data, owned, drift):
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
    assert stamped(DESIRED, now, now="now").annotations["k/generated-at"] == "then"
    other = replace(DESIRED, data={"a-toolset.yaml": "other"})
    assert stamped(other, now, now="now").annotations["k/generated-at"] == "now"


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


def applied(steps, stand):
    """What a server holds after a plan: our keys by apply, other people's as they were."""
    parts, base = dict(stand.parts), stand.base
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
        made = TargetMap(metadata=meta, data=data, owners={US: sorted(step.desired.data)})
        if number:
            parts[int(number)] = made
        else:
            base = made
    return replace(stand, base=base, parts=parts, existed=False)


def standing(stand):
    return Standing(text=stand.text, overrides=stand.overrides, others=size_of(stand.foreign), places=stand.places)


def stand_after(stand):
    from steersman.operators.toolset.plan import manages

    data = (stand.base.data or {}) if stand.base else {}
    return replace(stand, foreign={key: text for key, text in data.items() if not manages(key)})


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
        look(service(f"{name}-{kind}", namespace=ns, labels={"app": kind}, ports=[KINDS[kind]]))
        for kind, ns, name in rows
    ]


@given(rows=ROWS, overrides=TEXTS, limit=st.sampled_from([1500, 4000, 900_000]), seed=st.randoms())
@settings(deadline=None, max_examples=60)
def test_after_a_plan_was_applied_the_next_plan_is_empty_and_overrides_keep_their_bytes(rows, overrides, limit, seed):
    configured = replace(SETTINGS, max_bytes=limit)
    stand = Stand()
    if overrides is not None:
        meta = OwnedMeta(name="kubernaut-toolset-config")
        stand = stand_after(
            Stand(base=TargetMap(metadata=meta, data={"overrides.yaml": overrides, "mine": "x"}, owners={}))
        )
    for _ in range(2):
        seen = look_at(services(rows), configured, standing=standing(stand))
        if seen.oversized:
            return
        stand = stand_after(applied(plan_target(seen, stand, configured, manager=US, now="t"), stand))
        again = look_at(services(rows), configured, standing=standing(stand))
        steps = plan_target(again, stand, configured, manager=US, now="later")
        assert drift_of(steps) == ()
        assert all(step.plan.operation is Operation.NOOP for step in steps)
        if overrides is not None:
            assert stand.base.data["overrides.yaml"] == overrides
            assert stand.base.data["mine"] == "x"
        rows = list(rows)
        seed.shuffle(rows)
        rows = rows[: len(rows) // 2]


@given(rows=ROWS, seed=st.randoms())
@settings(deadline=None, max_examples=60)
def test_the_same_services_in_any_order_give_the_same_bytes(rows, seed):
    one = look_at(services(rows), SETTINGS).layout.base
    other = list(rows)
    seed.shuffle(other)
    two = look_at(services(other), SETTINGS).layout.base
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
    whole = look_at(services(rows), SETTINGS).layout
    cut = look_at(services(rows), replace(SETTINGS, max_bytes=limit)).layout
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
    size = size_of(look_at(rows, SETTINGS).layout.base)
    assert not look_at(rows, replace(SETTINGS, max_bytes=size)).layout.split
    assert look_at(rows, replace(SETTINGS, max_bytes=size - 1)).layout.split


def test_a_fragment_larger_than_a_configmap_is_left_out_whole_and_told():
    rows = services([("prometheus", "a", "x"), ("loki", "a", "x")])
    made = look_at(rows, replace(SETTINGS, max_bytes=400))
    assert made.layout.skipped
    assert any(problem.reason == "SizeLimit" for problem in made.problems)


# -- conflicts ---------------------------------------------------------------------------------------------------------


class Rival:
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
    rival, met = Rival(clock, conflicts), []
    task = asyncio.create_task(on_schedule(clock, rival.attempt, met=lambda: met.append(1)))
    await clock.advance(10)
    assert await task == "written"
    assert rival.attempts == when
    assert len(met) == conflicts


async def test_the_third_conflict_gives_up_at_once_without_a_useless_sleep(clock):
    rival = Rival(clock, 99)
    task = asyncio.create_task(on_schedule(clock, rival.attempt, met=lambda: None))
    await clock.advance(3)
    await settle()
    with pytest.raises(ConflictsExhausted):
        await task
    assert rival.attempts == [0, 1, 3]


async def test_a_sleep_between_attempts_ends_when_the_process_does(clock):
    rival = Rival(clock, 99)
    task = asyncio.create_task(on_schedule(clock, rival.attempt, met=lambda: None))
    await clock.advance(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
