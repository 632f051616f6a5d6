"""Recreating a Job, which cannot be restarted: its template never changes. No step can lose it.

    1. the Job is marked: which stand-in it will have, and a digest of what that says
    2. the *stand-in* is created: the same Job, suspended, under another name, noting whom it stands in for
    3. the old Job is deleted, and its pods with it
    4. the new Job is created from the stand-in, under the old name
    5. the stand-in is deleted

Every step is repeated until it is done, by whoever leads: what is left to do can be seen from the Jobs alone. If the
server refuses the new Job, the stand-in stays and holds everything that is needed to create it later.

Invariant: a Job is deleted only when its own mark and the stand-in agree. Somebody who may create Jobs, and may not
change or delete this one, cannot have it deleted by us, nor replaced by anything that is not what it was.
"""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.errors import AlreadyExists, Invalid, NotFound
from steersman.kube.times import format_micro_time
from steersman.operators.reload.apply import describe
from steersman.operators.reload.state import write_state
from steersman.operators.reload.types import APPLIED, RECREATED_BY, RECREATES, RESTARTED_AT, RESTARTED_FOR
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from steersman.operators.reload.plan import Plan
    from steersman.operators.reload.workloads import Workload
    from steersman.runtime.context import Context

__all__ = ["Intent", "Mark", "begin", "carry_on", "intent_of", "mark_of", "stand_in", "successor"]

POLL_SECONDS: Final = 1.0  # while the pods of the old Job end
DOUBT_SECONDS: Final = 30.0  # until a stand-in that its Job does not know is asked about again
_SET_BY_SERVER: Final = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)
_DESCRIBED: Final = ("labels", "annotations", "namespace")  # the metadata that makes a Job what it is


class Intent(msgspec.Struct, frozen=True):
    """Whom a stand-in stands in for."""

    name: str
    uid: str
    suspend: bool = False  # whether the Job itself is suspended


class Mark(msgspec.Struct, frozen=True):
    """On a Job that is to be recreated: who stands in for it."""

    name: str
    digest: str  # of what the stand-in says


def intent_of(workload: Workload) -> Intent | None:
    """What a stand-in is for; None for any other Job, among them those that only carry the annotation of one."""
    text = workload.annotations.get(RECREATES)
    if text is None:
        return None
    try:
        intent = msgspec.json.decode(text, type=Intent)
    except msgspec.DecodeError as error:
        raise FormatError(f"job/{workload.name}: {RECREATES}: {error}") from None
    return intent if workload.name == _stand_in_name(intent.name, intent.uid) else None


async def begin(ctx: Context, workload: Workload, plan: Plan) -> None:
    """Mark the Job and create its stand-in; harmless when there is one already."""
    manifest = await ctx.client.get(type(workload).KIND, workload.name, namespace=workload.namespace)
    if manifest["metadata"]["uid"] != workload.metadata.uid:
        return  # another Job by now, which will be looked at by itself
    stamps = {
        RESTARTED_AT: format_micro_time(ctx.clock.time()),
        RESTARTED_FOR: describe(plan.changes, workload.namespace),
    }
    made = stand_in(manifest, "" if plan.state is None else write_state(plan.state), stamps)
    mark = mark_of(made)
    wanted = msgspec.json.encode(mark).decode()
    if (manifest["metadata"].get("annotations") or {}).get(RECREATED_BY) != wanted:
        names = {name: manifest["metadata"][name] for name in ("uid", "resourceVersion")}
        await ctx.patch(workload, {"metadata": {**names, "annotations": {RECREATED_BY: wanted}}})
    try:
        await ctx.create(made, owner=None)
    except AlreadyExists:
        there = await ctx.client.get(type(workload).KIND, mark.name, namespace=workload.namespace)
        if mark_of(there) != mark:
            raise Invalid(
                f"job/{mark.name} is there and is not what job/{workload.name} is; delete it to have this one recreated"
            ) from None


