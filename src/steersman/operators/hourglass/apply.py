"""The only module that writes. Nothing is ever written to an object that belongs to somebody else.

An object is ours when we control it, or when nobody does and it bears our label (its owner was deleted with its
children left behind). Anything else of the same name is `Taken`, and stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.cache.identity import uid_of
from steersman.errors import SteersmanError
from steersman.kube.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from steersman.kube.resources import ObjectRef
from steersman.kube.types.discovery import EndpointSlice
from steersman.kube.types.pods import Pod
from steersman.operators.hourglass.types import TEMPLATE_HASH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.kube.objects import Resource
    from steersman.operators.hourglass.pod import PodTemplate
    from steersman.runtime.context import Context

__all__ = [
    "REFUSED",
    "Taken",
    "apply_child",
    "controls",
    "create_pod",
    "drained",
    "is_ours",
    "mark_pod",
    "may_adopt",
    "remove_child",
    "slow_delay",
    "take_along",
]

REFUSED: Final = (Invalid, Forbidden, BadRequest)  # trying again soon is of no use

Wire = dict[str, Any]
_FIRST_SECONDS, _MOST_SECONDS = 30.0, 300.0  # after a refusal


class Taken(SteersmanError):  # noqa: N818  says what happened
    """Somebody else has an object of the name we need."""


def slow_delay(refusals: int) -> float:
    """Seconds until the next try, after so many refusals in a row.

    >>> [slow_delay(number) for number in (0, 1, 9, 5000)]
    [30.0, 60.0, 300.0, 300.0]
    """
    return min(_FIRST_SECONDS * 2.0 ** min(refusals, 10), _MOST_SECONDS)


def is_ours(live: Resource, owner: Resource, label: str) -> bool:
    """Whether `live` belongs to `owner`, or to nobody any more and once did."""
    controller = live.controller
    if controller is not None:
        return controller.uid == owner.metadata.uid
    return live.labels.get(label) == owner.name


async def apply_child(ctx: Context, owner: Resource, child: Wire, view: type[Resource], label: str) -> Any:
    """Make a child as it should be; Taken when the name belongs to somebody else."""
    live: Any = ctx.cache[view].get(_ref(child))
    if live is not None and not is_ours(live, owner, label):
        raise Taken(f"{view.KIND.kind} {live.name} exists and belongs to {_owner_name(live)}")
    if live is not None and live.controller is None:
        await may_adopt(ctx, owner)
    return await ctx.apply(child, owner=owner)


async def may_adopt(ctx: Context, owner: Resource) -> None:
    """Ask the server before taking what nobody owns: Conflict when the owner is going.

    Whoever deletes an owner with its children left behind has them cut loose, and that may be seen before the deletion:
    they come by different watches.
    """
    try:
        fresh = await ctx.client.get(type(owner), owner.name, namespace=owner.namespace)
    except NotFound:
        raise Conflict(f"{owner.name} is gone, so it adopts nothing") from None
    if fresh.deleting or fresh.metadata.uid != owner.metadata.uid:
        raise Conflict(f"{owner.name} is being deleted, so it adopts nothing")


async def remove_child(ctx: Context, owner: Resource, view: type[Resource], name: str, label: str, **how: Any) -> bool:
    """Remove a child that is ours; returns whether it is still there."""
    live: Any = ctx.cache[view].get(ObjectRef(name, owner.namespace))
    if live is None or not is_ours(live, owner, label):
        return False
    if not live.deleting:
        try:
            await ctx.delete(live, **how)
        except Conflict:
            return False  # another object has this name by now
    return ctx.cache[view].get(live.ref) is not None


def controls(owner: Resource, live: Resource) -> bool:
    """Whether `live` belongs to `owner` and to nobody else."""
    return live.controller is not None and live.controller.uid == owner.metadata.uid


async def take_along(ctx: Context, owner: Resource, child: Any, **how: Any) -> bool:
    """Remove a child of an owner that goes; returns whether it is still there.

    Only what the owner controls, as it was seen: whoever deletes the owner with its children left behind has the
    garbage collector cut them loose first, and by the time of our look nothing but that may tell of their wish.
    """
    if child is None or not controls(owner, child):
        return False
    if not child.deleting:
        try:
            await ctx.delete(child, unchanged=True, **how)
        except Conflict:
            return True  # it changed since we looked, so we will look again
    return ctx.cache[type(child)].get(child.ref) is not None


async def create_pod(ctx: Context, owner: Resource, template: PodTemplate, name: str, label: str) -> Pod | None:
    """Make a pod; None when it was there already, because a look came before its watch."""
    pod = msgspec.convert(template.pod(name, owner.namespace), Pod)
    try:
        made: Pod = await ctx.create(pod, owner=owner)
    except AlreadyExists:
        try:
            there = await ctx.client.get(Pod, name, namespace=owner.namespace)
        except NotFound:
            return None
        if not is_ours(there, owner, label):
            raise Taken(f"Pod {name} exists and belongs to {_owner_name(there)}") from None
        if not there.deleting and any(there.labels.get(key) != value for key, value in template.labels.items()):
            await mark_pod(ctx, owner, there, template)  # lost the labels it is found by
        return None
    return made


async def mark_pod(ctx: Context, owner: Resource, pod: Pod, template: PodTemplate) -> None:
    """Give a pod the labels and the hash it should have; it runs on."""
    if pod.controller is None:
        await may_adopt(ctx, owner)
    metadata = template.metadata(pod.name, pod.namespace)
    noted = pod.annotations.get(TEMPLATE_HASH)
    if noted:
        metadata["annotations"] = {TEMPLATE_HASH: noted}
        metadata["labels"] = template.labels
    await ctx.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, owner=owner)


async def drained(ctx: Context, namespace: str, service: str, old: Iterable[Pod], new: Sequence[Pod]) -> bool:
    """Whether the Service sends everybody to new pods, as far as its endpoints tell."""
    selector = f"kubernetes.io/service-name={service}"
    slices = await ctx.client.list(EndpointSlice, namespace=namespace, label_selector=selector)
    endpoints = [one for slice_ in slices.items for one in slice_.endpoints or ()]
    served = {one.target_ref.uid for one in endpoints if one.target_ref is not None}
    if any(uid_of(pod) in served for pod in old):
        return False
    return not slices.items or any(uid_of(pod) in served for pod in new)


def _ref(child: Wire) -> ObjectRef:
    return ObjectRef(child["metadata"]["name"], child["metadata"]["namespace"])


def _owner_name(live: Resource) -> str:
    controller = live.controller
    return f"{controller.kind} {controller.name}" if controller is not None else "nobody we know"
