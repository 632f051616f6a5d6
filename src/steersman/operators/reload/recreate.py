"""Recreating a Job, which cannot be restarted: its template never changes. No step can lose it.

    1. a *stand-in* is created: the same Job, suspended, under another name, noting whom it stands in for
    2. the old Job is deleted, and its pods with it
    3. the new Job is created from the stand-in, under the old name
    4. the stand-in is deleted

Every step is repeated until it is done, by whoever leads: what is left to do can be seen from the Jobs alone. If the
server refuses the new Job, the stand-in stays and holds everything that is needed to create it later.
"""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.errors import AlreadyExists
from steersman.kube.resources import ObjectRef
from steersman.kube.times import format_micro_time
from steersman.operators.reload.apply import describe
from steersman.operators.reload.state import write_state
from steersman.operators.reload.types import APPLIED, RECREATES, RESTARTED_AT, RESTARTED_FOR
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from steersman.operators.reload.plan import Plan
    from steersman.operators.reload.workloads import Workload
    from steersman.runtime.context import Context

__all__ = ["Intent", "begin", "carry_on", "intent_of", "stand_in", "successor"]

POLL_SECONDS: Final = 1.0  # while the pods of the old Job end
_SET_BY_SERVER: Final = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)
_DESCRIBED: Final = ("labels", "annotations", "namespace")  # the metadata that makes a Job what it is


class Intent(msgspec.Struct, frozen=True):
    """Whom a stand-in stands in for."""

    name: str
    uid: str
    suspend: bool = False  # whether the Job itself is suspended


def intent_of(workload: Workload) -> Intent | None:
    """What a stand-in is for; None for any other Job."""
    text = workload.annotations.get(RECREATES)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Intent)
    except msgspec.DecodeError as error:
        raise FormatError(f"job/{workload.name}: {RECREATES}: {error}") from None


async def begin(ctx: Context, workload: Workload, plan: Plan) -> None:
    """Create the stand-in; harmless when there is one already."""
    manifest = await ctx.client.get(type(workload).KIND, workload.name, namespace=workload.namespace)
    if manifest["metadata"]["uid"] != workload.metadata.uid:
        return  # another Job by now, which will be looked at by itself
    stamps = {
        RESTARTED_AT: format_micro_time(ctx.clock.time()),
        RESTARTED_FOR: describe(plan.changes, workload.namespace),
    }
    state = "" if plan.state is None else write_state(plan.state)
    try:
        await ctx.create(stand_in(manifest, state, stamps), owner=None)
    except AlreadyExists:
        return


async def carry_on(ctx: Context, workload: Workload, intent: Intent) -> Result:
    """The next step for a stand-in."""
    target = type(workload)
    original = ctx.cache[target].get(ObjectRef(intent.name, workload.namespace))
    if original is not None and original.metadata.uid == intent.uid:
        if not original.deleting:
            await ctx.delete(original, propagation="Foreground")
        return requeue(after=POLL_SECONDS)
    if original is None:
        manifest = await ctx.client.get(target.KIND, workload.name, namespace=workload.namespace)
        try:
            await ctx.create(successor(manifest, intent), owner=None)
        except AlreadyExists:
            return requeue(after=POLL_SECONDS)  # the old one is still going, or the watch is behind
    await ctx.delete(workload, propagation="Background")
    return done


def stand_in(manifest: dict[str, Any], state: str, stamps: dict[str, str]) -> dict[str, Any]:
    """The Job as it will be, suspended and under a name of its own that is always the same."""
    meta = manifest["metadata"]
    made = _plain(manifest)
    tail = hashlib.sha256(meta["uid"].encode()).hexdigest()[:8]
    intent = Intent(meta["name"], meta["uid"], bool(manifest["spec"].get("suspend")))
    made["metadata"]["name"] = f"{meta['name'][:40].rstrip('-.')}-reload-{tail}"
    made["metadata"].setdefault("annotations", {})
    made["metadata"]["annotations"] |= {APPLIED: state, RECREATES: msgspec.json.encode(intent).decode()}
    made["spec"]["suspend"] = True
    template = made["spec"]["template"].setdefault("metadata", {})
    template["annotations"] = {**(template.get("annotations") or {}), **stamps}
    return made


def successor(manifest: dict[str, Any], intent: Intent) -> dict[str, Any]:
    """The new Job, made of its stand-in."""
    made = _plain(manifest)
    made["metadata"]["name"] = intent.name
    made["metadata"]["annotations"].pop(RECREATES, None)
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
