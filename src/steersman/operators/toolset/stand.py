"""What the cluster holds of a target, taken apart: ours, other people's, and what is missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from steersman.operators.toolset.backup import Backup
from steersman.operators.toolset.objects import TargetMap
from steersman.operators.toolset.plan import LABELS, MANAGED_BY, manages, owned_keys
from steersman.operators.toolset.types import HOLMES_KEY, OVERRIDES_KEY

if TYPE_CHECKING:
    from steersman.operators.toolset.types import Settings

__all__ = ["Stand", "is_ours", "is_paused", "stand_of"]


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """How a target stands."""

    base: TargetMap | None = None
    parts: Mapping[int, TargetMap] = {}
    backup: Backup = Backup()
    backup_object: TargetMap | None = None
    existed: bool = False  # the base was there before, so somebody deleted it
    foreign: Mapping[str, str] = {}  # other people's keys: there, or to be given back
    foreign_binary: Mapping[str, str] = {}
    paused: bool = False
    taken: tuple[str, ...] = ()  # names that we would use, of objects that are somebody else's

    def taken_parts(self, name: str) -> frozenset[int]:
        """The numbers of parts whose names are somebody else's."""
        ends = [one.removeprefix(f"{name}-") for one in self.taken]
        return frozenset(int(end) for end in ends if end.isdecimal())

    @property
    def overrides(self) -> str | None:
        """The bytes of the administrator."""
        return self.foreign.get(OVERRIDES_KEY)

    @property
    def text(self) -> str:
        """Everything of ours that is written now."""
        objects = [one for one in (self.base, *self.parts.values()) if one is not None]
        return "\n".join(text for one in objects for key, text in (one.data or {}).items() if manages(key))

    @property
    def places(self) -> dict[str, int]:
        """In which part each key is now."""
        return {
            key: number
            for number, part in self.parts.items()
            for key in part.data or {}
            if manages(key) and key != HOLMES_KEY
        }


def is_paused(obj: TargetMap | None, prefix: str) -> bool:
    """Whether somebody asked for nothing to be written."""
    return obj is not None and obj.annotations.get(f"{prefix}paused", "").lower() == "true"


def is_ours(obj: TargetMap, manager: str) -> bool:
    """Whether we made a part or a copy: it says so, or it holds keys that we applied."""
    return obj.labels.get(MANAGED_BY) == LABELS[MANAGED_BY] or bool(owned_keys(obj, manager))


def stand_of(
    base: TargetMap | None,
    parts: Mapping[int, TargetMap],
    backup: Backup,
    *,
    last: TargetMap | None,
    backup_object: TargetMap | None,
    settings: Settings,
    taken: tuple[str, ...] = (),
) -> Stand:
    """How a target stands; `last` is what a deleted base was at the end, as far as this process saw it."""
    shown = base or last
    foreign = _foreign(shown.data if shown is not None else None)
    if shown is None and settings.preserve_overrides:
        foreign = dict(backup.foreign)
    if base is None and not settings.preserve_overrides:
        foreign = {}
    return Stand(
        base=base,
        parts=parts,
        backup=backup,
        backup_object=backup_object,
        existed=base is None and (last is not None or backup_object is not None),
        foreign=foreign,
        foreign_binary=dict(shown.binary_data or {}) if shown is not None and settings.preserve_overrides else {},
        paused=is_paused(shown, settings.prefix),
        taken=taken,
    )


def _foreign(data: Mapping[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in (data or {}).items() if not manages(key)}
