"""Offline inspection: objects from files or from a cluster, evaluated once as the operator evaluates them.

Commands decide nothing themselves. They add objects to a static cache here and run the operator's own evaluation and
plan, so what `plan`, `why`, `graph` and `audit` report is what the operator does. Values of sources are hashed when
they are added, and dropped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from steersman.cache.static import StaticObjects
from steersman.errors import FormatError
from steersman.kube.api.errors import BadResponse, Forbidden, NotFound
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.times import parse_time
from steersman.kube.client.codec import codec_for
from steersman.operators.reload.api.annotations import APPLIED, NATIVE_ANNOTATIONS
from steersman.operators.reload.api.config import CompareConfig, SourceKind, SourceRef
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.compat.dialects import dialects_for, dialects_off
from steersman.operators.reload.controllers.reconciler import SharedContext, WorkloadReconciler
from steersman.operators.reload.controllers.setup import NO_HELM_RELEASES
from steersman.operators.reload.planning.effective_policy import PolicyIndex
from steersman.operators.reload.planning.gates import Moment
from steersman.operators.reload.planning.restart_order import RestartCoordinator
from steersman.operators.reload.planning.snapshot import NamespaceSettings, total_sources, with_totals
from steersman.operators.reload.planning.state import Applied, read_state
from steersman.operators.reload.sources.compare import parse_compare_rules
from steersman.operators.reload.sources.csi import (
    BY_CLASS,
    ProviderClass,
    ProviderStatus,
    by_class,
    latest,
    said_on,
    status_transform,
)
from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource, source_transform
from steersman.operators.reload.sources.digest_cache import CanonicalDigestCache
from steersman.operators.reload.sources.digest_keys import NO_KEYS
from steersman.operators.reload.workloads.kinds import JOB, KindRule, kind_aliases, kind_rules
from steersman.operators.reload.workloads.workload import Workload, workload_class, workload_id, workload_transform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import ReloadOptions
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.planning.plan import Observed
    from steersman.operators.reload.sources.digest import Source

Manifest = dict[str, Any]

_SOURCES: dict[str, type[Source]] = {"ConfigMap": ConfigMapSource, "Secret": SecretSource}
_POLICIES = {(policy.KIND.group, policy.KIND.kind): policy for policy in (ReloadPolicy, ClusterReloadPolicy)}
_INDEXES = {BY_CLASS: by_class}


class OfflineInspection:
    """Objects by kind and name; adding an object replaces the one of the same name."""

    def __init__(self, options: ReloadOptions, *, served: Iterable[Kind] | None = None) -> None:
        served = None if served is None else tuple(served)
        self.options = options
        wanted = options.watch_secrets if options.watch_providers is None else options.watch_providers
        self.providers = wanted and ProviderStatus.KIND in (served or ())  # of the secrets store CSI driver
        self.dialects = dialects_for(options)
        self.rules = {(rule.kind.group, rule.kind.kind): rule for rule in kind_rules(options.kinds, served)}
        self._kept = NATIVE_ANNOTATIONS.union(*(dialect.annotations for dialect in self.dialects))
        self._hashes = tuple(compute for dialect in self.dialects for compute in dialect.hashes)
        self._objects: dict[tuple[str, str], StaticObjects] = {}
        self._values: dict[SourceRef, Manifest] = {}  # only those that a dialect hashes all together
        self._reconcilers: dict[KindRule, WorkloadReconciler] = {}
        self.changed: dict[SourceRef, dict[str, float]] = {}  # when each key was last written
        self.unread: list[str] = []  # requested objects that could not be read, and why
        self.unseen: list[str] = []  # related objects that could not be read, and why
        self.dialects_off: set[str] = set()  # dialects that annotations of workloads are written in and that are off
        self.keys = NO_KEYS
        self.coordinator = RestartCoordinator()
        self.forms = CanonicalDigestCache(while_decoding=True)
        self.policies = PolicyIndex(
            served if options.policies else None,
            namespaced_only=options.namespaces is not None,  # as the operator, which has no rights to others then
            words=kind_aliases(options.kinds),
        )

    # -- adding -----------------------------------------------------------------------------------------------------

    def add(self, manifest: Manifest, namespace: str = "default") -> Any | None:
        """Add an object as the operator would cache it; None when its kind has no meaning for reload.

        Raises FormatError when the object is not valid for its kind.
        """
        kind = (_group(manifest.get("apiVersion")), str(manifest.get("kind") or ""))
        cluster_wide = kind[1] in ("Namespace", "ClusterReloadPolicy")
        meta = dict(manifest.get("metadata") or {})
        meta["namespace"] = "" if cluster_wide else meta.get("namespace") or namespace
        try:
            obj = self._read(kind, {**manifest, "metadata": meta})
        except (BadResponse, msgspec.ValidationError) as error:
            raise FormatError(f"{kind[1]} {meta.get('name', '')}: {_describe(error)}") from None
        if obj is not None:
            self._of(kind).upsert(obj)
            self.forms.expect(_recorded_rules(obj))
        return obj

    def _read(self, kind: tuple[str, str], manifest: Manifest) -> Any | None:
        if kind[0] == "" and kind[1] in _SOURCES:
            source = codec_for(_SOURCES[kind[1]]).object(msgspec.json.encode(manifest))
            self.changed[source.source] = changes_of(manifest)
            if any(dialect.total is not None for dialect in self.dialects):
                self._values[source.source] = manifest
            return source_transform(self._kept, self._hashes, self.options.features.compare, self.forms)(source)
        if kind in self.rules:
            rule = self.rules[kind]
            workload = codec_for(workload_class(rule.kind)).object(msgspec.json.encode(manifest))
            kept = workload_transform(rule, self._kept, kind_aliases(self.options.kinds))(workload)
            self.dialects_off.update(dialects_off(self.options, _annotations(manifest)))  # valid, as it was decoded
            return kept
        if kind == (ProviderStatus.KIND.group, ProviderStatus.KIND.kind):
            return status_transform(self._hashes)(codec_for(ProviderStatus).object(msgspec.json.encode(manifest)))
        if kind == (ProviderClass.KIND.group, ProviderClass.KIND.kind):
            return source_transform(self._kept)(codec_for(ProviderClass).object(msgspec.json.encode(manifest)))
        if kind == ("", "Namespace"):
            return codec_for(NamespaceSettings).object(msgspec.json.encode(manifest))
        if policy := _POLICIES.get(kind):
            return codec_for(policy).object(msgspec.json.encode(manifest))
        return manifest if kind[0] == "steersman.dev" else None

    def copy(self) -> OfflineInspection:
        """Another inspection with the same objects, to add to without changing this one."""
        other = OfflineInspection(self.options)
        other.rules, other.providers = self.rules, self.providers
        other.policies, other.forms = self.policies, self.forms
        other._objects = {kind: StaticObjects(objects, _INDEXES) for kind, objects in self._objects.items()}
        other._values = dict(self._values)
        other.changed = dict(self.changed)
        other.keys = self.keys
        other.dialects_off = set(self.dialects_off)
        return other

    def laid_over(self, manifest: Manifest, namespace: str) -> Manifest:
        """The manifest as it would be once applied: with identity and annotations of the object that is here now."""
        meta = manifest.get("metadata") or {}
        kind = (_group(manifest.get("apiVersion")), str(manifest.get("kind") or ""))
        held = self._of(kind).get(NamespacedName(str(meta.get("name", "")), meta.get("namespace") or namespace))
        if not isinstance(held, Workload):
            return manifest
        annotations = {**held.annotations, **(meta.get("annotations") or {})}
        live = held.metadata
        identity = {"uid": live.uid, "resourceVersion": live.resource_version, "generation": live.generation}
        return {**manifest, "metadata": {**meta, **identity, "annotations": annotations}}

    # -- reading -----------------------------------------------------------------------------------------------------

    def __getitem__(self, target: Any) -> StaticObjects:
        """The objects of a kind, as a cache holds them."""
        return self._of((target.KIND.group, target.KIND.kind))

    def _of(self, kind: tuple[str, str]) -> StaticObjects:
        return self._objects.setdefault(kind, StaticObjects((), _INDEXES))

    def source(self, ref: SourceRef) -> Source | None:
        """The source of that name."""
        if ref.kind is SourceKind.PROVIDER_CLASS:
            mounted = latest(self[ProviderStatus].by_index(BY_CLASS, f"{ref.namespace}/{ref.name}"))
            return said_on(mounted, self[ProviderClass].get(NamespacedName(ref.name, ref.namespace)))
        target = ConfigMapSource if ref.kind is SourceKind.CONFIGMAP else SecretSource
        found: Source | None = self[target].get(NamespacedName(ref.name, ref.namespace))
        return found

    def workloads(self) -> Iterator[tuple[KindRule, Workload]]:
        """All workloads, by namespace, kind and name."""
        found = [(rule, workload) for kind, rule in self.rules.items() for workload in self._of(kind)]
        yield from sorted(found, key=lambda row: (row[1].namespace, row[0].kind.kind, row[1].name))

    def workload(self, kind: str, name: str, namespace: str) -> tuple[KindRule, Workload] | None:
        """The workload of that kind and name."""
        for (group, known), rule in self.rules.items():
            found = self._of((group, known)).get(NamespacedName(name, namespace)) if known == kind else None
            if found is not None:
                return rule, found
        return None

    def rule_for(self, kind: str) -> KindRule | None:
        """The rule of a kind as people write it: `deploy`, `deployment`, `deployments`, `Deployment`.

        A group may follow, as kubectl prints it: `deployment.apps`, `deployments.v1.apps`.
        """
        word, _, group = kind.lower().partition(".")
        word = _SHORT.get(word, word)
        for rule in (*self.rules.values(), JOB):
            named = word in (rule.kind.kind.lower(), rule.kind.plural)
            if named and group in ("", rule.kind.group, f"{rule.kind.version}.{rule.kind.group}"):
                return rule
        return None

    def evaluate(
        self, rule: KindRule, workload: Workload, now: float, *, observed: Observed | None = None
    ) -> Evaluation:
        """The operator's own evaluation; `observed` is what it would have in memory."""
        reconciler = self.reconciler(rule)
        reconciler.shared.keys.ring = self.keys
        if observed is not None:
            reconciler.tracker.keep(workload.ref, observed)
        values = {ref: self._values[ref] for ref in total_sources(workload, self.dialects) if ref in self._values}
        workload = with_totals(workload, self.dialects, values)
        evaluation = reconciler.evaluate(workload, self, Moment(wall=now, tick=now))
        self.forms.want((rule.kind, workload.ref), evaluation.snapshot.compare_rules)
        return evaluation

    def register(self, evaluation: Evaluation, now: float) -> None:
        """Register an evaluation with the coordinator: waves, limits and approvals of others depend on it."""
        self.coordinator.record(evaluation, Moment(wall=now, tick=now), acts=False)

    def register_all(self, now: float) -> None:
        """Register every workload with the coordinator: what it waits for, and how its last rollout is going."""
        for rule, workload in self.workloads():
            me, policy = workload_id(workload), self.evaluate(rule, workload, now).policy
            self.coordinator.rollouts.observe(me, workload, deadline_seconds=policy.deadline.total_seconds())
        for rule, workload in self.workloads():
            self.register(self.evaluate_since_changes(rule, workload, now), now)

    def evaluate_since_changes(self, rule: KindRule, workload: Workload, now: float) -> Evaluation:
        """Evaluate with the times of its changes as the server reports them: an inspection has no memory."""
        evaluation = self.evaluate(rule, workload, now)
        times = [
            when
            for change in evaluation.plan.changes
            for key, when in self.changed.get(change.source, {}).items()
            if when and (not change.keys or key in change.keys)
        ]
        if not times:
            return evaluation
        came = replace(evaluation.plan.observed, first=min(times), last=max(times))
        return self.evaluate(rule, workload, now, observed=came)

    def reconciler(self, rule: KindRule) -> WorkloadReconciler:
        """The reconciler of the workloads of a kind."""
        if rule not in self._reconcilers:
            self._reconcilers[rule] = WorkloadReconciler(
                rule,
                self.options,
                self.dialects,
                SharedContext(coordinator=self.coordinator, policies=self.policies, forms=self.forms),
                providers=self.providers,
            )
        return self._reconcilers[rule]


