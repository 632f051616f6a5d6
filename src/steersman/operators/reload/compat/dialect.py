"""What a dialect is: another program's annotations on workloads and sources, read and kept up to date.

A dialect claims edges by its own annotations, knows what its original has applied already, and returns what the
original would have written. It decides nothing else: windows, budgets, patches and state are the engine's, whatever
made an edge. The engine asks in this order:

    annotations, hashes      once: what the caches must keep
    claims(...)              per evaluation at a workload: which sources it claims, and why
    problems(...)            per evaluation: which of its annotations make no sense
    window(...)              per evaluation: when its changes become restarts, if the workload says so in this dialect
    known(...)               per edge without applied state: did the original apply what the source says now?
    marks(...)               per patch: what to write beside our own annotation, so that going back causes no rollout
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from steersman.operators.reload.api.config import SourceRef
from steersman.operators.reload.sources.references import Variable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from steersman.operators.reload.api.config import Window
    from steersman.operators.reload.planning.edges import DependencyEdge, Sources
    from steersman.operators.reload.sources.digest import Hash, Source
    from steersman.operators.reload.workloads.workload import Workload


class SourceClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One rule's claim that a workload depends on a source."""

    source: SourceRef
    rule: str  # which rule, and where it was found; `why` shows it
    keys: tuple[str, ...] | None = None  # None: every key
    optional: bool = False  # pods start without it
    required_keys: tuple[str, ...] = ()  # pods do not start without these


class CompatAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """What to write beside our own annotation; None removes an annotation.

    What is on the template is written together with a restart only; annotations of the workload itself whenever they
    differ, so a dialect names only those that do.
    """

    metadata: dict[str, str | None] = {}
    template: dict[str, str | None] = {}
    variables: tuple[Variable, ...] = ()  # environment variables of the template's containers
    paused: bool = False  # the restart begins when the Deployment is resumed, by `Dialect.pause`
    by_time: bool = False  # restart a Rollout by the field that takes a time, and leave its template alone


class Pause(NamedTuple):
    """A Deployment that is paused for a while, so that several changes become one rollout."""

    until: float  # seconds since the epoch
    annotation: str  # that says so on the Deployment, and goes when it is resumed


class TotalHash(Protocol):
    """A hash over the values of all sources of a workload together."""

    def over(self, workload: Workload) -> frozenset[SourceRef]:
        """The sources that go into it."""

    def hash(self, workload: Workload, objects: Mapping[SourceRef, Mapping[str, Any]]) -> str:
        """The hash over them as they are on the wire; found in `Facts.totals` by the name of the dialect."""


class Dialect(Protocol):
    """See the module."""

    name: str
    annotations: frozenset[str]  # names, or prefixes that end in *, to keep on workloads, templates and sources
    hashes: tuple[Hash, ...]  # to compute when a source is decoded; found in `Source.hashes` by their names

    @property
    def total(self) -> TotalHash | None:
        """A hash over all sources together, when it has one; their values are read for it."""

    def claims(self, workload: Workload, sources: Sources) -> Iterable[SourceClaim]:
        """The edges this dialect sees."""

    def problems(self, workload: Workload) -> Iterable[str]:
        """What of its annotations on the workload cannot be read, each with the name of the annotation."""

    def window(self, workload: Workload) -> Window | None:
        """The window that the workload asks for in this dialect; None when it does not."""

    def pause(self, workload: Workload) -> Pause | None:
        """How long the workload stays paused that the dialect paused; None when it did not."""

    def known(self, workload: Workload, edge: DependencyEdge, source: Source) -> bool | None:
        """Whether the original has applied what the source says now; None when its marks do not tell."""

    def marks(
        self,
        workload: Workload,
        edges: Iterable[DependencyEdge],
        sources: Mapping[SourceRef, Source],
        *,
        changed: Collection[SourceRef],
        restart_at: float | None,
    ) -> CompatAnnotations:
        """What the original would have written, on the workload and, when it is restarted, on its template.

        `changed` are the sources that the restart is for. Without a restart they still wait, and the original must
        not read that they are applied.
        """
