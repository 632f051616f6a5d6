"""What a kube-apiserver was asked, read from its audit log: the honest measure of what a controller costs.

The log is written at Metadata level: who asked for what and how it ended, never a body. A request appears once,
whatever stages the server logged for it; a watch appears as soon as it has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["AUDIT_POLICY", "AuditEntry", "AuditLog"]

AUDIT_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*"]},
        {"level": "Metadata"},
    ],
}


class _Object(msgspec.Struct, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    subresource: str = ""


class _User(msgspec.Struct):
    username: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Event(msgspec.Struct, rename="camel"):
    audit_id: str = msgspec.field(name="auditID")
    verb: str
    request_uri: str = msgspec.field(name="requestURI")
    user: _User
    user_agent: str = ""
    object_ref: _Object = msgspec.field(default_factory=_Object)
    response_status: _Status = msgspec.field(default_factory=_Status)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    verb: str
    resource: str
    group: str
    subresource: str
    namespace: str
    name: str
    user: str
    user_agent: str
    uri: str
    status: int


class AuditLog:
    """The requests of one server, oldest first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """The current end of the log: pass it as `since` to see only what comes after."""
        return self._path.stat().st_size if self._path.exists() else 0

    def entries(
        self,
        *,
        user_agent: str | None = None,
        user: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        namespace: str | None = None,
        since: int = 0,
    ) -> list[AuditEntry]:
        """Requests that match everything given; `user_agent` matches the beginning of the header."""
        return [
            entry
            for entry in self._read(since)
            if (user_agent is None or entry.user_agent.startswith(user_agent))
            and (user is None or entry.user == user)
            and (verb is None or entry.verb == verb)
            and (resource is None or entry.resource == resource)
            and (namespace is None or entry.namespace == namespace)
        ]

    def count(self, **filters: Any) -> int:
        """How many requests match; takes what `entries` takes."""
        return len(self.entries(**filters))

    def _read(self, since: int) -> list[AuditEntry]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(since)
            lines = file.read().split(b"\n")[:-1]  # a line still being written ends without a newline
        requests: dict[str, AuditEntry] = {}
        decoder = msgspec.json.Decoder(_Event)
        for line in lines:
            event = decoder.decode(line)
            requests[event.audit_id] = _entry(event)
        return list(requests.values())


def _entry(event: _Event) -> AuditEntry:
    target = event.object_ref
    return AuditEntry(
        verb=event.verb,
        resource=target.resource,
        group=target.api_group,
        subresource=target.subresource,
        namespace=target.namespace,
        name=target.name,
        user=event.user.username,
        user_agent=event.user_agent,
        uri=event.request_uri,
        status=event.response_status.code,
    )
