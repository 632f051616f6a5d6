"""Edges: which sources a workload depends on, and which rule says so. Pure.

    claims of the native rules ┐
    claims of the scopes       ├─► one edge per source: all keys in use, all rules that made it
    claims of the dialects     ┘       minus what the workload or the source has switched off

An edge that two rules claim counts once. What is not watched is kept too, each with the first rule that said no, since
"why did it not restart" is asked more often than "why did it".
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from steersman.errors import FormatError
from steersman.operators.reload.api.annotations import (
    APPLIED,
    RELOAD,
    RELOAD_EXTRA,
    RELOAD_IGNORE,
    SHARE_WITH,
    LayerSettings,
    Mode,
    SourcePattern,
)
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.compat.dialect import SourceClaim
from steersman.operators.reload.planning.state import read_state
from steersman.operators.reload.sources.compare import (
    LONGEST_RULES,
    MOST_MATCHES,
    CompareRule,
    comparisons_for,
    effective_compare_rules,
    forms_by_key,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from steersman.operators.reload.api.config import CompareConfig, LabelScope
    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.operators.reload.sources.digest import Source
    from steersman.operators.reload.sources.references import Reference
    from steersman.operators.reload.workloads.workload import Workload

_SHOWN: Final = 3  # keys that a message names


class Sources(Protocol):
    """The sources of one snapshot."""

    def get(self, ref: SourceRef) -> Source | None:
        """The source of that name, if it exists."""

    def of_namespace(self, kind: SourceKind, namespace: str) -> Iterable[Source]:
        """All sources of a kind in one namespace."""


class DependencyEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A workload depends on a source."""

    source: SourceRef
    keys: frozenset[str] | None = None  # None: every key
    ignored: tuple[SourcePattern, ...] = ()  # keys that do not count
    required: frozenset[str] = frozenset()  # keys without which pods do not start
    optional: bool = False  # pods start without the source
    rules: tuple[str, ...] = ()
    compare_rules: tuple[CompareRule, ...] = ()  # in which its keys are compared; the first that matches a key decides

    def uses(self, key: str) -> bool:
        """Whether a change of this key matters."""
        wanted = self.keys is None or key in self.keys
        return wanted and not any(pattern.matches_key(key) for pattern in self.ignored)


class Untracked(msgspec.Struct, frozen=True):
    """A source that the workload uses and that is not watched for it."""

    source: SourceRef
    rule: str


