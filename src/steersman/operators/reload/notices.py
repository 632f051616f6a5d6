"""One message per change: which sources, which workloads, and how it ended. Pure.

A change is one message, however many workloads it touches: those that are restarted for a source they share belong
together until all have ended. Messages name sources, keys and workloads, never a value.
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import ConfigError
from steersman.kube.times import format_time
from steersman.operators.reload.changes import Change
from steersman.operators.reload.types import SourceRef, WorkloadId

if TYPE_CHECKING:
    from steersman.operators.reload.features import NotifyConfig

__all__ = ["DEFAULT", "Member", "Notice", "body_of", "check_template"]

_FIELDS: Final = ("outcome", "sources", "workloads", "failures", "count", "time")
DEFAULT: Final = "$outcome: $sources restarted $count: $workloads$failures"
_SHOWN: Final = 10


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One workload that a change touched."""

    workload: WorkloadId
    action: str
    outcome: str  # available, failed, progressing, applied
    reason: str = ""
    seconds: int | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One change, and what came of it."""

    id: str
    at: float
    changes: tuple[Change, ...]
    members: tuple[Member, ...]

    @property
    def outcome(self) -> str:
        """failed when one failed, unfinished when one has not ended, else finished."""
        found = {one.outcome for one in self.members}
        return "failed" if "failed" in found else "unfinished" if "progressing" in found else "finished"

    @property
    def sources(self) -> list[str]:
        """`configmap/shop/app#mode`, each once."""
        keys: dict[SourceRef, set[str]] = {}
        for one in self.changes:
            keys.setdefault(one.source, set()).update(one.keys)
        return [f"{source}{'#' + ','.join(sorted(found)) if found else ''}" for source, found in sorted(keys.items())]

    def text(self, template: str | None = None) -> str:
        """The message for people."""
        workloads = [str(one.workload) for one in self.members]
        failures = [f"{one.workload}: {one.reason}" for one in self.members if one.outcome == "failed"]
        count = len(workloads)
        return Template(template or DEFAULT).safe_substitute(
            outcome=self.outcome,
            sources=" ".join(self.sources),
            workloads=_some(workloads),
            failures=f"; failed: {'; '.join(failures[:_SHOWN])}" if failures else "",
            count=f"{count} workload{'' if count == 1 else 's'}",
            time=format_time(self.at),
        )


def check_template(text: str | None, field: str) -> None:
    """ConfigError when a template names what there is not."""
    if text is None:
        return
    template = Template(text)
    if not template.is_valid():
        raise ConfigError("is not a template (try $outcome $sources $workloads; $$ is a dollar)", field=field)
    unknown = sorted(set(template.get_identifiers()) - set(_FIELDS))
    if unknown:
        raise ConfigError(f"${unknown[0]} is not known (try {', '.join(f'${one}' for one in _FIELDS)})", field=field)


def body_of(notice: Notice, sink: NotifyConfig) -> tuple[str, bytes]:
    """The content type and the body, as the receiver wants it."""
    text = notice.text(sink.template)
    if sink.format == "text":
        return "text/plain; charset=utf-8", text.encode()
    if sink.format == "cloudevents":
        return "application/cloudevents+json", msgspec.json.encode(_cloudevent(notice, text))
    if sink.format == "teams":
        card = {
            "type": "AdaptiveCard",
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "version": "1.4",
            "body": [{"type": "TextBlock", "text": text, "wrap": True}],
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return "application/json", msgspec.json.encode({"type": "message", "attachments": [attachment]})
    return "application/json", msgspec.json.encode({"text": text})  # Slack and Google Chat


def _cloudevent(notice: Notice, text: str) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": notice.id,
        "source": "/steersman/reload",
        "type": f"dev.steersman.reload.change.{notice.outcome}",
        "time": format_time(notice.at),
        "datacontenttype": "application/json",
        "data": {
            "message": text,
            "outcome": notice.outcome,
            "sources": [
                {
                    "kind": one.source.kind.value,
                    "namespace": one.source.namespace,
                    "name": one.source.name,
                    "keys": one.keys,
                }
                for one in notice.changes
            ],
            "workloads": [
                {
                    "kind": one.workload.kind,
                    "namespace": one.workload.namespace,
                    "name": one.workload.name,
                    "action": one.action,
                    "outcome": one.outcome,
                    "reason": one.reason,
                    "seconds": one.seconds,
                }
                for one in notice.members
            ],
        },
    }


def _some(names: list[str]) -> str:
    told = ", ".join(names[:_SHOWN])
    return f"{told} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else told
