"""When the keys of a source were last written, as the server tells it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import FormatError
from steersman.kube.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["changes_of", "seconds"]


def changes_of(manifest: Mapping[str, Any]) -> dict[str, float]:
    """When each key of a source was last written, in seconds since the epoch, as far as the server knows."""
    meta = manifest.get("metadata") or {}
    born = seconds(meta.get("creationTimestamp"))
    found = {key: born for field in ("data", "binaryData") for key in manifest.get(field) or ()}
    for entry in meta.get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        when = seconds(entry.get("time"))
        for key in (*(fields.get("f:data") or ()), *(fields.get("f:binaryData") or ())):
            name = key.removeprefix("f:")
            if name in found:
                found[name] = max(found[name], when)
    return found


def seconds(text: Any) -> float:
    """A time in seconds since the epoch; 0 when it is none."""
    try:
        return parse_time(text or "").timestamp()
    except FormatError:
        return 0.0