async def carry_on(ctx: Context, workload: Workload, intent: Intent) -> Result:
    """The next step for a stand-in."""
    kind = type(workload).KIND
    manifest = await ctx.client.get(kind, workload.name, namespace=workload.namespace)
    try:
        original = await ctx.client.get(kind, intent.name, namespace=workload.namespace)
    except NotFound:
        original = None
    if original is not None and original["metadata"]["uid"] == intent.uid:
        if not _agree(original, manifest):
            message = f"job/{intent.name} does not say that this stands in for it ({RECREATED_BY}): nothing is done"
            ctx.event(workload, "NotAStandIn", f"{message}; delete this Job if nobody needs it", warning=True)
            return requeue(after=DOUBT_SECONDS)
        if not original["metadata"].get("deletionTimestamp"):
            await ctx.delete(original, propagation="Foreground")
        return requeue(after=POLL_SECONDS)
    if original is None:
        try:
            await ctx.create(successor(manifest, intent), owner=None)
        except AlreadyExists:
            return requeue(after=POLL_SECONDS)  # somebody was faster
    await ctx.delete(workload, propagation="Background")
    return done


def mark_of(helper: dict[str, Any]) -> Mark:
    """What the Job has to say for this stand-in to count: the digest is over everything but what we write ourselves."""
    made = _plain(helper)
    spec, meta = made["spec"], made["metadata"]
    spec.pop("suspend", None)
    of_pods = spec["template"].pop("metadata", None) or {}
    said = [
        spec,
        meta.get("labels") or {},
        _without(meta.get("annotations"), APPLIED, RECREATES, RECREATED_BY),
        of_pods.get("labels") or {},
        _without(of_pods.get("annotations"), RESTARTED_AT, RESTARTED_FOR),
    ]
    return Mark(
        helper["metadata"]["name"], hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()
    )


def _agree(original: dict[str, Any], helper: dict[str, Any]) -> bool:
    text = (original["metadata"].get("annotations") or {}).get(RECREATED_BY, "")
    return bool(text) and text == msgspec.json.encode(mark_of(helper)).decode()


def _without(annotations: dict[str, str] | None, *names: str) -> dict[str, str]:
    return {name: value for name, value in (annotations or {}).items() if name not in names}


def _stand_in_name(name: str, uid: str) -> str:
    tail = hashlib.sha256(uid.encode()).hexdigest()[:8]
    return f"{name[:40].rstrip('-.')}-reload-{tail}"


def stand_in(manifest: dict[str, Any], state: str, stamps: dict[str, str]) -> dict[str, Any]:
    """The Job as it will be, suspended and under a name of its own that is always the same."""
    meta = manifest["metadata"]
    made = _plain(manifest)
    intent = Intent(meta["name"], meta["uid"], bool(manifest["spec"].get("suspend")))
    made["metadata"]["name"] = _stand_in_name(meta["name"], meta["uid"])
    made["metadata"]["annotations"] = {
        **_without(made["metadata"].get("annotations"), RECREATED_BY),
        APPLIED: state,
        RECREATES: msgspec.json.encode(intent).decode(),
    }
    made["spec"]["suspend"] = True
    template = made["spec"]["template"].setdefault("metadata", {})
    template["annotations"] = {**(template.get("annotations") or {}), **stamps}
    return made


def successor(manifest: dict[str, Any], intent: Intent) -> dict[str, Any]:
    """The new Job, made of its stand-in."""
    made = _plain(manifest)
    made["metadata"]["name"] = intent.name
    made["metadata"]["annotations"] = _without(made["metadata"].get("annotations"), RECREATES, RECREATED_BY)
    made["spec"]["suspend"] = intent.suspend
    return made


def _plain(manifest: dict[str, Any]) -> dict[str, Any]:
    """A Job as somebody would write it: without what a server adds."""
    made = copy.deepcopy(manifest)
    meta = {name: value for name, value in made["metadata"].items() if name in _DESCRIBED}
    spec = made["spec"]
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
        labels = spec["template"].get("metadata", {}).get("labels") or {}
        for name in _SET_BY_SERVER:
            labels.pop(name, None)
            (meta.get("labels") or {}).pop(name, None)
    return {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": meta, "spec": spec}