class Edges(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload depends on."""

    tracked: tuple[DependencyEdge, ...] = ()
    untracked: tuple[Untracked, ...] = ()
    withheld: tuple[SourceRef, ...] = ()  # of other namespaces, and not granted: it is not revealed whether they exist
    reason: str = ""  # why nothing is tracked, when nothing is
    problems: tuple[str, ...] = ()


def edges_of(
    workload: Workload,
    sources: Sources,
    *,
    namespace: LayerSettings,
    scopes: Sequence[LabelScope] = (),
    dialects: Sequence[Dialect] = (),
    kinds: Collection[SourceKind] = (SourceKind.CONFIGMAP, SourceKind.SECRET),
    ignored: Sequence[SourcePattern] = (),
    names: Mapping[SourceKind, frozenset[str]] = MappingProxyType({}),
    compare: Sequence[CompareConfig] = (),
) -> Edges:
    """What `workload` depends on; `namespace` is what its namespace asks for, `kinds` are the sources watched.

    `ignored` are the sources and keys that policies leave out, besides the workload's own; `names` the only ones of a
    kind that are watched, where there is a list; `compare` are the comparison rules of the configuration, which apply
    after those on the source itself.
    """
    settings = workload.facts.settings
    problems = (
        *settings.problems,
        *(f"namespace {workload.namespace}: {text}" for text in namespace.problems),
        *(text for dialect in dialects for text in dialect.problems(workload)),
    )
    mode, origin = (settings.mode, "workload") if settings.mode is not None else (namespace.mode, "namespace")
    if mode is Mode.OFF:
        reason = f"{RELOAD}: off on the {origin}"
        return Edges(untracked=_not_watched(workload, (), reason), reason=reason, problems=problems)
    claims = [
        *_native(workload, mode, origin),
        *_extra(workload),
        *_scoped(workload, sources, scopes),
        *(claim for dialect in dialects for claim in dialect.claims(workload, sources)),
    ]
    tracked, refused, withheld = [], [], []
    for edge in _united(claims):
        if edge.source.name not in names.get(edge.source.kind, (edge.source.name,)):
            refused.append(Untracked(edge.source, f"{edge.source.kind.value} of that name is not watched"))
            continue
        edge_or_rule = _allowed(edge, workload, sources, kinds, ignored)
        if isinstance(edge_or_rule, DependencyEdge):
            rules, problem = _compare_rules(edge_or_rule, workload, sources.get(edge.source), compare)
            tracked.append(msgspec.structs.replace(edge_or_rule, compare_rules=rules) if rules else edge_or_rule)
            problems = (*problems, problem) if problem else problems
        else:
            refused.append(Untracked(edge.source, edge_or_rule))
            if edge_or_rule == _ungranted(workload):
                withheld.append(edge.source)
                named = edge.source.seen_from(workload.namespace)
                problems = (*problems, f"{RELOAD_EXTRA}: {named}: {edge_or_rule}")
    unclaimed = "not enrolled" if mode is None else f"not named by {RELOAD}"
    claimed = {claim.source for claim in claims}
    reason = "" if tracked else _reason(workload, mode, claims, refused)
    return Edges(
        tracked=tuple(tracked),
        untracked=(*refused, *_not_watched(workload, claimed, unclaimed)),
        withheld=tuple(withheld),
        reason=reason,
        problems=(*problems, *_problems_of(tracked, workload, sources)),
    )


def _problems_of(edges: Iterable[DependencyEdge], workload: Workload, sources: Sources) -> Iterator[str]:
    """Invalid settings on the sources it uses: reported on the workload, since sources have no reconciler."""
    for edge in edges:
        source = sources.get(edge.source)
        if source is None:
            continue
        named = edge.source.seen_from(workload.namespace)
        for text in source.settings.problems:
            yield f"{named}: {text}"
        if len(source.digests) * len(edge.compare_rules) > MOST_MATCHES:
            yield f"{named}: too many keys to match with {len(edge.compare_rules)} globs; compared byte by byte"
        keys = sorted(key for key in forms_by_key(source.beyond, edge.compare_rules) if edge.uses(key))
        if keys:
            more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
            yield f"{named}: {', '.join(keys[:_SHOWN])}{more}: too large to parse; compared byte by byte"


def reference_claim(workload: Workload, reference: Reference, rule: str) -> SourceClaim:
    """The claim that a reference makes once a rule has enrolled the workload."""
    return SourceClaim(
        source=SourceRef(reference.kind, workload.namespace, reference.name),
        rule=f"{reference.where} ({rule})",
        keys=reference.keys,
        optional=reference.optional,
        required_keys=() if reference.optional else reference.keys or (),
    )


def _native(workload: Workload, mode: Mode | None, origin: str) -> Iterator[SourceClaim]:
    facts = workload.facts
    if mode is Mode.AUTO:
        for reference in facts.references:
            yield reference_claim(workload, reference, f"{RELOAD}: auto on the {origin}")
    elif mode is Mode.NAMED:
        referred = {SourceRef(reference.kind, workload.namespace, reference.name) for reference in facts.references}
        for pattern in facts.settings.named:
            rule = f"{RELOAD}: {pattern}"
            for reference in facts.references:
                if pattern.matches(SourceRef(reference.kind, workload.namespace, reference.name)):
                    yield reference_claim(workload, reference, rule)
            exact = SourceRef(pattern.kind, workload.namespace, pattern.name)
            if not pattern.glob and exact not in referred:
                yield SourceClaim(source=exact, rule=rule, optional=True)


def _extra(workload: Workload) -> Iterator[SourceClaim]:
    for source in workload.facts.settings.extra:
        yield SourceClaim(source=source, rule=f"{RELOAD_EXTRA}: {source.seen_from(workload.namespace)}", optional=True)


def _scoped(workload: Workload, sources: Sources, scopes: Sequence[LabelScope]) -> Iterator[SourceClaim]:
    for scope in scopes:
        group = scope.group(workload.namespace, workload.labels)
        if group is None or type(workload).KIND.kind not in scope.workloads:
            continue
        for kind in scope.sources:
            for source in sources.of_namespace(kind, workload.namespace):
                if scope.group(source.namespace, source.labels) == group:
                    yield SourceClaim(
                        source=source.source, rule=f"selector {scope.selector}, {scope.env_label}={group}"
                    )
        yield from _gone(workload, sources, scope)


def _gone(workload: Workload, sources: Sources, scope: LabelScope) -> Iterator[SourceClaim]:
    """Sources that were applied and no longer exist: their labels are unknown, and they may come back changed."""
    applied = read_state(workload.annotations.get(APPLIED)).applied
    for name in applied.sources if applied is not None else ():
        try:
            source = SourceRef.parse(name, workload.namespace)
        except FormatError:
            continue
        if source.kind in scope.sources and source.namespace == workload.namespace and sources.get(source) is None:
            yield SourceClaim(source=source, rule=f"selector {scope.selector}, gone", optional=True)


def _united(claims: Iterable[SourceClaim]) -> Iterator[DependencyEdge]:
    by_source: dict[SourceRef, list[SourceClaim]] = {}
    for claim in claims:
        by_source.setdefault(claim.source, []).append(claim)
    for source, same in by_source.items():
        keys = None if any(claim.keys is None for claim in same) else frozenset(k for c in same for k in c.keys or ())
        yield DependencyEdge(
            source=source,
            keys=keys,
            required=frozenset(key for claim in same for key in claim.required_keys),
            optional=all(claim.optional for claim in same),
            rules=tuple(dict.fromkeys(claim.rule for claim in same)),
        )


def _allowed(
    edge: DependencyEdge,
    workload: Workload,
    sources: Sources,
    kinds: Collection[SourceKind],
    ignored: Sequence[SourcePattern],
) -> DependencyEdge | str:
    """The edge with what it ignores, or the rule that forbids it."""
    if edge.source.kind not in kinds:
        return f"{edge.source.kind.value} is not watched"
    source = sources.get(edge.source)
    foreign = edge.source.namespace != workload.namespace
    if foreign and (source is None or not source.settings.grants(workload.namespace)):
        return _ungranted(workload)  # the same answer whether it exists or not
    if source is not None and source.settings.off:
        return f"{RELOAD}: off on the source"
    patterns = [pattern for pattern in (*workload.facts.settings.ignore, *ignored) if pattern.matches(edge.source)]
    if whole := next((pattern for pattern in patterns if pattern.key is None), None):
        return f"{RELOAD_IGNORE}: {whole}"
    edge = msgspec.structs.replace(edge, ignored=tuple(patterns)) if patterns else edge
    if edge.keys is not None and not any(map(edge.uses, edge.keys)):
        return f"{RELOAD_IGNORE}: {', '.join(map(str, patterns))}"
    return edge


def _compare_rules(
    edge: DependencyEdge, workload: Workload, source: Source | None, compare: Sequence[CompareConfig]
) -> tuple[tuple[CompareRule, ...], str]:
    """The rules by which the keys of a source are compared, and what is wrong with them."""
    ref = edge.source
    if source is None or ref.kind is SourceKind.PROVIDER_CLASS:
        return (), ""
    configured = comparisons_for(compare, ref.kind.value, ref.namespace, ref.name, "the configuration")
    rules, globs = effective_compare_rules((*source.settings.compare, *configured))
    if len(rules) == globs:
        return rules, ""
    name = ref.seen_from(workload.namespace)
    noted = f"only the first {len(rules)} fit into {LONGEST_RULES} characters and count"
    return rules, f"{name}: {globs} globs say how its keys are compared; {noted}"


def _ungranted(workload: Workload) -> str:
    return f"the source does not grant it ({SHARE_WITH}: {workload.namespace})"


def _not_watched(workload: Workload, claimed: Collection[SourceRef], rule: str) -> tuple[Untracked, ...]:
    references = workload.facts.references
    found = (SourceRef(reference.kind, workload.namespace, reference.name) for reference in references)
    return tuple(Untracked(source, rule) for source in dict.fromkeys(found) if source not in claimed)


def _reason(workload: Workload, mode: Mode | None, claims: Sequence[SourceClaim], refused: Sequence[Untracked]) -> str:
    if refused:
        return f"{refused[0].source.seen_from(workload.namespace)}: {refused[0].rule}"
    if mode is None and not claims:
        return f"not enrolled (no {RELOAD} on the workload or its namespace, no selector, no dialect)"
    return "it refers to no source"