_SHORT = {"deploy": "deployment", "sts": "statefulset", "ds": "daemonset", "cj": "cronjob", "dc": "deploymentconfig"}


def _annotations(manifest: Manifest) -> Iterator[str]:
    """The names of the annotations of a workload and of its pod template."""
    template = (manifest.get("spec") or {}).get("template") or {}
    for part in (manifest, template):
        yield from (part.get("metadata") or {}).get("annotations") or ()


def _recorded_rules(obj: Any) -> Iterator[CompareConfig]:
    """The comparison rules that a workload's state was written with: its sources are hashed by these too."""
    if isinstance(obj, Workload):
        applied = read_state(obj.annotations.get(APPLIED)).applied or Applied()
        texts = {*applied.compare_rules, *(entry.compare_rules for entry in applied.sources.values())}
        for text in texts:
            yield from (CompareConfig(keys=rule.keys, form=rule.form) for rule in parse_compare_rules(text))


def is_source(manifest: Manifest) -> bool:
    """Whether this is a ConfigMap or Secret; added last, since the states of workloads name rules to hash them by."""
    return not _group(manifest.get("apiVersion")) and manifest.get("kind") in _SOURCES


def _describe(error: Exception) -> str:
    text, _, path = str(error).partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.')}: {text}" if path else text


