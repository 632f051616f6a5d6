"""Starting a Job of a CronJob at once, as Reloader does: the next run by schedule may be far away.

The Job is what the CronJob would have created, with the stamps of a restart on its pod template. Its name says for
which change it was started, so a process that ends between this and the record of it starts no second one. A CronJob
that is suspended starts nothing.
"""

from __future__ import annotations

import copy
import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.kube.api.errors import AlreadyExists
from steersman.operators.reload.actions.patch import set_variables, stamps_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.reload.compat.dialect import CompatAnnotations
    from steersman.operators.reload.planning.plan import WorkloadPlan
    from steersman.operators.reload.workloads.workload import Workload
    from steersman.runtime.reconcile.context import Context

INSTANTIATE: Final = "cronjob.kubernetes.io/instantiate"  # as `kubectl create job --from` writes it


async def run_now(ctx: Context, workload: Workload, plan: WorkloadPlan, marks: CompatAnnotations) -> None:
    """Start a Job; harmless when it was started for this change already."""
    manifest = await ctx.client.get(type(workload).KIND, workload.name, namespace=workload.namespace)
    if manifest["metadata"]["uid"] != workload.metadata.uid or manifest["spec"].get("suspend"):
        return
    stamps = stamps_for(plan, workload.namespace, ctx.clock.time(), marks)
    try:
        await ctx.client.create(job_of(manifest, plan, stamps, marks))
    except AlreadyExists:
        return


def job_of(
    manifest: Mapping[str, Any], plan: WorkloadPlan, stamps: Mapping[str, str | None], marks: CompatAnnotations
) -> dict[str, Any]:
    """The Job that the CronJob would have created."""
    meta, template = manifest["metadata"], copy.deepcopy(manifest["spec"]["jobTemplate"])
    described, spec = template.get("metadata") or {}, template["spec"]
    of_pods = spec["template"].setdefault("metadata", {})
    of_pods["annotations"] = {**(of_pods.get("annotations") or {}), **stamps}
    pod = spec["template"]["spec"]
    pod["containers"] = set_variables(pod["containers"], marks.variables)
    owner = {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": "Job",
        "metadata": {
            "name": f"{meta['name'][:52]}-{_digest(meta['uid'], plan)}",
            "namespace": meta["namespace"],
            "labels": described.get("labels") or {},
            "annotations": {INSTANTIATE: "manual", **(described.get("annotations") or {})},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _digest(uid: str, plan: WorkloadPlan) -> str:
    """Of the content that the Job is started for, and of the starts before it: the same content may come back."""
    state = plan.state
    assert state is not None
    said = [uid, state.sources, state.restarts[:-1]]
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:10]
