"""The dialect of stakater/Reloader, as version 1 has it.

    on a workload or its template   reloader.stakater.com/auto, configmap.…/auto, secret.…/auto      all it reads
                                    configmap.reloader.stakater.com/reload, secret.…/reload          names, expressions
                                    secretproviderclass.…/auto, secretproviderclass.…/reload         the same
                                    reloader.stakater.com/search                                     those with match
    on a Deployment                 deployment.reloader.stakater.com/pause-period                    paused that long
    on a Rollout                    reloader.stakater.com/rollout-strategy: restart                  by spec.restartAt
    on the workload only            configmaps.exclude.reloader.stakater.com/reload, secrets.…       names
    on a source                     reloader.stakater.com/match, reloader.stakater.com/ignore
    written on the template         STAKATER_NAME_CONFIGMAP in the container that reads the source   (env-vars), or
                                    reloader.stakater.com/last-reloaded-from                         (annotations)

`verdict` is the truth table. The original's hash cannot tell some contents apart and its variables some names; here
both only serve to learn what it applied and to leave what it would have left.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.kube.api.durations import parse_duration
from steersman.kube.api.times import format_time, parse_time
from steersman.operators.reload.api.annotations import split_list
from steersman.operators.reload.api.config import SourceKind, SourceRef, Strategy
from steersman.operators.reload.compat.dialect import CompatAnnotations, Pause, SourceClaim
from steersman.operators.reload.compat.dialects.hashes import ReloaderHash
from steersman.operators.reload.compat.dialects.patterns import name_pattern, patterns_in
from steersman.operators.reload.planning.edges import reference_claim
from steersman.operators.reload.sources.references import ReferenceType, Variable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import timedelta

    from steersman.operators.reload.planning.edges import DependencyEdge, Sources
    from steersman.operators.reload.sources.digest import Hash, Source
    from steersman.operators.reload.sources.references import Reference
    from steersman.operators.reload.workloads.workload import Workload

EMPTY_HASH: Final = "aae45badef99284e4dae01d6046154ea9d99532f"  # what the original writes for a deleted source
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FOREIGN: Final = re.compile(r"[^A-Z0-9]+")
_READ: Final = frozenset(
    {ReferenceType.ENV, ReferenceType.ENV_FROM, ReferenceType.VOLUME, ReferenceType.PROJECTED, ReferenceType.CSI}
)


class ReloaderVerdict(StrEnum):
    """Whether a change of a source restarts a workload."""

    NO = "no"
    NAMED = "named"  # whether or not it refers to it
    AUTO = "auto"  # when a container reads it


_PLAIN: Final = ("configmap", "secret", "secretproviderclass")
_EXCLUDE: Final = ("configmaps.exclude", "secrets.exclude", "secretproviderclasses.exclude")


def _per_kind(what: str, parts: tuple[str, ...] = _PLAIN) -> dict[SourceKind, str]:
    kinds = (SourceKind.CONFIGMAP, SourceKind.SECRET, SourceKind.PROVIDER_CLASS)
    return {kind: f"{part}.reloader.stakater.com/{what}" for kind, part in zip(kinds, parts, strict=True)}


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The annotations, which the original lets people rename."""

    auto: str = "reloader.stakater.com/auto"
    search: str = "reloader.stakater.com/search"
    match: str = "reloader.stakater.com/match"
    ignore: str = "reloader.stakater.com/ignore"
    last: str = "reloader.stakater.com/last-reloaded-from"
    strategy: str = "reloader.stakater.com/rollout-strategy"
    pause: str = "deployment.reloader.stakater.com/pause-period"
    paused_at: str = "deployment.reloader.stakater.com/paused-at"
    typed_auto: dict[SourceKind, str] = msgspec.field(default_factory=lambda: _per_kind("auto"))
    named: dict[SourceKind, str] = msgspec.field(default_factory=lambda: _per_kind("reload"))
    exclude: dict[SourceKind, str] = msgspec.field(default_factory=lambda: _per_kind("reload", _EXCLUDE))

    def all(self) -> frozenset[str]:
        """Every one of them."""
        single = (self.auto, self.search, self.match, self.ignore, self.last, self.strategy, self.pause, self.paused_at)
        return frozenset({*single, *self.typed_auto.values(), *self.named.values(), *self.exclude.values()})


