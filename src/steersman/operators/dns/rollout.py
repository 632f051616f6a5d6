"""Which of a cluster's servers may restart now: one after the other, so that somebody always answers. Pure.

A server that answers waits for every sibling that does not, and for every sibling before it in the order that is still
to be changed. So at most one of those that answer is taken down at a time, and a change that breaks the first server
stops there. A server that does not answer anyway waits for nobody: the change may be what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.kube.types.apps import Deployment

__all__ = ["Member", "blocker_of", "is_settled"]


class Member(msgspec.Struct, frozen=True):
    """One server of a cluster."""

    name: str
    role: str
    current: bool  # its pods are made from what is wanted now
    ready: bool

    @property
    def place(self) -> tuple[bool, str]:
        """In the order of changes: those that are only copies first."""
        return self.role != "secondary", self.name


def blocker_of(me: Member, siblings: Iterable[Member]) -> str:
    """The server that must be done before this one may change; empty when it may."""
    if me.current or not me.ready:
        return ""
    for other in sorted(siblings, key=lambda one: one.place):
        if other.name != me.name and (not other.ready or (not other.current and other.place < me.place)):
            return other.name
    return ""


def is_settled(deployment: Deployment | None) -> bool:
    """Whether all pods of a Deployment are what it says, and answer."""
    if deployment is None:
        return False
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    status = deployment.status
    seen = status.observed_generation >= deployment.metadata.generation
    return seen and status.updated_replicas >= wanted and status.ready_replicas >= wanted
