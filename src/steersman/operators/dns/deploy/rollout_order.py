"""The rollout order of a cluster's servers: one restarts after the other, so one of them always answers. Pure.

A ready server waits for every sibling that is not ready, and for every outdated sibling before it in the order. So at
most one ready server is restarted at a time, and a change that breaks the first server stops there. A server that is
not ready waits for no other: the change may be its repair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.api.types.apps import Deployment


class RolloutServer(msgspec.Struct, frozen=True):
    """One server of a cluster."""

    name: str
    role: str
    current: bool  # its pods have the current template
    ready: bool

    @property
    def place(self) -> tuple[bool, str]:
        """Its position in the order: secondaries first."""
        return self.role != "secondary", self.name


def blocker_of(me: RolloutServer, siblings: Iterable[RolloutServer]) -> str:
    """The server that this one waits for; empty when it may change."""
    if me.current or not me.ready:
        return ""
    for other in sorted(siblings, key=lambda member: member.place):
        if other.name != me.name and (not other.ready or (not other.current and other.place < me.place)):
            return other.name
    return ""


def is_settled(deployment: Deployment | None) -> bool:
    """Whether all pods of a Deployment are updated and ready."""
    if deployment is None:
        return False
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    status = deployment.status
    seen = status.observed_generation >= deployment.metadata.generation
    return seen and status.updated_replicas >= wanted and status.ready_replicas >= wanted
