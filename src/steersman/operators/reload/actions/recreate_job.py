"""Recreating a Job, whose template is immutable. No step can lose it.

    1. the Job is marked: the name of its stand-in, and a digest of the stand-in's content
    2. the *stand-in* is created: the same Job, suspended, under another name, naming the Job it stands in for
    3. the old Job is deleted, and its pods with it
    4. the new Job is created from the stand-in, under the old name
    5. the stand-in is deleted

Every step is repeated until it is done, by the process that leads: the Jobs alone show what is left to do. If the API
server rejects the new Job, the stand-in stays and holds everything needed to create it later.

Invariant: a Job is deleted only when its own mark and the stand-in agree. A user who may create Jobs, and may not
change or delete this one, cannot have it deleted by us, nor replaced by anything else.

Without the right to patch Jobs (Reloader's chart does not grant it) the mark is kept in memory. A process that ends
between steps 2 and 3 then leaves the old Job and a suspended stand-in behind; the next change goes on from there.
"""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.api.errors import AlreadyExists, Forbidden, Invalid, NotFound
from steersman.operators.reload.actions.patch import NO_MARKS, set_variables, stamps_for
from steersman.operators.reload.api.annotations import APPLIED, RECREATED_BY, RECREATES, RESTARTED_AT, RESTARTED_FOR
from steersman.operators.reload.planning.state import write_state
from steersman.runtime.controller.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.reload.compat.dialect import CompatAnnotations
    from steersman.operators.reload.planning.plan import WorkloadPlan
    from steersman.operators.reload.sources.references import Variable
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.reconcile.context import Context

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
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"job/{workload.name}: {RECREATES}: {error}") from None
    return intent if workload.name == _stand_in_name(intent.name, intent.uid) else None


async def begin(
    ctx: Context,
    workload: Workload,
    plan: WorkloadPlan,
    *,
    marks: CompatAnnotations = NO_MARKS,
    marked: dict[str, Mark],
) -> None:
    """Mark the Job and create its stand-in; harmless when there is one already.

    `marked`: the marks that could not be written, by the uid of the Job.
    """
    manifest = await ctx.client.get(type(workload).KIND, workload.name, namespace=workload.namespace)
    if manifest["metadata"]["uid"] != workload.metadata.uid:
        return  # another Job by now, with a pass of its own
    stamps = stamps_for(plan, workload.namespace, ctx.clock.time(), marks)
    made = stand_in(manifest, "" if plan.state is None else write_state(plan.state), stamps, marks.variables)
    mark = mark_of(made)
    wanted = msgspec.json.encode(mark).decode()
    if (manifest["metadata"].get("annotations") or {}).get(RECREATED_BY) != wanted:
        names = {name: manifest["metadata"][name] for name in ("uid", "resourceVersion")}
        try:
            await ctx.patch(workload, {"metadata": {**names, "annotations": {RECREATED_BY: wanted}}})
        except Forbidden:
            marked[workload.metadata.uid] = mark
    try:
        await ctx.create(made, owner=None)
    except AlreadyExists:
        there = await ctx.client.get(type(workload).KIND, mark.name, namespace=workload.namespace)
        if mark_of(there) != mark:
            raise Invalid(
                f"job/{mark.name} is there and is not what job/{workload.name} is; delete it to have this one recreated"
            ) from None


async def carry_on(ctx: Context, workload: Workload, intent: Intent, *, marked: dict[str, Mark]) -> Result:
    """The next step for a stand-in."""
    kind = type(workload).KIND
    manifest = await ctx.client.get(kind, workload.name, namespace=workload.namespace)
    try:
        original = await ctx.client.get(kind, intent.name, namespace=workload.namespace)
    except NotFound:
        original = None
    if original is not None and original["metadata"]["uid"] == intent.uid:
        if not _agree(original, manifest) and marked.get(intent.uid) != mark_of(manifest):
            message = f"job/{intent.name} does not name this Job as its replacement ({RECREATED_BY}): nothing is done"
            ctx.event(workload, "NotAStandIn", f"{message}; delete this Job if it is not needed", warning=True)
            return requeue(after=DOUBT_SECONDS)
        if not original["metadata"].get("deletionTimestamp"):
            await ctx.delete(original, propagation="Foreground")
        return requeue(after=POLL_SECONDS)
    if original is None:
        try:
            await ctx.create(successor(manifest, intent), owner=None)
        except AlreadyExists:
            return requeue(after=POLL_SECONDS)  # another client was faster
    await ctx.delete(workload, propagation="Background")
    marked.pop(intent.uid, None)
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


def stand_in(
    manifest: dict[str, Any], state: str, stamps: Mapping[str, str | None], variables: Iterable[Variable] = ()
) -> dict[str, Any]:
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
    pod = made["spec"]["template"]["spec"]
    pod["containers"] = set_variables(pod["containers"], variables)
    return made


def successor(manifest: dict[str, Any], intent: Intent) -> dict[str, Any]:
    """The new Job, made of its stand-in."""
    made = _plain(manifest)
    made["metadata"]["name"] = intent.name
    made["metadata"]["annotations"] = _without(made["metadata"].get("annotations"), RECREATES, RECREATED_BY)
    made["spec"]["suspend"] = intent.suspend
    return made


def _plain(manifest: dict[str, Any]) -> dict[str, Any]:
    """A Job as a user would write it: without what the API server adds."""
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