class Reloader:
    """See the module."""

    name = "reloader"
    hashes: tuple[Hash, ...] = (ReloaderHash(),)

    def __init__(
        self, *, strategy: Strategy = Strategy.ENV_VARS, auto_all: bool = False, names: Names | None = None
    ) -> None:
        self._strategy = strategy
        self._auto_all = auto_all
        self._names = names or Names()
        self.annotations = self._names.all()

    @property
    def total(self) -> None:
        """None."""

    def claims(self, workload: Workload, sources: Sources) -> Iterator[SourceClaim]:
        """The sources that the truth table lets in."""
        read = _read(workload)
        named = {source for kind in SourceKind for source in self._named(workload, kind, sources)}
        for source in sorted(read.keys() | named):
            decision, rule = self._verdict(workload, source, sources.get(source))
            if decision is ReloaderVerdict.NAMED:  # the first mount of a provider class is not a change
                yield SourceClaim(source=source, rule=rule, optional=source.kind is not SourceKind.PROVIDER_CLASS)
            if decision is not ReloaderVerdict.NO:
                for reference in read.get(source, ()):
                    yield reference_claim(workload, reference, rule)

    def problems(self, workload: Workload) -> Iterator[str]:
        """Invalid expressions and durations."""
        text = workload.annotations.get(self._names.pause)
        if text is not None and type(workload).KIND.kind == "Deployment" and self._pause(workload) is None:
            yield f'{self._names.pause}: "{text[:100]}" is not a duration (try 5m); it restarts without it'
        for annotation in self._names.exclude.values():
            if problem := split_list(workload.annotations.get(annotation, ""))[1]:
                yield f"{annotation}: {problem}"
        for kind, annotation in self._names.named.items():
            words, problem = patterns_in(self._chosen(workload, kind).get(annotation, ""))
            if problem:
                yield f"{annotation}: {problem}"
            for word in words:
                try:
                    name_pattern(word)
                except FormatError as error:
                    yield f"{annotation}: {error}"

    def window(self, _workload: Workload) -> None:
        """None: the configuration decides."""

    def pause(self, workload: Workload) -> Pause | None:
        """The pause that a restart began. One whose beginning or length is unknown is over."""
        began = workload.annotations.get(self._names.paused_at)
        if not began or not workload.facts.paused or type(workload).KIND.kind != "Deployment":
            return None
        period = self._pause(workload)
        try:
            until = parse_time(began).timestamp() + (period.total_seconds() if period is not None else 0.0)
        except FormatError:
            until = 0.0
        return Pause(until, self._names.paused_at)

    def _pause(self, workload: Workload) -> timedelta | None:
        text = workload.annotations.get(self._names.pause) if type(workload).KIND.kind == "Deployment" else None
        try:
            return None if text is None else parse_duration(text)
        except FormatError:
            return None

    def known(self, workload: Workload, edge: DependencyEdge, source: Source) -> bool | None:
        """Whether the variable, or the annotation that names the last source, has the hash of the source now."""
        ref, facts = edge.source, workload.facts
        if ref.namespace != workload.namespace or self._verdict(workload, ref, source)[0] is ReloaderVerdict.NO:
            return None
        now = source.hashes.get(self.name)
        wanted = variable_name(ref)
        values = {variable.value for variable in facts.variables if variable.name == wanted}
        if now in values:
            return True
        last = _last(facts.template_annotations.get(self._names.last))
        kind = str(last.get("type") or last.get("kind", "")).lower()  # version 2 says kind
        if last.get("name") == ref.name and kind == ref.kind.value:
            return bool(last.get("hash") == now)
        if not values or self._shared(workload, ref):
            return None
        return False

    def marks(
        self,
        workload: Workload,
        edges: Iterable[DependencyEdge],
        sources: Mapping[SourceRef, Source],
        *,
        changed: Collection[SourceRef],
        restart_at: float | None,
    ) -> CompatAnnotations:
        """The variables of what changed and of what has one already, or the annotation that names what changed."""
        if restart_at is None:
            return CompatAnnotations()
        hashes: dict[SourceRef, str | None] = {
            edge.source: source.hashes.get(self.name, "")
            for edge in edges
            if (source := sources.get(edge.source)) is not None
            and edge.source.namespace == workload.namespace
            and self._verdict(workload, edge.source, source)[0] is not ReloaderVerdict.NO
        }
        if type(workload).KIND.kind == "Rollout" and workload.annotations.get(self._names.strategy) == "restart":
            return CompatAnnotations(by_time=bool(hashes))
        hashes |= {source: None for source in changed if self._is_deleted(workload, source, sources)}
        if self._strategy is Strategy.ANNOTATIONS:
            marks = self._annotated(workload, hashes, changed, restart_at)
        else:
            marks = CompatAnnotations(variables=tuple(self._variables(workload, hashes, changed)))
        if not hashes or self._pause(workload) is None or workload.facts.paused:
            return marks
        return replace(marks, metadata={self._names.paused_at: format_time(restart_at)}, paused=True)

    # -- the machinery -------------------------------------------------------------------------------------------------

    def _verdict(self, workload: Workload, source: SourceRef, held: Source | None) -> tuple[ReloaderVerdict, str]:
        return verdict(
            source.kind,
            source.name,
            metadata=workload.annotations,
            template=workload.facts.template_annotations,
            source=held.annotations if held is not None else {},
            names=self._names,
            auto_all=self._auto_all,
        )

    def _is_deleted(self, workload: Workload, source: SourceRef, sources: Mapping[SourceRef, Source]) -> bool:
        """Whether a restart is for a source that is gone, and this dialect has a say in it."""
        is_ours = self._verdict(workload, source, None)[0] is not ReloaderVerdict.NO
        return source not in sources and source.namespace == workload.namespace and is_ours

    def _chosen(self, workload: Workload, kind: SourceKind) -> Mapping[str, str]:
        return _chosen(kind, workload.annotations, workload.facts.template_annotations, self._names)

    def _named(self, workload: Workload, kind: SourceKind, sources: Sources) -> Iterator[SourceRef]:
        """The sources that may be named: plain names whether they exist or not, and all there are for expressions."""
        words = _words(self._chosen(workload, kind).get(self._names.named[kind], ""))
        for word in words:
            try:
                pattern = name_pattern(word)
            except FormatError:
                continue
            if pattern.plain:
                yield SourceRef(kind, workload.namespace, word)
                continue
            for held in sources.of_namespace(kind, workload.namespace):
                if pattern.matches(held.source.name):
                    yield held.source

    def _shared(self, workload: Workload, source: SourceRef) -> bool:
        """Whether another source of the workload has the same variable: then what it holds may be the other's."""
        others = {
            SourceRef(reference.kind, workload.namespace, reference.name) for reference in workload.facts.references
        }
        named = self._chosen(workload, source.kind).get(self._names.named[source.kind], "")
        others |= {SourceRef(source.kind, workload.namespace, word) for word in _words(named)}
        return any(variable_name(other) == variable_name(source) for other in others - {source})

    def _variables(
        self, workload: Workload, hashes: Mapping[SourceRef, str | None], changed: Collection[SourceRef]
    ) -> Iterator[Variable]:
        """The variables to write; one without a value, of a deleted source, is removed."""
        facts = workload.facts
        present = {variable.name: variable.container for variable in facts.variables}
        written: dict[str, Variable] = {}
        for source in sorted(hashes, key=lambda source: (source in changed, source)):  # what changed decides
            name = variable_name(source)
            value = hashes[source]
            container = present.get(name) if value is None else _reader(workload, source) or present.get(name)
            if container is not None and (source in changed or name in present):
                written[name] = Variable(container, name, value)
        yield from written.values()

    def _annotated(
        self, workload: Workload, hashes: Mapping[SourceRef, str | None], changed: Collection[SourceRef], at: float
    ) -> CompatAnnotations:
        named = sorted(source for source in changed if source in hashes)
        if not named:
            return CompatAnnotations()
        source = named[-1]
        last_reload = {
            "type": source.kind.value.upper(),
            "name": source.name,
            "namespace": source.namespace,
            "hash": hashes[source] or EMPTY_HASH,
            "containerRefs": [reader] if (reader := _reader(workload, source)) else [],
            "observedAt": int(at),
        }
        return CompatAnnotations(template={self._names.last: msgspec.json.encode(last_reload).decode()})


