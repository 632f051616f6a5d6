"""What must survive a restart, in a ConfigMap of its own beside the target: a copy of what others have in it. Pure.

It is what a new process gives back when the ConfigMap was deleted while nobody watched, and it keeps the last overrides
that could be read, so that a mistake made before a restart is still only a mistake. Where Services are looked for in
some namespaces only, it also keeps what was known of them, for a process that may not list one of these any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.kube.resources import ObjectRef
from steersman.operators.toolset.plan import Desired
from steersman.operators.toolset.types import BACKUP_SUFFIX, OVERRIDES_KEY

if TYPE_CHECKING:
    from steersman.operators.toolset.objects import TargetMap

__all__ = ["KNOWN_SERVICES", "LAST_VALID", "Backup", "backup_ref", "desired_backup", "read_backup"]

LAST_VALID: Final = "steersman-last-valid-overrides"
KNOWN_SERVICES: Final = "steersman-known-services"


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept."""

    foreign: Mapping[str, str] = {}
    last_valid: str | None = None
    known: str | None = None  # Services that take part, where not all namespaces are looked at


def backup_ref(target: ObjectRef) -> ObjectRef:
    """Where the copy is."""
    return ObjectRef(f"{target.name}{BACKUP_SUFFIX}", target.namespace)


def read_backup(obj: TargetMap | None) -> Backup:
    """What a copy holds."""
    data = dict(obj.data or {}) if obj is not None else {}
    valid, known = data.pop(LAST_VALID, None), data.pop(KNOWN_SERVICES, None)
    return Backup(foreign=data, last_valid=data.get(OVERRIDES_KEY) if valid is None else valid, known=known)


def desired_backup(backup: Backup, target: ObjectRef, labels: Mapping[str, str], prefix: str) -> Desired:
    """The copy as an object; the last valid overrides are named only when the current ones are not valid."""
    data = dict(backup.foreign)
    if backup.last_valid is not None and backup.last_valid != data.get(OVERRIDES_KEY):
        data[LAST_VALID] = backup.last_valid
    if backup.known is not None:
        data[KNOWN_SERVICES] = backup.known
    ref = backup_ref(target)
    return Desired(name=ref.name, namespace=ref.namespace, data=data, labels=labels, annotations={}, prefix=prefix)
