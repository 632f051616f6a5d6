"""Which pods to make and to remove next: rules one by one, and then invariants over random histories."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from steersman.kube.api.types.pods import PodCondition
from steersman.operators.hourglass.api.types import REVISION, TEMPLATE_HASH, further_name, pod_name
from steersman.operators.hourglass.children.replacement import (
    DesiredPods,
    PodHistory,
    is_ready,
    needs_slot,
    next_steps,
    recreation_delay,
)

NOW = 1_800_000_000.0
A, B, C = "a" * 64, "b" * 64, "c" * 64


def desired(template=A, **options):
    return DesiredPods(performer="p", hash=template, image="avs:1", **options)


def removed(steps):
    return {removal.pod.name: removal.reason for removal in steps.remove}


def test_a_new_performer_gets_one_pod_of_the_upstream_name():
    steps = next_steps(desired(), [], PodHistory(), now=NOW)
    assert steps.create == ["performer-p"]
    assert (steps.recreated, steps.upgrading, steps.revision) == (0, False, "")
    assert steps.history == PodHistory(hash=A, created=1)


def test_a_pod_that_is_as_it_should_be_is_left_alone(pod):
    steps = next_steps(desired(), [pod("performer-p", A)], PodHistory(hash=A, created=1), now=NOW)
    assert (steps.create, removed(steps), steps.requeue_after) == ([], {}, None)
    assert not needs_slot(desired(), [pod("performer-p", A)], PodHistory(hash=A, created=1), now=NOW)


def test_a_replacement_needs_a_slot_first_and_then_removes_before_it_creates(pod):
    old, history = pod("performer-p", A), PodHistory(hash=A, created=1)
    asked = next_steps(desired(B), [old], history, now=NOW)
    assert needs_slot(desired(B), [old], history, now=NOW)
    assert (removed(asked), asked.upgrading) == ({}, False)
    with_slot = next_steps(desired(B), [old], history, now=NOW, slot=True)
    assert removed(with_slot) == {"performer-p": "Replaced"}
    assert with_slot.upgrading
    leaving = pod("performer-p", A, deleting=True)
    waiting = next_steps(desired(B), [leaving], replace(history, upgrading=True), now=NOW)
    assert (waiting.create, waiting.upgrading) == ([], True)
    made = next_steps(desired(B), [], replace(history, upgrading=True), now=NOW)
    assert (made.create, made.recreated, made.upgrading) == (["performer-p"], 0, True)


def test_a_flip_back_while_the_old_pod_terminates_ends_with_the_first_template(pod):
    leaving = pod("performer-p", A, deleting=True)
    history = PodHistory(hash=A, created=1, upgrading=True)
    assert next_steps(desired(A), [leaving], history, now=NOW).create == []
    assert next_steps(desired(A), [], history, now=NOW).create == ["performer-p"]


def test_a_pod_that_went_for_a_replacement_was_not_lost_even_when_its_template_comes_back(pod):
    begun = next_steps(desired(B), [pod("performer-p", A)], PodHistory(hash=A, created=1), now=NOW, slot=True)
    back = next_steps(desired(A), [], begun.history, now=NOW)
    assert (back.create, back.recreated) == (["performer-p"], 0)
    assert back.history == PodHistory(hash=A, created=1, upgrading=True)


def test_a_new_pod_that_fails_during_a_replacement_is_made_again_later_and_later(pod):
    history = PodHistory(hash=B, created=1, upgrading=True, recreations=1, last_recreation=NOW - 1)
    steps = next_steps(desired(B), [pod("performer-p", B, phase="Failed")], history, now=NOW)
    assert (removed(steps), steps.requeue_after, steps.upgrading) == ({}, 9.0, True)


def test_a_pod_without_a_hash_and_with_the_right_image_is_adopted_not_replaced(pod):
    given = (desired(), [pod("performer-p", image="avs:1")], PodHistory())
    steps = next_steps(*given, now=NOW)
    assert [child.name for child in steps.adopt] == ["performer-p"]
    assert (removed(steps), steps.create, needs_slot(*given, now=NOW)) == ({}, [], False)


def test_a_pod_without_a_hash_and_with_another_image_is_replaced(pod):
    steps = next_steps(desired(), [pod("performer-p", image="avs:0")], PodHistory(), now=NOW, slot=True)
    assert (steps.adopt, removed(steps)) == ([], {"performer-p": "Replaced"})


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_ended_is_removed_and_made_again_at_once_the_first_time(pod, phase):
    history = PodHistory(hash=A, created=1)
    steps = next_steps(desired(), [pod("performer-p", A, phase=phase)], history, now=NOW)
    assert removed(steps) == {"performer-p": "Failed"}
    made = next_steps(desired(), [], history, now=NOW)
    assert (made.create, made.recreated) == (["performer-p"], 1)
    assert made.history == PodHistory(hash=A, created=1, recreations=1, last_recreation=NOW)


def test_a_pod_lost_again_waits_longer_each_time(pod):
    history = PodHistory(hash=A, created=1, recreations=2, last_recreation=NOW - 5)
    steps = next_steps(desired(), [], history, now=NOW)
    assert (steps.create, steps.requeue_after) == ([], 15.0)
    assert steps.history == history
    later = next_steps(desired(), [], history, now=NOW + 15)
    assert (later.create, later.history.recreations) == (["performer-p"], 3)
    assert [recreation_delay(number) for number in (1, 5, 6, 60, 5000)] == [10, 160, 300, 300, 300]


def test_a_pod_that_lasted_long_is_made_again_at_once():
    history = PodHistory(hash=A, created=1, recreations=9, last_recreation=NOW - 601)
    steps = next_steps(desired(), [], history, now=NOW)
    assert (steps.create, steps.history.recreations) == (["performer-p"], 1)


def test_a_pod_that_waits_for_a_node_is_not_churned_unless_that_is_asked_for(pod):
    waiting = pod("performer-p", A, phase="Pending", created="2020-01-01T00:00:00Z")
    assert removed(next_steps(desired(), [waiting], PodHistory(hash=A, created=1), now=NOW)) == {}
    churn = next_steps(desired(pending_seconds=300.0), [waiting], PodHistory(hash=A, created=1), now=NOW)
    assert removed(churn) == {"performer-p": "PendingTooLong"}


def test_replicas_are_replaced_one_by_one_and_only_while_all_others_serve(pod):
    old = [pod("performer-p", A), pod("performer-p-1", A), pod("performer-p-2", A)]
    history = PodHistory(hash=A, created=3)
    first = next_steps(desired(B, replicas=3), old, history, now=NOW, slot=True)
    assert len(first.remove) == 1
    history = replace(history, upgrading=True)
    refill = next_steps(desired(B, replicas=3), old[1:], history, now=NOW)
    assert (refill.create, removed(refill)) == (["performer-p"], {})
    starting = [pod("performer-p", B, ready=False), *old[1:]]
    assert removed(next_steps(desired(B, replicas=3), starting, refill.history, now=NOW)) == {}
    ready = [pod("performer-p", B), *old[1:]]
    assert len(next_steps(desired(B, replicas=3), ready, refill.history, now=NOW).remove) == 1


def test_scaling_down_removes_those_that_are_not_ready_first(pod):
    pods = [pod("performer-p", A, ready=False), pod("performer-p-1", A), pod("performer-p-2", A)]
    steps = next_steps(desired(replicas=2), pods, PodHistory(hash=A, created=3), now=NOW)
    assert removed(steps) == {"performer-p": "ScaledDown"}
    assert next_steps(desired(replicas=0), pods, PodHistory(hash=A, created=3), now=NOW).remove


def test_scaling_up_is_not_a_recreation(pod):
    steps = next_steps(desired(replicas=3), [pod("performer-p", A)], PodHistory(hash=A, created=1), now=NOW)
    assert (steps.create, steps.recreated) == ([f"performers-p-{A[:10]}-1", f"performers-p-{A[:10]}-2"], 0)


def test_blue_green_makes_new_pods_beside_the_old_ones_and_turns_when_they_are_ready(pod):
    old, history = pod("performer-p", A), PodHistory(hash=A, created=1)
    green = desired(B, strategy="BlueGreen")
    begin = next_steps(green, [old], history, now=NOW, slot=True, served=A[:10])
    assert (begin.create, removed(begin), begin.revision) == ([f"performers-p-{B[:10]}-0"], {}, A[:10])
    new = pod(begin.create[0], B, ready=False)
    waiting = next_steps(green, [old, new], begin.history, now=NOW, served=A[:10])
    assert (waiting.revision, removed(waiting)) == (A[:10], {})
    ready = pod(begin.create[0], B)
    turning = next_steps(green, [old, ready], begin.history, now=NOW, served=A[:10])
    assert (turning.revision, removed(turning)) == (B[:10], {})
    draining = next_steps(green, [old, ready], begin.history, now=NOW, served=B[:10], drained=False)
    assert (removed(draining), draining.requeue_after) == ({}, 1.0)
    over = next_steps(green, [old, ready], begin.history, now=NOW, served=B[:10], drained=True)
    assert removed(over) == {"performer-p": "Replaced"}
    end = next_steps(green, [ready], begin.history, now=NOW, served=B[:10])
    assert (end.upgrading, end.revision) == (False, B[:10])


def test_blue_green_drops_a_version_that_was_never_served_when_a_newer_one_is_asked_for(pod):
    pods = [pod("performer-p", A), pod("performer-p-b", B, ready=False)]
    history = PodHistory(hash=B, created=1, upgrading=True)
    steps = next_steps(desired(C, strategy="BlueGreen"), pods, history, now=NOW, served=A[:10])
    assert removed(steps) == {"performer-p-b": "Replaced"}
    assert (steps.revision, steps.create) == (A[:10], [f"performers-p-{C[:10]}-0"])


def test_blue_green_back_to_what_still_serves_only_removes_the_new_pods(pod):
    pods = [pod("performer-p", A), pod("performer-p-b", B, ready=False)]
    history = PodHistory(hash=B, created=1, upgrading=True)
    steps = next_steps(desired(A, strategy="BlueGreen"), pods, history, now=NOW, served=A[:10])
    assert (removed(steps), steps.create, steps.revision) == ({"performer-p-b": "Replaced"}, [], A[:10])


NAMES = st.from_regex(r"[a-f0-9]{1,3}(-[a-f0-9]{1,12}){0,3}", fullmatch=True)
PODS = st.tuples(NAMES, st.none() | st.tuples(st.from_regex(r"[a-f0-9]{10}", fullmatch=True), st.integers(0, 99)))


@given(PODS, PODS)
@example(("x", ("0123456789", 1)), ("x-0123456789", ("1111111111", 1)))
@example(("x-1", None), ("x", ("0123456789", 1)))
def test_two_performers_never_want_a_pod_of_the_same_name(one, other):
    def name(performer, further):
        return pod_name(performer) if further is None else further_name(performer, *further)

    assert (name(*one) == name(*other)) == (one == other)


class World:
    """Pods, a Service and a status; steps are carried out as far as a crash lets them."""

    def __init__(self, chance, make):
        self.chance, self.make = chance, make
        self.pods, self.history, self.served, self.now, self.uids = {}, PodHistory(), "", NOW, 0

    def step(self, want, *, crash=False):
        self.now += self.chance.choice([0.1, 1, 11, 60])
        steps = next_steps(
            want, self.pods.values(), self.history, now=self.now, served=self.served, slot=self.chance.random() < 0.7
        )
        if want.strategy == "BlueGreen" and steps.upgrading:
            going = {removal.pod.name for removal in steps.remove if is_ready(removal.pod)}
            left = [pod for pod in self.pods.values() if is_ready(pod) and pod.name not in going]
            assert left or not going, "blue/green took the last ready pod"
        actions = [lambda: setattr(self, "served", steps.revision)]
        if steps.upgrading and not self.history.upgrading:
            actions.append(lambda: setattr(self, "history", PodHistory(upgrading=True)))
        actions += [lambda name=name: self.create(name, want.hash) for name in steps.create]
        actions += [lambda one=removal.pod: self.delete(one.name) for removal in steps.remove]
        actions.append(lambda: setattr(self, "history", steps.history))
        stop = self.chance.randrange(len(actions)) if crash else len(actions)
        for action in actions[:stop]:
            action()
        return steps

    def create(self, name, template):
        assert name not in self.pods, "two pods of one name"
        self.uids += 1
        self.pods[name] = self.make(name, template, phase="Pending", uid=str(self.uids))

    def delete(self, name):
        if self.chance.random() < 0.5:
            self.pods.pop(name)
        else:
            self.pods[name].metadata.deletion_timestamp = "2026-01-01T00:00:00Z"

    def live(self, *, settle=False):
        for name, one in list(self.pods.items()):
            if one.deleting:
                if settle or self.chance.random() < 0.5:
                    del self.pods[name]
            elif one.status.phase == "Pending" and (settle or self.chance.random() < 0.6):
                one.status.phase = "Running"
                one.status.conditions = [PodCondition(type="Ready", status="True")]
            elif not settle and self.chance.random() < 0.15:
                one.status.phase = self.chance.choice(["Failed", "Succeeded"])


@given(st.integers(0, 2**32), st.sampled_from(["Recreate", "BlueGreen"]), st.integers(0, 3))
def test_whatever_happens_and_wherever_it_crashes_it_ends_with_exactly_the_pods_asked_for(seed, strategy, replicas):
    chance = random.Random(seed)
    world = World(chance, _pod)
    for _ in range(chance.randrange(25)):
        want = desired(
            chance.choice([A, B, C]), strategy=chance.choice([strategy, strategy, "Recreate"]), replicas=replicas
        )
        world.step(want, crash=chance.random() < 0.3)
        world.live()
    want = desired(C, strategy=strategy, replicas=replicas)
    for _ in range(80):
        world.step(want)
        world.live(settle=True)
        world.now += 60
    assert len(world.pods) == replicas
    assert all(pod.annotations[TEMPLATE_HASH] == C and is_ready(pod) for pod in world.pods.values())
    assert world.served in ("", C[:10])
    if strategy == "BlueGreen" and replicas:
        assert {pod.labels[REVISION] for pod in world.pods.values()} == {world.served}
    quiet = next_steps(want, world.pods.values(), world.history, now=world.now, served=world.served)
    assert (quiet.create, list(quiet.remove), quiet.requeue_after, quiet.upgrading) == ([], [], None, False)


def _pod(name, template, **options):
    from steersman.kube.api.objects import ObjectMeta
    from steersman.kube.api.types.pods import Pod

    pod = Pod(
        metadata=ObjectMeta(
            name=name,
            uid=options["uid"],
            labels={REVISION: template[:10]},
            annotations={TEMPLATE_HASH: template},
            creation_timestamp="2026-01-01T00:00:00Z",
        )
    )
    pod.status.phase = options["phase"]
    return pod


def test_blue_green_turns_only_when_all_new_pods_are_ready(pod):
    green = desired(B, strategy="BlueGreen", replicas=2)
    old = [pod("performer-p", A), pod("performer-p-a1", A)]
    first, second = pod("performer-p-b0", B), pod("performer-p-b1", B, ready=False)
    history = PodHistory(hash=B, created=2, upgrading=True)
    waiting = next_steps(green, [*old, first, second], history, now=NOW, served=A[:10])
    assert (waiting.revision, removed(waiting)) == (A[:10], {})
    turning = next_steps(green, [*old, first, pod("performer-p-b1", B)], history, now=NOW, served=A[:10])
    assert turning.revision == B[:10]
