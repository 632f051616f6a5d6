"""One look at a workload: from what the caches hold to a plan. Pure, given its snapshots.

The reads of a look are its interests: whatever was asked for, found or not, is what must be looked at again when it
changes. So no rule, and no dialect, has to say separately what it depends on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.objects import PartialObjectMetadata
from steersman.kube.resources import ObjectRef
from steersman.operators.reload.comparison import read_ways
from steersman.operators.reload.digest import Source
from steersman.operators.reload.edges import Edges, edges_of
from steersman.operators.reload.forms import SOURCES, Forms
from steersman.operators.reload.gates import Policy
from steersman.operators.reload.kinds import BUILT_IN, kind_words
from steersman.operators.reload.plan import Plan, make_plan
from steersman.operators.reload.providers import BY_CLASS, ProviderClass, ProviderStatus, latest, said_on
from steersman.operators.reload.rulings import Layer, policy_for
from steersman.operators.reload.settings import Settings, read_namespace_settings
from steersman.operators.reload.types import NOTIFY, Options, SourceKind, SourceRef
from steersman.operators.reload.workloads import Workload, workload_class, workload_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.reload.dialect import Dialect
    from steersman.operators.reload.gates import Company, Moment
    from steersman.operators.reload.ledger import Ledger
    from steersman.operators.reload.policybook import PolicyBook

__all__ = ["Look", "NamespaceSettings", "SnapshotSources", "interests_in", "look_at"]


class NamespaceSettings(PartialObjectMetadata, version="v1", kind="Namespace", namespaced=False):
    """A namespace, for its annotations."""


DEPLOYMENT: Final = workload_class(BUILT_IN[0].kind)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found."""

    workload: Workload
    edges: Edges
    plan: Plan
    policy: Policy
    interests: frozenset[str]
    sources: dict[SourceRef, Source]  # those of the tracked edges that exist
    ways: dict[SourceRef, frozenset[str]] = {}  # in which they were compared, now and when they were written down
    lacking: frozenset[SourceRef] = frozenset()  # not hashed in all these forms: nothing is to be concluded


class SnapshotSources:
    """The sources of one snapshot, and which of them were asked for."""

    def __init__(self, cache: Any, kinds: Iterable[SourceKind], forms: Forms | None = None) -> None:
        self._cache = cache  # Snapshots
        self._forms = forms or Forms()
        self.kinds = frozenset(kinds)
        self.asked: set[str] = set()
        self.ways: dict[SourceRef, set[str]] = {}

    def get(self, ref: SourceRef) -> Source | None:
        """The source of that name, if it exists."""
        self.asked.add(str(ref))
        if ref.kind not in self.kinds:
            return None
        if ref.kind is SourceKind.PROVIDER_CLASS:
            mounted = latest(self._cache[ProviderStatus].by_index(BY_CLASS, f"{ref.namespace}/{ref.name}"))
            return said_on(mounted, self._cache[ProviderClass].get(ObjectRef(ref.name, ref.namespace)))
        return self._forms.shown(self._cache[SOURCES[ref.kind]].get(ObjectRef(ref.name, ref.namespace)), ref)

    def compares(self, ref: SourceRef, ways: str) -> None:
        """Somebody compares the keys of a source so."""
        if ways:
            self.ways.setdefault(ref, set()).add(ways)

    def lacking(self) -> frozenset[SourceRef]:
        """The sources that have not been hashed in all forms in which they were compared."""
        return frozenset(
            ref
            for ref, texts in self.ways.items()
            if (held := self.get(ref)) is not None and any(held.lacks(read_ways(text)) for text in texts)
        )

    def of_namespace(self, kind: SourceKind, namespace: str) -> Sequence[Source]:
        """All sources of a kind in one namespace."""
        self.asked.add(f"{kind.value}/{namespace}/*")
        if kind not in self.kinds:
            return ()
        if kind is SourceKind.PROVIDER_CLASS:
            statuses: Sequence[ProviderStatus] = self._cache[ProviderStatus].list(namespace=namespace)
            return [one for ref in sorted({status.source for status in statuses}) if (one := self.get(ref)) is not None]
        found: Sequence[Source] = self._cache[SOURCES[kind]].list(namespace=namespace)
        return found


