"""The only module of this operator that writes children. Objects that belong to another owner are never written.

An object is ours when our resource owns it, or when it has no controller and our label (its owner was deleted and its
children were orphaned). Any other object of the same name raises NotOwned and is not changed (see `ctx.apply`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.cache.identity import uid_of
from steersman.kube.api.errors import AlreadyExists, Conflict, NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.types.discovery import EndpointSlice
from steersman.kube.api.types.pods import Pod
from steersman.operators.hourglass.api.types import PERFORMER, TEMPLATE_HASH
from steersman.runtime.reconcile.ownership import NotOwned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.api.objects import Resource
    from steersman.operators.hourglass.children.pod import PodTemplate
    from steersman.runtime.reconcile.context import Context

Wire = dict[str, Any]


async def apply_child(ctx: Context, owner: Resource, child: Wire, label: str) -> Any:
    """Apply a child; raises NotOwned when an object of that name belongs to another owner."""
    return await ctx.apply(child, owner=owner, adopt={label: owner.name})


async def remove_child(ctx: Context, owner: Resource, view: type[Resource], name: str, label: str, **how: Any) -> bool:
    """Delete a child of ours; returns whether it still exists."""
    live: Any = ctx.cache[view].get(NamespacedName(name, owner.namespace))
    if live is None:
        return False
    if not live.deleting:
        try:
            await ctx.delete(live, owner=owner, adopt={label: owner.name}, **how)
        except (Conflict, NotOwned):
            return False  # it belongs to another owner, or is another object by now
    return ctx.cache[view].get(live.ref) is not None


def is_controlled_by(live: Resource, owner: Resource) -> bool:
    """Whether `owner` is the controller of an object."""
    return live.controller is not None and live.controller.uid == owner.metadata.uid


async def delete_owned(ctx: Context, owner: Resource, child: Any, **how: Any) -> bool:
    """Delete a child of a deleted owner; returns whether it still exists.

    Only what the owner controls, and only unchanged: when the owner is deleted with `--cascade=orphan`, the garbage
    collector removes the owner references first, and that may be the only sign of it.
    """
    if child is None or not is_controlled_by(child, owner):
        return False
    if not child.deleting:
        try:
            await ctx.delete(child, unchanged=True, **how)
        except Conflict:
            return True  # it changed since it was read; the next reconcile reads it again
    return ctx.cache[type(child)].get(child.ref) is not None


async def create_pod(ctx: Context, owner: Resource, template: PodTemplate, name: str, label: str) -> Pod | None:
    """Create a pod; None when it exists already and its watch has not shown it yet."""
    pod = msgspec.convert(template.pod(name, owner.namespace), Pod)
    try:
        made: Pod = await ctx.create(pod, owner=owner, adopt={label: owner.name})
    except AlreadyExists:
        try:
            found = await ctx.client.get(Pod, name, namespace=owner.namespace)
        except NotFound:
            return None
        if not found.deleting and any(found.labels.get(key) != value for key, value in template.labels.items()):
            await adopt_pod(ctx, owner, found, template)  # lost the labels it is selected by
        return None
    return made


async def adopt_pod(ctx: Context, owner: Resource, pod: Pod, template: PodTemplate) -> None:
    """Apply the labels, the hash and the owner of a running pod."""
    metadata = template.metadata(pod.name, pod.namespace)
    recorded = pod.annotations.get(TEMPLATE_HASH)
    if recorded:
        metadata["annotations"] = {TEMPLATE_HASH: recorded}
        metadata["labels"] = template.labels
    wire = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    await ctx.apply(wire, owner=owner, adopt={PERFORMER: owner.name})


async def is_drained(ctx: Context, namespace: str, service: str, old: Iterable[Pod], new: Sequence[Pod]) -> bool:
    """Whether the endpoints of the Service name new pods only."""
    selector = f"kubernetes.io/service-name={service}"
    slices = await ctx.client.list(EndpointSlice, namespace=namespace, label_selector=selector)
    endpoints = [endpoint for slice_ in slices.items for endpoint in slice_.endpoints or ()]
    served = {endpoint.target_ref.uid for endpoint in endpoints if endpoint.target_ref is not None}
    if any(uid_of(pod) in served for pod in old):
        return False
    return not slices.items or any(uid_of(pod) in served for pod in new)
