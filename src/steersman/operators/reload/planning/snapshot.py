"""The snapshot: everything that one pass over a workload knows, read once. A plan is a function of it and the policy.

    workload   with the template it follows, and with hashes over values where a dialect compares these
    layers     settings of the workload, its policies, its namespace, the innermost first
    edges      the sources it depends on
    sources    the tracked ones that exist, hashed in every canonical form that the plan compares
    observed   what this process remembers of the workload
    moved, deleted   sources that changed or went after the workload began to use them
    settled    sources that changed before it was created

The reads of a snapshot are the workload's interests: whatever was asked for, found or not, causes another pass when it
changes. So no rule and no dialect has to declare its dependencies. `read_snapshot` reads caches only, and is pure given
these; `incomplete` names sources that a reconciler must read from the API server first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.api.errors import Forbidden, NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import PartialObjectMetadata
from steersman.operators.reload.api.annotations import APPLIED, LayerSettings, read_namespace_settings
from steersman.operators.reload.api.config import ReloadOptions, SourceKind, SourceRef
from steersman.operators.reload.planning.edges import Edges, edges_of
from steersman.operators.reload.planning.effective_policy import Layer
from steersman.operators.reload.planning.gates import Moment
from steersman.operators.reload.planning.plan import Observed
from steersman.operators.reload.planning.state import read_state
from steersman.operators.reload.sources.compare import format_compare_rules, parse_compare_rules
from steersman.operators.reload.sources.csi import BY_CLASS, ProviderClass, ProviderStatus, latest, said_on
from steersman.operators.reload.sources.digest import Source
from steersman.operators.reload.sources.digest_cache import SOURCES, CanonicalDigestCache
from steersman.operators.reload.sources.digest_keys import NO_KEYS, Keyring
from steersman.operators.reload.workloads.kinds import BUILT_IN, kind_aliases
from steersman.operators.reload.workloads.workload import Workload, workload_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.operators.reload.controllers.change_tracker import ChangeTracker
    from steersman.operators.reload.planning.effective_policy import PolicyIndex

DEPLOYMENT: Final = workload_class(BUILT_IN[0].kind)


class NamespaceSettings(PartialObjectMetadata, version="v1", kind="Namespace", namespaced=False):
    """A namespace, for its annotations."""


class WorkloadSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    workload: Workload
    now: Moment
    layers: tuple[Layer, ...]
    edges: Edges
    sources: dict[SourceRef, Source]
    observed: Observed = Observed()
    moved: dict[SourceRef, bool] = {}  # true for a source that was created then
    deleted: frozenset[SourceRef] = frozenset()
    settled: frozenset[SourceRef] = frozenset()
    changed_at: dict[SourceRef, float] = {}  # on the monotonic clock; known only of some, and while changes wait
    keys: Keyring = NO_KEYS  # of the digests
    reload_on_create: bool = True  # whether a source that appears is a change
    reload_on_delete: bool = False  # whether a source that is gone is one
    interests: frozenset[str] = frozenset()
    compare_rules: dict[SourceRef, frozenset[str]] = {}  # by which sources are compared, now and when recorded

    @property
    def incomplete(self) -> frozenset[SourceRef]:
        """The sources that are not hashed in every form by which they are compared: nothing may be concluded."""
        return frozenset(
            ref
            for ref, texts in self.compare_rules.items()
            if (source := self.sources.get(ref)) is not None
            and any(source.lacks(parse_compare_rules(text)) for text in texts)
        )


class SnapshotSources:
    """The sources that the caches hold, and which of them were asked for."""

    def __init__(self, cache: Any, kinds: Iterable[SourceKind], forms: CanonicalDigestCache | None = None) -> None:
        self._cache = cache  # Snapshots
        self._forms = forms or CanonicalDigestCache()
        self.kinds = frozenset(kinds)
        self.asked: set[str] = set()

    def get(self, ref: SourceRef) -> Source | None:
        """The source of that name, if it exists."""
        self.asked.add(str(ref))
        if ref.kind not in self.kinds:
            return None
        if ref.kind is SourceKind.PROVIDER_CLASS:
            mounted = latest(self._cache[ProviderStatus].by_index(BY_CLASS, f"{ref.namespace}/{ref.name}"))
            return said_on(mounted, self._cache[ProviderClass].get(NamespacedName(ref.name, ref.namespace)))
        return self._forms.shown(self._cache[SOURCES[ref.kind]].get(NamespacedName(ref.name, ref.namespace)), ref)

    def of_namespace(self, kind: SourceKind, namespace: str) -> Sequence[Source]:
        """All sources of a kind in one namespace."""
        self.asked.add(f"{kind.value}/{namespace}/*")
        if kind not in self.kinds:
            return ()
        if kind is SourceKind.PROVIDER_CLASS:
            statuses: Sequence[ProviderStatus] = self._cache[ProviderStatus].list(namespace=namespace)
            refs = sorted({status.source for status in statuses})
            return [source for ref in refs if (source := self.get(ref)) is not None]
        found: Sequence[Source] = self._cache[SOURCES[kind]].list(namespace=namespace)
        return found


def interests_in(obj: Source | Workload) -> tuple[str, ...]:
    """The names by which workloads express interest in an object."""
    if isinstance(obj, Workload):
        return (_template_name(obj.namespace, obj.name),)
    source = obj.source
    return str(source), f"{source.kind.value}/{source.namespace}/*"


def read_snapshot(
    workload: Workload,
    cache: Any,
    *,
    options: ReloadOptions,
    tracker: ChangeTracker,
    now: Moment,
    kinds: Iterable[SourceKind],
    dialects: Sequence[Dialect] = (),
    namespaces: bool = True,
    policies: PolicyIndex | None = None,
    forms: CanonicalDigestCache | None = None,
    keys: Keyring = NO_KEYS,
) -> WorkloadSnapshot:
    """What the caches show of `workload` and of everything it depends on."""
    sources = SnapshotSources(cache, kinds, forms)
    workload = _with_template(workload, cache, sources)
    namespace = cache[NamespaceSettings].get(NamespacedName(workload.namespace)) if namespaces else None
    around = LayerSettings()
    if namespace is not None:
        around = read_namespace_settings(namespace.annotations, workload.namespace, kind_aliases(options.kinds))
    near, far = policies.layers(workload, cache) if policies is not None else ([], [])
    layers = (Layer("the workload", workload.facts.settings), *near, Layer("the namespace", around), *far)
    left_out = _left_out(options, workload.namespace, namespace)
    edges = (
        Edges(reason=left_out)
        if left_out
        else edges_of(
            workload,
            sources,
            namespace=around,
            scopes=options.scopes,
            dialects=dialects,
            kinds=sources.kinds,
            ignored=tuple(pattern for layer in (*near, *far) for pattern in layer.settings.ignore),
            names=options.names,
            compare=options.features.compare,
        )
    )
    observed = tracker.observed(workload)
    found = {edge.source: source for edge in edges.tracked if (source := sources.get(edge.source)) is not None}
    return WorkloadSnapshot(
        workload=workload,
        now=now,
        layers=layers,
        edges=edges,
        sources=found,
        observed=observed,
        moved=tracker.moved(workload.ref, edges.tracked),
        deleted=tracker.deleted(workload.ref, edges.tracked) if options.reload_on_delete else frozenset(),
        settled=tracker.born_after(workload.ref, [edge.source for edge in edges.tracked]),
        changed_at=tracker.changed_at(edges.tracked) if observed.pending else {},
        keys=keys,
        reload_on_create=options.reload_on_create,
        reload_on_delete=options.reload_on_delete,
        interests=frozenset(sources.asked),
        compare_rules=_compare_rules(workload, edges, observed),
    )


def _compare_rules(workload: Workload, edges: Edges, observed: Observed) -> dict[SourceRef, frozenset[str]]:
    """The rules by which a plan will compare each source: those in force, and those of what was recorded."""
    applied = read_state(workload.annotations.get(APPLIED)).applied
    recorded = [state for state in (applied, observed.applied) if state is not None]
    names = {edge.source: edge.source.seen_from(workload.namespace) for edge in edges.tracked}
    of_total: dict[str, str] = {}
    if applied is not None and applied.total is not None and applied.total.count == len(names):
        of_total = applied.total.compare_rules_by_source(applied.compare_rules, names.values())
    found = {}
    for edge in edges.tracked:
        name, first = names[edge.source], observed.seen.get(edge.source)
        texts = {format_compare_rules(edge.compare_rules), of_total.get(name, "")}
        texts |= {state.sources[name].compare_rules for state in recorded if name in state.sources}
        texts |= set() if first is None else {first.compare_rules}
        if texts := texts - {""}:
            found[edge.source] = frozenset(texts)
    return found


def _left_out(options: ReloadOptions, namespace: str, around: NamespaceSettings | None) -> str:
    """Why no workload of this namespace is enrolled; empty when they may be."""
    if namespace in options.ignored_namespaces:
        return f"namespace {namespace} is left out"
    selector = options.namespace_selector
    if selector is not None and not selector.matches(around.labels if around is not None else {}):
        return f"namespace {namespace} is left out (its labels do not match {selector})"
    return ""


def _with_template(workload: Workload, cache: Any, sources: SnapshotSources) -> Workload:
    """A workload that uses the template of a Deployment, with that template's references."""
    name = workload.facts.follows
    if name is None:
        return workload
    sources.asked.add(_template_name(workload.namespace, name))
    followed: Workload | None = cache[DEPLOYMENT].get(NamespacedName(name, workload.namespace))
    if followed is None:
        return workload
    selector = workload.facts.selector or followed.facts.selector
    return replace(workload, facts=replace(workload.facts, references=followed.facts.references, selector=selector))