def verdict(
    kind: SourceKind,
    name: str,
    *,
    metadata: Mapping[str, str],
    template: Mapping[str, str],
    source: Mapping[str, str],
    names: Names,
    auto_all: bool = False,
) -> tuple[ReloaderVerdict, str]:
    """Whether a change of the source restarts the workload, and the rule that says so."""
    if source.get(names.ignore) == "true":
        return ReloaderVerdict.NO, f"{names.ignore} on the source"
    if name in split_list(metadata.get(names.exclude[kind], ""))[0]:
        return ReloaderVerdict.NO, names.exclude[kind]
    chosen = _chosen(kind, metadata, template, names)
    if any(_matches(word, name) for word in _words(chosen.get(names.named[kind], ""))):
        return ReloaderVerdict.NAMED, names.named[kind]
    if chosen.get(names.search) == "true" and source.get(names.match) == "true":
        return ReloaderVerdict.AUTO, names.search
    values = [chosen.get(names.auto, ""), chosen.get(names.typed_auto[kind], "")]
    if any(value in _TRUE for value in values):
        return ReloaderVerdict.AUTO, names.auto if values[0] in _TRUE else names.typed_auto[kind]
    if auto_all and not any(values):
        return ReloaderVerdict.AUTO, "every workload takes part"
    return ReloaderVerdict.NO, "not enrolled"


