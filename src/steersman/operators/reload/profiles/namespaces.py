"""Whether a profile reads what is written on namespaces.

Originals do not, so their roles often do not grant it. The server is asked once, at the start: with the right to list
and watch Namespaces a freeze on one holds as everywhere; without it that is said, and nothing is ever refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from steersman.kube.errors import KubeError
from steersman.kube.types.authorization import (
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
)

if TYPE_CHECKING:
    from steersman.kube.client import Client
    from steersman.operators.reload.profiles.profile import Profile

__all__ = ["UNREAD", "with_namespaces"]

UNREAD: Final = "annotations steersman.dev/… on namespaces, a freeze too, are not read"
_VERBS: Final = ("list", "watch")

log = structlog.get_logger(__name__)


async def with_namespaces(profile: Profile, client: Client) -> Profile:
    """The profile, reading annotations of namespaces if it may; else with a note that it does not."""
    config = profile.config
    if config.namespaces:
        return replace(profile, notes=(*profile.notes, f"{UNREAD} where only some namespaces are watched"))
    if config.options().watch_namespaces or await _may_watch(client):
        return replace(profile, config=replace(config, namespace_settings=True))
    way_out = f"{UNREAD} (grant list and watch on namespaces, then start again)"
    return replace(profile, notes=(*profile.notes, way_out))


async def _may_watch(client: Client) -> bool:
    try:
        for verb in _VERBS:
            asked = SelfSubjectAccessReviewSpec(
                resource_attributes=ResourceAttributes(verb=verb, resource="namespaces")
            )
            if not (await client.create(SelfSubjectAccessReview(spec=asked))).status.allowed:
                return False
    except KubeError as error:
        log.warning("cannot ask whether namespaces may be read", error=str(error))
        return False
    return True
