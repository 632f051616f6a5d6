"""The cache mutation detector: finds code that changes an object which belongs to a cache.

Predicates, mappings, index functions and controllers with `shared_objects` see the cache's own objects, which nothing
may change. With the environment variable STEERSMAN_CACHE_MUTATION_DETECTOR=true every store remembers its objects
as they were when they came, and compares when they are replaced and whenever `check` is called, for the last time after
their informer stopped. The pytest plugin sets it and checks after every test; client-go has the same as
KUBE_CACHE_MUTATION_DETECTOR. It costs an encoding per object and keeps that text, so it is off in production.

What is found is logged, and raised by `check`. Only the names of fields are shown, never values.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Final

import msgspec

from steersman.cache.identity import ref_of
from steersman.errors import SteersmanError
from steersman.logger import Logger

__all__ = ["ENABLED", "CacheMutated", "MutationDetector", "check", "detector"]

ENABLED: Final = "STEERSMAN_CACHE_MUTATION_DETECTOR"

log = Logger(__name__)

_detectors: weakref.WeakSet[MutationDetector] = weakref.WeakSet()
_found: list[str] = []


class CacheMutated(SteersmanError):  # noqa: N818  says what happened
    """An object of a cache was changed in memory."""


def detector() -> MutationDetector | None:
    """One for a new store; None when it is not asked for."""
    return MutationDetector() if os.environ.get(ENABLED, "").lower() in {"1", "true"} else None


def check() -> None:
    """Compare all objects of all stores; CacheMutated names those that were changed since the last check."""
    for each in list(_detectors):
        each.compare()
    if _found:
        text = "; ".join(_found)
        _found.clear()
        raise CacheMutated(f"objects of a cache were changed in memory: {text}. Change a copy (steersman.cache.copies)")


class MutationDetector:
    """The objects of one store as they were when they came."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}  # by identity; the object is held, so that no other gets its id
        self._stopped = False
        _detectors.add(self)

    def came(self, obj: Any) -> None:
        """`obj` is in the store from now on."""
        if (text := _text(obj)) is not None:
            self._known[id(obj)] = obj, text

    def went(self, obj: Any) -> None:
        """`obj` is no longer in the store."""
        if (known := self._known.pop(id(obj), None)) is not None:
            _compare(*known)

    def compare(self) -> None:
        """Compare everything that is in the store."""
        for obj, text in list(self._known.values()):
            if not _compare(obj, text):
                self.came(obj)  # reported once
        if self._stopped:
            self._known.clear()
            self._stopped = False

    def stop(self) -> None:
        """The informer stopped: the next `check` compares for the last time, and then forgets the objects."""
        self._stopped = True


def _compare(obj: Any, before: bytes) -> bool:
    after = _text(obj)
    if after == before:
        return True
    changed = ", ".join(sorted(_changed(msgspec.json.decode(before), msgspec.json.decode(after or b"null"))))
    where = f"{obj.get('kind', 'object') if isinstance(obj, dict) else type(obj).__name__} {ref_of(obj)}"
    _found.append(f"{where} ({changed})")
    log.error("an object of a cache was changed in memory", object=where, fields=changed)
    return False


def _changed(before: Any, after: Any, path: str = "") -> set[str]:
    """The places that differ, without what is there."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return {place for name in names for place in _changed(before.get(name), after.get(name), f"{path}.{name}")}
    return {path.lstrip(".") or "all of it"}


def _text(obj: Any) -> bytes | None:
    try:
        return msgspec.json.encode(obj)
    except (TypeError, msgspec.MsgspecError):
        return None  # a transform made something of it that is not JSON