def _group(api_version: Any) -> str:
    group, slash, _ = str(api_version or "").partition("/")
    return group if slash else ""


async def read_cluster(
    inspection: OfflineInspection,
    client: Client,
    *,
    namespaces: Sequence[str] | None = None,
    as_far_as_allowed: bool = False,
) -> None:
    """Add what a cluster holds: workloads, sources, namespaces and policies.

    Each page is hashed before the next is read, so a large cluster needs little memory. `as_far_as_allowed`: what may
    not be read is noted on the inspection instead of raised; what is written around a namespace is only ever noted.
    """
    if inspection.options.namespaces is None and inspection.options.watch_namespaces:
        await _read_namespaces(inspection, client, namespaces)
    targets: list[tuple[Any, str | None, str | None]] = [(rule.kind, None, None) for rule in inspection.rules.values()]
    targets += [(kind.KIND, None, None) for kind in inspection.policies.kinds]
    targets += [(ProviderStatus.KIND, None, None), (ProviderClass.KIND, None, None)] if inspection.providers else []
    targets += _watched_sources(inspection.options)  # last: states of workloads name rules to hash them by
    for kind, fields, labels in targets:
        for namespace in (None,) if namespaces is None or not kind.namespaced else namespaces:
            try:
                async for page in client.pages(kind, namespace=namespace, field_selector=fields, label_selector=labels):
                    for item in page.items:
                        inspection.add({"apiVersion": kind.api_version, "kind": kind.kind, **item})
            except NotFound:  # its definition was removed after discovery, so no object of it exists
                continue
            except Forbidden as error:
                if not kind.namespaced or kind.group == ProviderStatus.KIND.group:
                    inspection.unseen.append(f"{kind.plural} may say more, and cannot be read: {error}")
                elif as_far_as_allowed:
                    where = "" if namespace is None else f" of namespace {namespace}"
                    inspection.unread.append(f"{kind.plural}{where} cannot be read: {error}")
                else:
                    raise


