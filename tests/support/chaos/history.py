"""The history of one run: everything that was observed, in the order in which it happened. Pure data.

    versions   every version of every object, from the API server's own log, with the client that wrote it
    requests   every request that the API server answered or cut
    lives      when replicas of the operator began and ended
    faults     when faults began and ended
    changes    what users did
    answers    what name servers answered

Invariant: `versions` and `requests` are in the order of the API server, and `place` counts both together. So "before"
and "after" need no clock, and checkers are functions of a history alone.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["WRITES", "Answer", "FaultSpan", "Footprint", "History", "Life", "ObjectVersion", "RequestEntry"]

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class ObjectVersion(msgspec.Struct):
    """One version of an object."""

    place: int
    revision: int
    type: str  # ADDED, MODIFIED or DELETED
    resource: str  # plural.group
    object: dict[str, Any]
    writer: str = ""  # the client that wrote it; empty: the API server itself

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace of the object; empty when it has none."""
        return str(self.object["metadata"].get("namespace", ""))

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return str(self.object["metadata"]["uid"])


class RequestEntry(msgspec.Struct, frozen=True):
    """One request that reached the API server."""

    place: int
    at: float
    agent: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    path: str
    status: int  # 0: the connection was cut instead of an answer

    @property
    def failed(self) -> bool:
        """Whether the client got an error or no answer."""
        return self.status == 0 or self.status >= 400


class Life(msgspec.Struct):
    """One process of an operator, from its start to its end."""

    agent: str  # the name of its client
    began: float
    ended: float | None = None
    end: str = ""  # crash, restart, lost leadership, or the error that ended it


class FaultSpan(msgspec.Struct):
    """A fault while it lasts."""

    name: str
    target: str
    began: float
    ended: float
    connections: int = 0  # that the replica tried to open meanwhile


class Footprint(msgspec.Struct, frozen=True):
    """What a process holds in memory."""

    agent: str
    series: int  # of metrics
    queued: int  # keys in its queues
    cached: int  # objects in its caches


class Answer(msgspec.Struct, frozen=True):
    """What a name server answered."""

    place: int
    server: str
    what: str  # the serial, or the name of a record
    number: int | None  # values of records are numbers that only grow; None: there is no such record


class History(msgspec.Struct):
    """What was observed."""

    agent: str = "operator"  # with which the names of all clients of the operator begin
    versions: list[ObjectVersion] = []
    requests: list[RequestEntry] = []
    lives: list[Life] = []
    faults: list[FaultSpan] = []
    changes: list[str] = []  # actions of users that were carried out
    logs: list[str] = []  # lines that the operator logged
    answers: list[Answer] = []  # of name servers, asked all the time
    before_churn: list[Footprint] = []
    after_churn: list[Footprint] = []
    unmet: list[str] = []  # what was not as it should be when the time was up
    rest: int | None = None  # the place at which everything was as it should be and still
    recovery: float | None = None  # seconds of the operators' clock from the last step to the expected state
    _place: int = 0

    def add_version(self, kind: str, revision: int, resource: str, obj: dict[str, Any]) -> None:
        """The API server stored a version."""
        self.versions.append(ObjectVersion(self.next_place(), revision, kind, resource, obj))

    def add_request(self, entry: Any, at: float) -> None:
        """The API server finished a request; the versions it stored were added before."""
        agent = entry.user_agent.rpartition(" ")[2]  # the component; what comes before is the same for all
        self.requests.append(
            RequestEntry(
                self.next_place(),
                at,
                agent,
                entry.verb,
                entry.resource,
                entry.namespace,
                entry.name,
                entry.subresource,
                entry.path,
                entry.status,
            )
        )
        if entry.verb in WRITES and (entry.status == 0 or entry.status < 400):
            self._attribute(entry, agent)

    def _attribute(self, entry: Any, agent: str) -> None:
        """Name the writer of what was stored since the request before."""
        for version in reversed(self.versions[-8:]):
            same = version.resource == entry.resource and version.namespace == entry.namespace
            if same and not version.writer and entry.name in ("", version.name):
                version.writer = agent
                return

    def next_place(self) -> int:
        """The place of what is added now."""
        self._place += 1
        return self._place

    @property
    def place(self) -> int:
        """How many versions and requests there are."""
        return self._place

    def by_operator(self, agent: str) -> bool:
        """Whether a client is that of a replica of the operator."""
        return agent.startswith(self.agent)

    def operator_writes(self) -> list[RequestEntry]:
        """What replicas of the operator wrote, or tried to; Leases and Events left out."""
        beside = ("leases.coordination.k8s.io", "events", "events.events.k8s.io")
        return [
            request
            for request in self.requests
            if self.by_operator(request.agent) and request.verb in WRITES and request.resource not in beside
        ]

    def of(self, *resources: str) -> list[ObjectVersion]:
        """The versions of these resources."""
        return [version for version in self.versions if version.resource in resources]
