"""The JSON API as a table: path, what it answers, from what. The OpenAPI document is made of the same rows.

Everything is read-only. Parameters are typed and none is ignored: an unknown, repeated or invalid one is answered with
400 and the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from steersman.web import views
from steersman.web.model import (
    API_VERSION,
    History,
    HistoryEntry,
    Map,
    Now,
    Operators,
    Outcome,
    ProcessHealth,
    StatusReport,
    WorkloadView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = f"/api/{API_VERSION}"

Name = Annotated[str, Meta(min_length=1, max_length=253)]


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


class HistoryParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of the history."""

    namespace: Annotated[str, Meta(max_length=253, description="only workloads of this namespace")] = ""
    text: Annotated[
        str, Meta(max_length=253, description="part of the name of a workload, a source, a key or a manager")
    ] = ""
    outcome: Annotated[Outcome | None, Meta(description="only restarts with this outcome")] = None
    before: Annotated[str, Meta(max_length=253, description="entries older than the one of this id")] = ""
    limit: Annotated[int, Meta(ge=1, le=views.MOST, description="at most so many entries")] = 100


class EntryPath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names an entry of the history."""

    id: Name


class WorkloadPath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a workload."""

    kind: Annotated[str, Meta(min_length=1, max_length=63, description="in lower case, such as deployment")]
    namespace: Name
    name: Name


class ApiPath(msgspec.Struct, frozen=True, kw_only=True):
    """One path of the API."""

    path: str
    name: str  # the operation's
    summary: str
    answer: Any  # the type of the answer
    make: Callable[[Any, Any, Any], Any]  # cache, path, query  # None: not found
    query: type[msgspec.Struct] = Nothing
    within: type[msgspec.Struct] = Nothing  # parameters in the path


def filters_of(query: HistoryParameters) -> views.Filters:
    """The same, for the view."""
    return msgspec.convert(msgspec.to_builtins(query), views.Filters)


ENDPOINTS: Final = (
    ApiPath(
        path="/now",
        name="now",
        summary="Is everything all right: problems, operators, restarts that wait.",
        answer=Now,
        make=lambda cache, _path, _query: views.now_of(cache.snapshot(), cache.vitals(), cache.reports(), cache.now()),
    ),
    ApiPath(
        path="/map",
        name="map",
        summary="Sources and workloads, and which uses which.",
        answer=Map,
        make=lambda cache, _path, _query: views.map_of(cache.snapshot(), cache.now()),
    ),
    ApiPath(
        path="/history",
        name="history",
        summary="What changed and what followed, newest first.",
        answer=History,
        query=HistoryParameters,
        make=lambda cache, _path, query: views.history_of(cache.snapshot(), filters_of(query), cache.now()),
    ),
    ApiPath(
        path="/history/{id}",
        name="historyEntry",
        summary="One entry of the history.",
        answer=HistoryEntry,
        within=EntryPath,
        make=lambda cache, path, _query: views.entry_of(cache.snapshot(), path.id),
    ),
    ApiPath(
        path="/workloads/{kind}/{namespace}/{name}",
        name="workload",
        summary="Why a workload restarts, and why it does not.",
        answer=WorkloadView,
        within=WorkloadPath,
        make=lambda cache, path, _query: views.workload_of(cache.snapshot(), path.kind, path.namespace, path.name),
    ),
    ApiPath(
        path="/operators",
        name="operators",
        summary="What every operator shows of itself.",
        answer=Operators,
        make=lambda cache, _path, _query: views.operators_of(cache.reports(), cache.now()),
    ),
    ApiPath(
        path="/health",
        name="health",
        summary="Watches, queues, checks, leadership.",
        answer=ProcessHealth,
        make=lambda cache, _path, _query: views.health_of(cache.vitals(), cache.now()),
    ),
    ApiPath(
        path="/status",
        name="status",
        summary="Now, health and operators in one answer.",
        answer=StatusReport,
        make=lambda cache, _path, _query: views.status_of(
            cache.snapshot(), cache.vitals(), cache.reports(), cache.now()
        ),
    ),
)


class BadParameter(ValueError):  # noqa: N818  says what it is
    """A parameter is invalid; the text says which and why."""


def read_parameters(shape: type[msgspec.Struct], given: Mapping[str, list[str]]) -> Any:
    """The parameters, typed."""
    twice = [name for name, values in given.items() if len(values) > 1]
    if twice:
        raise BadParameter(f"{twice[0]}: given more than once")
    try:
        return msgspec.convert({name: values[0] for name, values in given.items()}, shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadParameter(str(error).replace(" - at `$.", ": ").replace("Object contains", "there is an")) from None
