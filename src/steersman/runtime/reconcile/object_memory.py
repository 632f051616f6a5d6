"""Memory per object: what one controller keeps about one object, in this process only.

    ctx.memory["session"] = session          in a reconcile, a timer or a daemon: all of them share it

It belongs to the object, not to its name: an object that is created again under the name begins with nothing. It goes
with the object, with the namespace when another process takes that over, and with the process. What must survive lives
in the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ObjectMemories"]


class ObjectMemories:
    """The memories of the objects of one controller; an object that nothing is kept about costs nothing."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[str, dict[str, Any]]] = {}  # key -> uid and memory

    def of(self, key: Any, uid: str) -> dict[str, Any]:
        """The memory of the object with that key and uid, made when it is first asked for."""
        known = self._kept.get(key)
        if known is None or known[0] != uid:
            known = self._kept[key] = (uid, {})
        return known[1]

    def forget(self, key: Any) -> None:
        """The object no longer exists."""
        self._kept.pop(key, None)

    def forget_all(self, where: Callable[[Any], bool]) -> None:
        """Other processes work on these keys from now on."""
        for key in [key for key in self._kept if where(key)]:
            del self._kept[key]