def variable_name(source: SourceRef) -> str:
    """The variable with the hash of a source; several names share one.

    >>> variable_name(SourceRef(SourceKind.CONFIGMAP, "shop", "foo--bar"))
    'STAKATER_FOO_BAR_CONFIGMAP'
    """
    name = _FOREIGN.sub("_", source.name.upper()).removeprefix("_")
    return f"STAKATER_{name}_{source.kind.value.upper()}"


def _chosen(
    kind: SourceKind, metadata: Mapping[str, str], template: Mapping[str, str], names: Names
) -> Mapping[str, str]:
    """The annotations that count: those of the workload when it has any of them, otherwise those of its template."""
    asked = (names.named[kind], names.auto, names.typed_auto[kind], names.search)
    return metadata if any(annotation in metadata for annotation in asked) else template


def _words(text: str) -> tuple[str, ...]:
    return patterns_in(text)[0]


def _matches(word: str, name: str) -> bool:
    try:
        return name_pattern(word).matches(name)
    except FormatError:
        return False


def _read(workload: Workload) -> dict[SourceRef, list[Reference]]:
    """What containers read, by source."""
    found: dict[SourceRef, list[Reference]] = {}
    for reference in workload.facts.references:
        if reference.reader is not None and reference.via in _READ:
            found.setdefault(SourceRef(reference.kind, workload.namespace, reference.name), []).append(reference)
    return found


def _reader(workload: Workload, source: SourceRef) -> str | None:
    """The container that gets the variable: one that mounts the source, one that has it in its environment, the first.

    What only init containers read goes to the first container too.
    """
    references = _read(workload).get(source, [])
    mounted = [
        reference for reference in references if reference.via not in (ReferenceType.ENV, ReferenceType.ENV_FROM)
    ]
    direct = [
        reference
        for reference in references
        if reference.via in (ReferenceType.ENV, ReferenceType.ENV_FROM) and reference.reader
    ]
    first = workload.facts.containers[0] if workload.facts.containers else None
    for reference in (*mounted, *direct):
        return reference.reader or first
    return first


def _last(text: str | None) -> dict[str, Any]:
    """What the annotation with the last source says, as far as it can be read."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
