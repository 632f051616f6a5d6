"""Everything that may be wrong with an object that is about to be stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.kube.errors import Cause

__all__ = ["invalid_causes"]


def invalid_causes(
    info: ResourceInfo, obj: dict[str, Any], old: dict[str, Any] | None, *, subresource: str = ""
) -> list[Cause]:
    """The rules that `obj` breaks, in the real server's order."""
    return []
