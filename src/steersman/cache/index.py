"""An index: which objects have a value. An object may have several values, or none.

Invariant: `refs(v)` holds exactly the objects whose function gave `v` when they were last shown to the index, and no
value without objects is kept. A function that raises gives no values for that object and is reported once per object
state; it never stops the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from steersman.kube.api.gvk import NamespacedName


__all__ = ["Index"]

T = TypeVar("T")

log = Logger(__name__)


class Index(Generic[T]):
    """Objects by the values a function gives for them."""

    def __init__(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        self.name = name
        self.function = function
        self._refs: dict[str, set[NamespacedName]] = {}

    def values(self, obj: T) -> frozenset[str]:
        """The values of one object."""
        try:
            return frozenset(self.function(obj))
        except Exception:
            log.exception("an index function failed; the object is not found by this index", index=self.name)
            return frozenset()

    def refs(self, value: str) -> Collection[NamespacedName]:
        """The objects that have `value`, in no order."""
        return self._refs.get(value, ())

    def move(self, ref: NamespacedName, old: T | None, new: T | None) -> None:
        """`ref` was `old` and is `new`; None where it is absent."""
        before = self.values(old) if old is not None else frozenset()
        after = self.values(new) if new is not None else frozenset()
        for value in before - after:
            refs = self._refs.get(value)
            if refs is not None:
                refs.discard(ref)
                if not refs:
                    del self._refs[value]
        for value in after - before:
            self._refs.setdefault(value, set()).add(ref)