def _template_name(namespace: str, name: str) -> str:
    return f"template/{namespace}/{name}"


def total_sources(workload: Workload, dialects: Sequence[Dialect]) -> frozenset[SourceRef]:
    """The sources whose values are needed; usually none."""
    return frozenset().union(*(dialect.total.over(workload) for dialect in dialects if dialect.total is not None))


def with_totals(
    workload: Workload, dialects: Sequence[Dialect], objects: Mapping[SourceRef, Mapping[str, Any]]
) -> Workload:
    """The workload with the hashes over these sources; those that are not among them do not exist."""
    totals = {
        dialect.name: dialect.total.hash(workload, objects)
        for dialect in dialects
        if dialect.total is not None and dialect.total.over(workload)
    }
    return replace(workload, facts=replace(workload.facts, totals=totals)) if totals else workload


async def read_totals(client: Any, workload: Workload, dialects: Sequence[Dialect]) -> Workload:
    """The workload with such hashes, over values read now; without them where one may not be read."""
    objects: dict[SourceRef, Mapping[str, Any]] = {}
    for source in sorted(total_sources(workload, dialects)):
        try:
            objects[source] = await client.get(SOURCES[source.kind].KIND, source.name, namespace=source.namespace)
        except NotFound:
            continue
        except Forbidden:
            return workload
    return with_totals(workload, dialects, objects)