def _watched_sources(options: ReloadOptions) -> Iterator[tuple[Any, str | None, str | None]]:
    """The sources that the operator watches, and no others, as kind, field and label selector: it has no more rights.

    Where the configuration names sources, each name is listed for itself, as those rights allow.
    """
    for wanted, kind, target, fields in (
        (options.watch_configmaps, SourceKind.CONFIGMAP, ConfigMapSource, None),
        (options.watch_secrets, SourceKind.SECRET, SecretSource, NO_HELM_RELEASES),
    ):
        names = options.names.get(kind)
        selectors = [fields] if names is None else [f"metadata.name={name}" for name in sorted(names)]
        for selector in selectors if wanted else ():
            yield target.KIND, selector, options.source_selector


async def _read_namespaces(inspection: OfflineInspection, client: Client, names: Sequence[str] | None) -> None:
    """Take in what is written on namespaces; one that does not exist yet says nothing."""
    kind = NamespaceSettings.KIND
    try:
        if names is None:
            found = list((await client.list(kind)).items)
        else:
            found = []
            for name in names:
                with suppress(NotFound):
                    found.append(await client.get(kind, name))
    except Forbidden as error:
        inspection.unseen.append(f"annotations of namespaces may say more, and cannot be read: {error}")
        return
    for item in found:
        inspection.add({"apiVersion": "v1", "kind": "Namespace", **item})


def changes_of(manifest: Mapping[str, Any]) -> dict[str, float]:
    """When each key of a source was last written, in seconds since the epoch, as far as the server knows."""
    meta = manifest.get("metadata") or {}
    born = seconds(meta.get("creationTimestamp"))
    found = {key: born for field in ("data", "binaryData") for key in manifest.get(field) or ()}
    for entry in meta.get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        when = seconds(entry.get("time"))
        for key in (*(fields.get("f:data") or ()), *(fields.get("f:binaryData") or ())):
            name = key.removeprefix("f:")
            if name in found:
                found[name] = max(found[name], when)
    return found


def seconds(text: Any) -> float:
    """A time in seconds since the epoch; 0 when it is none."""
    try:
        return parse_time(text or "").timestamp()
    except FormatError:
        return 0.0
