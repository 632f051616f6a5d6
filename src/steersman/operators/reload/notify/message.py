"""The message about one change: which sources, which workloads, and how it ended. Pure.

One change is one message, however many workloads it affects: those restarted for a source they share belong together
until all rollouts have ended. Messages name sources, keys and workloads, never a value.
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.errors import ConfigError
from steersman.kube.api.times import format_time
from steersman.operators.reload.api.config import SourceRef, WorkloadId
from steersman.operators.reload.planning.diff import SourceChange
from steersman.text import some_of

if TYPE_CHECKING:
    from steersman.operators.reload.api.config import ReceiverConfig

_FIELDS: Final = ("outcome", "sources", "workloads", "failures", "count", "time")
DEFAULT: Final = "$outcome: $sources restarted $count: $workloads$failures"
_SHOWN: Final = 10


class AffectedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """One workload that a change affected."""

    workload: WorkloadId
    action: str
    outcome: str  # available, failed, progressing, applied
    reason: str = ""
    seconds: int | None = None


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One change and its outcome."""

    id: str
    at: float
    changes: tuple[SourceChange, ...]
    workloads: tuple[AffectedWorkload, ...]

    @property
    def outcome(self) -> str:
        """failed when one failed, unfinished when one has not ended, else finished."""
        outcomes = {affected.outcome for affected in self.workloads}
        return "failed" if "failed" in outcomes else "unfinished" if "progressing" in outcomes else "finished"

    @property
    def sources(self) -> list[str]:
        """`configmap/shop/app#mode`, each once."""
        keys: dict[SourceRef, set[str]] = {}
        for change in self.changes:
            keys.setdefault(change.source, set()).update(change.keys)
        return [f"{source}{'#' + ','.join(sorted(found)) if found else ''}" for source, found in sorted(keys.items())]

    def text(self, template: str | None = None) -> str:
        """The message for people."""
        workloads = [str(affected.workload) for affected in self.workloads]
        failures = [f"{failed.workload}: {failed.reason}" for failed in self.workloads if failed.outcome == "failed"]
        count = len(workloads)
        return Template(template or DEFAULT).safe_substitute(
            outcome=self.outcome,
            sources=" ".join(self.sources),
            workloads=some_of(workloads, _SHOWN),
            failures=f"; failed: {'; '.join(failures[:_SHOWN])}" if failures else "",
            count=f"{count} workload{'' if count == 1 else 's'}",
            time=format_time(self.at),
        )


def check_template(text: str | None, field: str) -> None:
    """Raise ConfigError when a template names an unknown field."""
    if text is None:
        return
    template = Template(text)
    if not template.is_valid():
        raise ConfigError("is not a template (try $outcome $sources $workloads; $$ is a dollar)", field=field)
    unknown = sorted(set(template.get_identifiers()) - set(_FIELDS))
    if unknown:
        raise ConfigError(
            f"${unknown[0]} is not a known field (try {', '.join(f'${name}' for name in _FIELDS)})", field=field
        )


def body_of(notification: Notification, receiver: ReceiverConfig) -> tuple[str, bytes]:
    """The content type and the body in the format of the receiver."""
    text = notification.text(receiver.template)
    if receiver.format == "text":
        return "text/plain; charset=utf-8", text.encode()
    if receiver.format == "cloudevents":
        return "application/cloudevents+json", msgspec.json.encode(_cloudevent(notification, text))
    if receiver.format == "teams":
        card = {
            "type": "AdaptiveCard",
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "version": "1.4",
            "body": [{"type": "TextBlock", "text": text, "wrap": True}],
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return "application/json", msgspec.json.encode({"type": "message", "attachments": [attachment]})
    return "application/json", msgspec.json.encode({"text": text})  # Slack and Google Chat


def _cloudevent(notification: Notification, text: str) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": notification.id,
        "source": "/steersman/reload",
        "type": f"dev.steersman.reload.change.{notification.outcome}",
        "time": format_time(notification.at),
        "datacontenttype": "application/json",
        "data": {
            "message": text,
            "outcome": notification.outcome,
            "sources": [
                {
                    "kind": change.source.kind.value,
                    "namespace": change.source.namespace,
                    "name": change.source.name,
                    "keys": change.keys,
                }
                for change in notification.changes
            ],
            "workloads": [
                {
                    "kind": affected.workload.kind,
                    "namespace": affected.workload.namespace,
                    "name": affected.workload.name,
                    "action": affected.action,
                    "outcome": affected.outcome,
                    "reason": affected.reason,
                    "seconds": affected.seconds,
                }
                for affected in notification.workloads
            ],
        },
    }
