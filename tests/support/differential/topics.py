"""Strategies for sequences about one topic each: what needs a world of its own to be interesting.

A topic is a strategy of whole sequences. Steps that only a controller could do on a real server (`limit`, `count`,
`collect`) are part of the sequence, so that a replay does them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.differential import generation
from tests.support.differential.hooks import ANSWERS
from tests.support.differential.steps import GROUP, HOOKED, KINDS, Owner, Revision, Step, Verb
from tests.support.manifests import pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

__all__ = ["TOPICS", "mixed_sequences", "sequences_about"]

_GENERAL = "general"
_names = st.sampled_from(generation.NAMES)
_booleans = st.booleans()
VERSIONS = {"gadget": ("v1", "v2"), "autoscaler": ("v1", "v2")}


@st.composite
def _versioned(draw: st.DrawFn) -> Step:
    """A step on a kind that is served in several versions, written and read in any of them."""
    step = draw(generation.steps(st.sampled_from(["gadget", "gadget", "autoscaler"])))
    version = draw(st.sampled_from(VERSIONS[step.kind]))
    if isinstance(step.body, dict) and "apiVersion" in step.body:
        step = replace(step, body={**step.body, "apiVersion": f"{KINDS[step.kind].group}/{version}"})
    return generation.certain(replace(step, version=version))


def _versions(longest: int) -> SearchStrategy[list[Step]]:
    return st.lists(_versioned(), min_size=1, max_size=longest)


_SCALING: SearchStrategy[Verb] = st.sampled_from(("get", "merge", "json", "replace", "modify", "apply"))


@st.composite
def _scales(draw: st.DrawFn, longest: int) -> list[Step]:
    """Reads and writes of `scale` between other writes of the same objects; each sets another number of replicas."""
    scalable = st.sampled_from(["deployment", "statefulset", "widget"])
    steps: list[Step] = []
    for index in range(draw(st.integers(1, longest))):
        kind, name, manager = draw(scalable), draw(_names), draw(st.sampled_from(generation.MANAGERS))
        replicas = draw(st.sampled_from([4 + index, 4 + index, 4 + index, -1]))
        meta = {"name": name}
        at: dict[str, Any] = {"kind": kind, "name": name, "subresource": "scale", "manager": manager}
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": {"replicas": replicas}}
        if draw(st.integers(0, 3)) == 0:
            steps.append(generation.certain(draw(generation.steps(st.just(kind)))))
            continue
        match draw(_SCALING):
            case "get":
                steps.append(Step(verb="get", kind=kind, name=name, subresource="scale"))
            case "json":
                operation = {"op": "replace", "path": "/spec/replicas", "value": replicas}
                steps.append(Step(verb="json", body=[operation], **at))
            case "replace":
                steps.append(Step(verb="replace", body=scale, revision=draw(generation.revisions), **at))
            case "apply":
                steps.append(Step(verb="apply", body=scale, force=draw(_booleans), **at))
            case verb:
                steps.append(Step(verb=verb, body={"spec": {"replicas": replicas}}, **at))
    return steps


@st.composite
def _evictions(draw: st.DrawFn, longest: int) -> list[Step]:
    """Pods that run or not, ready or not, with and without budgets whose status the test writes, are evicted."""
    steps = [Step(verb="create", kind="pod", name=name, body=draw(_evictable(name))) for name in generation.NAMES]
    for _ in range(draw(st.integers(1, longest))):
        name = draw(_names)
        match draw(
            st.sampled_from(["evict", "evict", "evict", "status", "status", "budget", "allow", "allow", "other"])
        ):
            case "evict":
                steps.append(draw(_evict(name)))
            case "status":
                status = draw(
                    generation.optional(
                        phase=st.sampled_from(["Running", "Running", "Running", "Pending", "Succeeded", "Failed"]),
                        conditions=st.sampled_from([[_READY | {"status": "True"}], [_READY | {"status": "False"}]]),
                    )
                )
                steps.append(Step(verb="merge", kind="pod", name=name, subresource="status", body={"status": status}))
            case "budget":
                steps.append(draw(generation.steps(st.just("budget"))))
            case "allow":
                numbers = {"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 5}
                status = numbers | draw(
                    generation.optional(
                        disruptionsAllowed=st.sampled_from([0, 1, 2]),
                        observedGeneration=st.just(0),
                        currentHealthy=st.integers(0, 2),
                        desiredHealthy=st.integers(0, 2),
                    )
                )
                status.setdefault("disruptionsAllowed", 1)
                steps.append(
                    Step(verb="merge", kind="budget", name=name, subresource="status", body={"status": status})
                )
            case _:
                others: SearchStrategy[Verb] = st.sampled_from(("get", "delete", "create"))
                verb = draw(others)
                body = draw(_evictable(name)) if verb == "create" else None
                steps.append(Step(verb=verb, kind="pod", name=name, body=body))
    return steps + [Step(verb="list", kind=kind) for kind in ("pod", "budget")]


_READY = {"type": "Ready"}


@st.composite
def _evictable(draw: st.DrawFn, name: str) -> dict[str, Any]:
    meta = draw(
        st.sampled_from([{}, {"labels": {"app": "web"}}, {"labels": {"app": "web"}, "finalizers": ["example.org/a"]}])
    )
    return pod(name, **meta)


@st.composite
def _evict(draw: st.DrawFn, name: str) -> Step:
    options = draw(
        generation.optional(
            gracePeriodSeconds=st.sampled_from([0, 5, -1]),
            dryRun=st.just(["All"]),
            propagationPolicy=st.just("Background"),  # the others wait for the garbage collector
        )
    )
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options and draw(_booleans):
        body["deleteOptions"] = options
    if draw(st.integers(0, 9)) == 0:
        body["metadata"] = {"name": "another"}
    versions: SearchStrategy[Revision] = st.sampled_from(("none", "none", "none", "live", "stale", "wrong"))
    uids: SearchStrategy[Revision] = st.sampled_from(("none", "none", "none", "live", "wrong"))
    step = Step(verb="evict", kind="pod", name=name, body=body, revision=draw(versions), uid=draw(uids))
    return replace(step, dry_run=draw(st.integers(0, 9)) == 0)


_COUNTED = {
    "pods": "pod",
    "services": "service",
    "services.nodeports": "service",
    "count/deployments.apps": "deployment",
    "count/services": "service",
    f"count/widgets.{GROUP}": "widget",
    "count/leases.coordination.k8s.io": "lease",
}


@st.composite
def _quotas(draw: st.DrawFn, longest: int) -> list[Step]:
    """A quota of few objects, and more objects than it allows."""
    hard = draw(st.dictionaries(st.sampled_from(sorted(_COUNTED)), st.sampled_from(["0", "1", "2"]), min_size=1))
    steps = [Step(verb="limit", kind="quota", name="most", body={name: hard[name] for name in sorted(hard)})]
    kinds = st.sampled_from(sorted({_COUNTED[name] for name in hard} | {"service"}))
    for index in range(draw(st.integers(1, longest))):
        step = draw(generation.steps(kinds))
        if draw(_booleans):
            body = draw(generation.objects(step.kind, step.name or "c", whole=True))
            step = Step(verb="create", kind=step.kind, name=body["metadata"]["name"], body=body)
        steps.append(generation.certain(generation.always_changing(step, index)))
        if not (step.dry_run or step.verb in {"get", "list"}):
            steps.append(Step(verb="count", kind="quota", name="most"))
    return steps


_OWNING: SearchStrategy[Verb] = st.sampled_from(
    ("create", "create", "create", "create", "delete", "delete", "merge", "clear")
)


@st.composite
def _owners(draw: st.DrawFn, longest: int) -> list[Step]:
    """Objects that own each other, in chains and in circles, and deletes with every policy."""
    owning = st.sampled_from(["configmap", "secret", "service", "deployment", "job"])
    owner = st.builds(
        Owner, kind=owning, name=_names, block=_booleans, controller=st.integers(0, 3).map(lambda n: n == 0)
    )
    owners = st.lists(owner, max_size=2, unique_by=lambda item: (item.kind, item.name)).map(tuple)
    steps: list[Step] = []
    for _ in range(draw(st.integers(2, longest))):
        kind, name = draw(owning), draw(_names)
        match draw(_OWNING):
            case "create":
                body = draw(generation.objects(kind, name, whole=True))
                steps.append(Step(verb="create", kind=kind, name=name, body=body, owners=draw(owners)))
            case "merge":
                body = {
                    "metadata": draw(
                        generation.optional(finalizers=generation.finalizers, labels=st.just({"app": "web"}))
                    )
                }
                steps.append(Step(verb="merge", kind=kind, name=name, body=body, owners=draw(owners)))
            case verb:
                policy = draw(st.sampled_from(["", "Background", "Foreground", "Foreground", "Orphan"]))
                steps.append(Step(verb=verb, kind=kind, name="" if verb == "clear" else name, propagation=policy))
        if steps[-1].verb != "create" or steps[-1].owners:
            steps.append(Step(verb="collect", kind=""))
    return steps


@st.composite
def _webhooks(draw: st.DrawFn, longest: int) -> list[Step]:
    """Writes of objects whose label says what the webhooks answer."""
    kinds = st.sampled_from(["configmap", "secret", "service", "deployment", "widget", "lease"])
    steps = []
    for index in range(draw(st.integers(1, longest))):
        step = draw(generation.steps(kinds))
        if isinstance(step.body, dict) and not step.subresource and draw(st.integers(0, 3)):
            meta = step.body.get("metadata") or {}
            if isinstance(meta.get("labels", {}), dict):
                labels = {**meta.get("labels", {}), HOOKED: draw(st.sampled_from(sorted(ANSWERS)))}
                step = replace(step, body={**step.body, "metadata": {**meta, "labels": labels}})
        steps.append(generation.certain(generation.always_changing(step, index)))
    return steps


TOPICS: dict[str, Callable[[int], SearchStrategy[list[Step]]]] = {
    _GENERAL: lambda longest: generation.sequences(longest=longest),
    "versions": _versions,
    "scales": _scales,
    "evictions": _evictions,
    "quotas": _quotas,
    "owners": _owners,
    "webhooks": _webhooks,
}


def sequences_about(*topics: str, longest: int = 12) -> SearchStrategy[list[Step]]:
    """Sequences about any of these topics."""
    return st.sampled_from(topics).flatmap(lambda topic: TOPICS[topic](longest))


def mixed_sequences(longest: int = 12) -> SearchStrategy[list[Step]]:
    """Half of them general, the rest about the other topics; few where the real server must be waited for."""
    often = [topic for topic in TOPICS if topic not in {_GENERAL, "quotas", "owners"}]
    return sequences_about(*[_GENERAL] * 10, *often * 2, "quotas", "owners", longest=longest)
