"""Everything that may be wrong with an object that is about to be stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.metadata import validate_meta, validate_meta_update
from steersman.apiserver.rules import kind_causes
from steersman.apiserver.validate import validate, validate_status

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.kube.errors import Cause

__all__ = ["invalid_causes"]


def invalid_causes(
    info: ResourceInfo, obj: dict[str, Any], old: dict[str, Any] | None, *, subresource: str = ""
) -> list[Cause]:
    """The rules that `obj` breaks, in the real server's order."""
    causes = validate_meta(info, obj) if old is None else validate_meta_update(info, obj, old)
    if info.custom is None:
        causes += kind_causes(info, obj, old, subresource=subresource)
    elif subresource == "status" and old is not None:
        causes += validate_status(info, obj, old)
    else:
        causes += validate(info, obj, old)
    return causes
