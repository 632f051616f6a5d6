"""Whose an object is: what exists and is not ours is never written and never deleted.

A *claim* is what a write says about the owner of its object. Applying, creating or deleting a child makes one. An
existing object fulfils it when one of these holds:

- one of its owner references has the uid of an owner that the claim names;
- no controller has it, and it is one that the author wants to `adopt`: its labels are those, or a function says so.

Anything else of that name is NotOwned and stays as it is. A cache may not know yet what exists, so the request itself
is conditional: it creates, or it changes the object whose owner was checked, and nothing else.

Not here: the requests. `ClusterContext` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.cache.identity import labels_of, ref_of, uid_of
from steersman.errors import PlanError
from steersman.kube.api.errors import Conflict, Invalid, KubeError
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.objects import Resource
from steersman.runtime.reconcile.metadata import owners_of

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Adopt", "NotOwned", "OwnershipClaim", "is_precondition_failure", "precondition"]

Object = Resource | dict[str, Any]
Adopt = Mapping[str, str] | Callable[[Any], bool]

# No object has it: the first write to an empty etcd gets the next one. An apply that names it conflicts with whatever
# exists, while a server that creates an object does not check it.
_NO_RESOURCE_VERSION: Final = "1"


class NotOwned(PlanError):  # noqa: N818  says what happened
    """An object of the name we need exists and belongs to another owner; it was neither written nor deleted.

    It is a PlanError, so it becomes a condition; unlike others it is tried again soon, because the foreign object may
    go without an event that reaches us.
    """

    retryable = True

    def __init__(self, kind: Kind, ref: NamespacedName, *, why: str, controller: str = "") -> None:
        where = f" in namespace {ref.namespace}" if ref.namespace else ""
        super().__init__(
            f"{kind.kind} {ref.name} exists{where} and {why}: choose another name, or remove it", reason="NameConflict"
        )
        self.kind = kind
        self.ref = ref
        self.controller = controller  # "Deployment web"; empty when no controller has the object


class OwnershipClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Which owners an object must have to be ours."""

    kind: Kind
    ref: NamespacedName
    uids: frozenset[str]
    wanted: str = ""  # the owners, in words
    adopt: Any = None  # Adopt | None

    @classmethod
    def of(cls, obj: Object, kind: Kind, adopt: Adopt | None) -> Self | None:
        """The claim that writing `obj` makes; None when it names no owner and asks for none."""
        owners = owners_of(obj)
        if not owners and adopt is None:
            return None
        wanted = ", ".join(f"{owner.kind} {owner.name}" for owner in owners)
        uids = frozenset(owner.uid for owner in owners)
        return cls(kind=kind, ref=ref_of(obj), uids=uids, wanted=wanted, adopt=adopt)

    def owns(self, live: Object) -> bool:
        """Whether an owner reference of `live` says that it is ours."""
        return any(owner.uid in self.uids for owner in owners_of(live))

    def check(self, live: Object) -> bool:
        """Whether `live` is still to be adopted; NotOwned when it is not ours at all."""
        if self.owns(live):
            return False
        controller = next((owner for owner in owners_of(live) if owner.controller), None)
        if controller is not None:
            name = f"{controller.kind} {controller.name}"
            why = f"belongs to {name}, not to {self.wanted}" if self.wanted else f"belongs to {name}"
            raise NotOwned(self.kind, self.ref, why=why, controller=name)
        if self._may_adopt(live):
            return True
        raise NotOwned(self.kind, self.ref, why=f"was not made {f'for {self.wanted}' if self.wanted else 'by us'}")

    @property
    def reads_objects(self) -> bool:
        """Whether more than the metadata of an object is needed to check it."""
        return callable(self.adopt)

    def _may_adopt(self, live: Object) -> bool:
        if self.adopt is None:
            return False
        if callable(self.adopt):
            return bool(self.adopt(live))
        return bool(self.adopt.items() <= labels_of(live).items())


def precondition(live: Object | None) -> dict[str, str]:
    """Metadata that lets an apply change only this very object, or, without one, only create."""
    return {"resource_version": _NO_RESOURCE_VERSION} if live is None else {"uid": uid_of(live)}


def is_precondition_failure(error: KubeError) -> bool:
    """Whether an apply failed because another object has the name; a field that another manager owns has causes."""
    if isinstance(error, Invalid):
        return any(cause.field == "metadata.uid" for cause in error.causes)
    return isinstance(error, Conflict) and not error.causes
