"""Events in the form of events.k8s.io: what happened to an object, and who says so. Pure data.

A server shows each event in both groups; this form is the one to write, `core.Event` the one that most tools read.
"""

from __future__ import annotations

from steersman.kube.api.objects import Resource
from steersman.kube.api.types.core import EventSeries, EventSource, ObjectReference

__all__ = ["ReportedEvent"]


class ReportedEvent(Resource, group="events.k8s.io", version="v1", kind="Event"):
    """Something that happened to an object."""

    event_time: str | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""  # Normal or Warning
    deprecated_count: int = 0
    deprecated_first_timestamp: str | None = None
    deprecated_last_timestamp: str | None = None
    deprecated_source: EventSource | None = None