def interests_in(obj: Source | Workload) -> tuple[str, ...]:
    """The names under which somebody may be interested in an object."""
    if isinstance(obj, Workload):
        return (_template_name(obj.namespace, obj.name),)
    source = obj.source
    return str(source), f"{source.kind.value}/{source.namespace}/*"


def look_at(
    workload: Workload,
    cache: Any,
    *,
    options: Options,
    ledger: Ledger,
    now: Moment,
    kinds: Iterable[SourceKind],
    dialects: Sequence[Dialect] = (),
    namespaces: bool = True,
    company: Company | None = None,
    policies: PolicyBook | None = None,
    forms: Forms | None = None,
) -> Look:
    """Look at `workload` as the snapshots in `cache` show it and the world around it."""
    sources = SnapshotSources(cache, kinds, forms)
    workload = _with_template(workload, cache, sources)
    around = cache[NamespaceSettings].get(ObjectRef(workload.namespace)) if namespaces else None
    namespace = (
        Settings()
        if around is None
        else read_namespace_settings(around.annotations, workload.namespace, kind_words(options.kinds))
    )
    near, far = policies.layers(workload, cache) if policies is not None else ([], [])
    layers = [Layer("the workload", workload.facts.settings), *near, Layer("the namespace", namespace), *far]
    ignored = tuple(pattern for layer in (*near, *far) for pattern in layer.settings.ignore)
    compare = [(layer.where, layer.settings.compare) for layer in layers if layer.settings.compare]
    left_out = _left_out(options, workload.namespace, around)
    edges = (
        Edges(reason=left_out)
        if left_out
        else edges_of(
            workload,
            sources,
            namespace=namespace,
            scopes=options.scopes,
            dialects=dialects,
            kinds=sources.kinds,
            ignored=ignored,
            names=options.names,
            compare=[*compare, ("the configuration", options.features.compare)],
        )
    )
    asked = next((window for one in dialects if (window := one.window(workload)) is not None), None)
    policy = policy_for(layers, options, window=asked)
    if company is not None and (wrong := company.problems(workload_id(workload), policy, now)):
        edges = replace(edges, problems=(*edges.problems, *wrong))
    if strangers := options.features.strangers(policy.notify or ()):
        problems = (f"{NOTIFY}: {complaint}" for _, complaint in strangers)
        edges = replace(edges, problems=(*edges.problems, *problems))
    observed = ledger.observed(workload)
    used = [edge.source for edge in edges.tracked]
    plan = make_plan(
        workload,
        edges,
        sources,
        policy=policy,
        company=company,
        observed=observed,
        now=now,
        moved=ledger.moved(workload.ref, edges.tracked),
        settled=ledger.born_after(workload.ref, used),
        dialects=dialects,
    )
    found = {edge.source: held for edge in edges.tracked if (held := sources.get(edge.source)) is not None}
    return Look(
        workload=workload,
        edges=edges,
        plan=plan,
        policy=policy,
        interests=frozenset(sources.asked),
        sources=found,
        ways={ref: frozenset(texts) for ref, texts in sources.ways.items()},
        lacking=sources.lacking(),
    )


def _left_out(options: Options, namespace: str, around: NamespaceSettings | None) -> str:
    """Why nothing in this namespace takes part; empty when it does."""
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
    followed: Workload | None = cache[DEPLOYMENT].get(ObjectRef(name, workload.namespace))
    if followed is None:
        return workload
    return replace(workload, facts=replace(workload.facts, references=followed.facts.references))


def _template_name(namespace: str, name: str) -> str:
    return f"template/{namespace}/{name}"
