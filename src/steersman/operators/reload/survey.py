"""A survey: the objects of one moment, from files or from a cluster, looked at as the operator looks at its caches.

Commands decide nothing themselves. They gather objects here and ask the operator's own look and plan, so what `plan`,
`why`, `graph` and `audit` say is what the operator does. Values of sources are hashed when they come in and dropped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.kube.codec import codec_for
from steersman.kube.errors import BadResponse, Forbidden, NotFound
from steersman.kube.resources import Kind, ObjectRef
from steersman.operators.reload.comparison import read_ways
from steersman.operators.reload.controller import NO_HELM_RELEASES
from steersman.operators.reload.dialects import dialects_for
from steersman.operators.reload.digest import ConfigMapSource, SecretSource, source_transform
from steersman.operators.reload.features import CompareConfig
from steersman.operators.reload.fleet import Fleet
from steersman.operators.reload.forms import Forms
from steersman.operators.reload.keeper import WorkloadKeeper
from steersman.operators.reload.kinds import JOB, KindRule, kind_rules, kind_words
from steersman.operators.reload.look import NamespaceSettings
from steersman.operators.reload.plan import Moment
from steersman.operators.reload.policybook import PolicyBook
from steersman.operators.reload.providers import (
    ProviderClass,
    ProviderStatus,
    by_class,
    latest,
    said_on,
    status_transform,
)
from steersman.operators.reload.settings import read_settings
from steersman.operators.reload.sourcetimes import changes_of
from steersman.operators.reload.state import Applied, read_state
from steersman.operators.reload.totals import total_sources, with_totals
from steersman.operators.reload.types import APPLIED, NATIVE_ANNOTATIONS, SourceKind, SourceRef
from steersman.operators.reload.workloads import Workload, workload_class, workload_id, workload_transform

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from steersman.kube.client import Client
    from steersman.operators.reload.digest import Source
    from steersman.operators.reload.ledger import Observed
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.types import Options

__all__ = ["Survey", "is_source", "read_cluster"]

Manifest = dict[str, Any]

_SOURCES: dict[str, type[Source]] = {"ConfigMap": ConfigMapSource, "Secret": SecretSource}


class Survey:
    """Objects by kind and name; one of a name that is added again takes the place of the first."""

    def __init__(self, options: Options, *, served: Iterable[Kind] | None = None) -> None:
        served = None if served is None else tuple(served)
        self.options = options
        wanted = options.watch_secrets if options.watch_providers is None else options.watch_providers
        self.providers = wanted and ProviderStatus.KIND in (served or ())  # of the secrets store CSI driver
        self.dialects = dialects_for(options)
        self.rules = {(rule.kind.group, rule.kind.kind): rule for rule in kind_rules(options.kinds, served)}
        self._kept = NATIVE_ANNOTATIONS.union(*(dialect.annotations for dialect in self.dialects))
        self._hashes = tuple(one for dialect in self.dialects for one in dialect.hashes)
        self._objects: dict[tuple[str, str], dict[ObjectRef, Any]] = {}
        self._values: dict[SourceRef, Manifest] = {}  # only those that a dialect hashes all together
        self._keepers: dict[KindRule, WorkloadKeeper] = {}
        self.changed: dict[SourceRef, dict[str, float]] = {}  # when each key was last written
        self.unread: list[str] = []  # what could not be read of what was asked for, and why
        self.unseen: list[str] = []  # what could not be seen around it
        self.fleet = Fleet()
        self.forms = Forms()
        self.policies = PolicyBook(
            served if options.policies else None,
            namespaced_only=options.namespaces is not None,  # as the operator, which has no rights to others then
            words=kind_words(options.kinds),
        )

    # -- gathering ---------------------------------------------------------------------------------------------------

    def add(self, manifest: Manifest, namespace: str = "default") -> Any | None:
        """Take an object in, as the operator would keep it; None when its kind means nothing here.

        Raises FormatError when the object is not what its kind asks for.
        """
        kind = (_group(manifest.get("apiVersion")), str(manifest.get("kind") or ""))
        cluster_wide = kind[1] in ("Namespace", "ClusterReloadPolicy")
        meta = dict(manifest.get("metadata") or {})
        meta["namespace"] = "" if cluster_wide else meta.get("namespace") or namespace
        try:
            obj = self._read(kind, {**manifest, "metadata": meta})
        except (BadResponse, msgspec.ValidationError) as error:
            raise FormatError(f"{kind[1]} {meta.get('name', '')}: {_told(error)}") from None
        if obj is not None:
            self._objects.setdefault(kind, {})[ObjectRef(str(meta.get("name", "")), meta["namespace"])] = obj
            self.forms.expect(self._compares(obj, meta["namespace"]))
        return obj

    def expect(self, manifests: Iterable[Manifest]) -> None:
        """These will be added when sources have been: whatever they ask to compare is hashed from now on."""
        other = Survey(self.options)
        other.policies, other.forms = self.policies, self.forms
        for manifest in manifests:
            if not is_source(manifest):
                with suppress(FormatError):  # whoever adds it is told
                    other.add(manifest)

    def _compares(self, obj: Any, namespace: str) -> Iterator[CompareConfig]:
        """How an object asks sources to be compared, or has them compared by now."""
        if isinstance(obj, Workload):
            yield from obj.facts.settings.compare
            applied = read_state(obj.annotations.get(APPLIED)).applied or Applied()
            texts = {*applied.ways, *(entry.ways for entry in applied.sources.values())}
            yield from (CompareConfig(keys=one.keys, form=one.form) for text in texts for one in read_ways(text))
        elif isinstance(obj, NamespaceSettings):
            yield from read_settings(obj.annotations, namespace).compare
        elif isinstance(obj, dict):
            for kind in self.policies.kinds:
                if kind.KIND.kind == obj.get("kind"):
                    policy: Any = codec_for(kind).object(msgspec.json.encode(obj))
                    yield from self.policies.said(policy).settings.compare

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
            return workload_transform(rule, self._kept, kind_words(self.options.kinds))(workload)
        if kind == (ProviderStatus.KIND.group, ProviderStatus.KIND.kind):
            return status_transform(self._hashes)(codec_for(ProviderStatus).object(msgspec.json.encode(manifest)))
        if kind == (ProviderClass.KIND.group, ProviderClass.KIND.kind):
            return source_transform(self._kept)(codec_for(ProviderClass).object(msgspec.json.encode(manifest)))
        if kind == ("", "Namespace"):
            return codec_for(NamespaceSettings).object(msgspec.json.encode(manifest))
        return manifest if kind[0] == "steersman.dev" else None

    def copy(self) -> Survey:
        """Another survey with the same objects, to add to without changing this one."""
        other = Survey(self.options)
        other.rules, other.providers = self.rules, self.providers
        other.policies, other.forms = self.policies, self.forms
        other._objects = {kind: dict(objects) for kind, objects in self._objects.items()}
        other._values = dict(self._values)
        other.changed = dict(self.changed)
        return other

    def laid_over(self, manifest: Manifest, namespace: str) -> Manifest:
        """The manifest as it would be once applied: with identity and annotations of the object that is here now."""
        meta = manifest.get("metadata") or {}
        kind = (_group(manifest.get("apiVersion")), str(manifest.get("kind") or ""))
        held = self._objects.get(kind, {}).get(ObjectRef(str(meta.get("name", "")), meta.get("namespace") or namespace))
        if not isinstance(held, Workload):
            return manifest
        annotations = {**held.annotations, **(meta.get("annotations") or {})}
        live = held.metadata
        identity = {"uid": live.uid, "resourceVersion": live.resource_version, "generation": live.generation}
        return {**manifest, "metadata": {**meta, **identity, "annotations": annotations}}

    # -- asking ------------------------------------------------------------------------------------------------------

    def __getitem__(self, target: Any) -> _Shelf:
        """What the cache holds of a kind."""
        kind: Kind = target.KIND
        return _Shelf(target, self._objects.get((kind.group, kind.kind), {}))

    def source(self, ref: SourceRef) -> Source | None:
        """The source of that name."""
        if ref.kind is SourceKind.PROVIDER_CLASS:
            mounted = latest(self[ProviderStatus].by_index("", f"{ref.namespace}/{ref.name}"))
            return said_on(mounted, self[ProviderClass].get(ObjectRef(ref.name, ref.namespace)))
        target = ConfigMapSource if ref.kind is SourceKind.CONFIGMAP else SecretSource
        found: Source | None = self[target].get(ObjectRef(ref.name, ref.namespace))
        return found

    def workloads(self) -> Iterator[tuple[KindRule, Workload]]:
        """All workloads, by namespace, kind and name."""
        found = [(rule, one) for kind, rule in self.rules.items() for one in self._objects.get(kind, {}).values()]
        yield from sorted(found, key=lambda row: (row[1].namespace, row[0].kind.kind, row[1].name))

    def workload(self, kind: str, name: str, namespace: str) -> tuple[KindRule, Workload] | None:
        """The workload of that kind and name."""
        for (group, known), rule in self.rules.items():
            found = self._objects.get((group, known), {}).get(ObjectRef(name, namespace)) if known == kind else None
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

    def look(self, rule: KindRule, workload: Workload, now: float, *, observed: Observed | None = None) -> Look:
        """The operator's own look; `observed` is what it would remember."""
        keeper = self.keeper(rule)
        if observed is not None:
            keeper.ledger.keep(workload.ref, observed)
        values = {ref: self._values[ref] for ref in total_sources(workload, self.dialects) if ref in self._values}
        workload = with_totals(workload, self.dialects, values)
        look = keeper.look(workload, self, Moment(wall=now, tick=now))
        self.forms.want((rule.kind, workload.ref), look.ways)
        return look

    def acquaint(self, rule: KindRule, look: Look, now: float) -> None:
        """Let the other workloads know what a look found, so that waves, limits and approvals can be told."""
        self.keeper(rule).follower.looked(look, Moment(wall=now, tick=now), acts=False)

    def acquaint_all(self, now: float) -> None:
        """Let every workload know of all others here: what each waits for, and how its last restart goes."""
        for rule, workload in self.workloads():
            me, policy = workload_id(workload), self.look(rule, workload, now).policy
            self.fleet.rollouts.saw(me, workload, deadline_seconds=policy.deadline.total_seconds())
        for rule, workload in self.workloads():
            self.acquaint(rule, self.look_since(rule, workload, now), now)

    def look_since(self, rule: KindRule, workload: Workload, now: float) -> Look:
        """A look that knows when its changes came, as far as the server knows: a survey has no memory of its own."""
        look = self.look(rule, workload, now)
        times = [
            when
            for change in look.plan.changes
            for key, when in self.changed.get(change.source, {}).items()
            if when and (not change.keys or key in change.keys)
        ]
        if not times:
            return look
        came = replace(look.plan.observed, first=min(times), last=max(times))
        return self.look(rule, workload, now, observed=came)

    def keeper(self, rule: KindRule) -> WorkloadKeeper:
        """Who keeps the workloads of a kind."""
        if rule not in self._keepers:
            self._keepers[rule] = WorkloadKeeper(
                rule,
                self.options,
                self.dialects,
                fleet=self.fleet,
                policies=self.policies,
                forms=self.forms,
                providers=self.providers,
            )
        return self._keepers[rule]


_SHORT = {"deploy": "deployment", "sts": "statefulset", "ds": "daemonset", "cj": "cronjob", "dc": "deploymentconfig"}


class _Shelf:
    """The objects of one kind."""

    def __init__(self, target: Any, objects: dict[ObjectRef, Any]) -> None:
        self._target = target
        self._objects = objects

    def get(self, ref: ObjectRef) -> Any | None:
        """The object of that name."""
        return self._typed(self._objects.get(ref))

    def list(self, *, namespace: str | None = None) -> list[Any]:
        """All of them, or those of a namespace, in the order of their names."""
        names = sorted(ref for ref in self._objects if namespace is None or ref.namespace == namespace)
        return [self.get(ref) for ref in names]

    def by_index(self, _name: str, value: str) -> list[Any]:  # type: ignore[valid-type]  # not the method above
        """Those of one class: there is no other index."""
        return [one for one in self.list() if value in by_class(one)]

    def _typed(self, found: Any) -> Any:
        if isinstance(found, dict):
            return codec_for(self._target).object(msgspec.json.encode(found))
        return found


def is_source(manifest: Manifest) -> bool:
    """Whether this is a ConfigMap or Secret; added last, they are hashed in all forms that somebody asks for."""
    return not _group(manifest.get("apiVersion")) and manifest.get("kind") in _SOURCES


def _told(error: Exception) -> str:
    text, _, path = str(error).partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.')}: {text}" if path else text


def _group(api_version: Any) -> str:
    group, slash, _ = str(api_version or "").partition("/")
    return group if slash else ""


async def read_cluster(
    survey: Survey, client: Client, *, namespaces: Sequence[str] | None = None, as_far_as_allowed: bool = False
) -> None:
    """Take in what a cluster holds: workloads, sources, namespaces and policies.

    Each page is hashed before the next is read, so a large cluster needs little memory. `as_far_as_allowed`: what may
    not be read is noted on the survey instead of raised; what is written around a namespace is only ever noted.
    """
    if survey.options.namespaces is None and survey.options.watch_namespaces:
        await _read_namespaces(survey, client, namespaces)
    targets: list[tuple[Any, str | None]] = [(rule.kind, None) for rule in survey.rules.values()]
    targets += [(kind.KIND, None) for kind in survey.policies.kinds]
    targets += [(ProviderStatus.KIND, None), (ProviderClass.KIND, None)] if survey.providers else []
    targets.append((ConfigMapSource.KIND, None))  # sources last: the others say in which forms they are compared
    if survey.options.watch_secrets:
        targets.append((SecretSource.KIND, NO_HELM_RELEASES))
    for kind, fields in targets:
        for namespace in (None,) if namespaces is None or not kind.namespaced else namespaces:
            try:
                async for page in client.pages(kind, namespace=namespace, field_selector=fields):
                    for item in page.items:
                        survey.add({"apiVersion": kind.api_version, "kind": kind.kind, **item})
            except Forbidden as error:
                if not kind.namespaced or kind.group == ProviderStatus.KIND.group:
                    survey.unseen.append(f"{kind.plural} may say more, and cannot be read: {error}")
                elif as_far_as_allowed:
                    where = "" if namespace is None else f" of namespace {namespace}"
                    survey.unread.append(f"{kind.plural}{where} cannot be read: {error}")
                else:
                    raise


async def _read_namespaces(survey: Survey, client: Client, names: Sequence[str] | None) -> None:
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
        survey.unseen.append(f"annotations of namespaces may say more, and cannot be read: {error}")
        return
    for item in found:
        survey.add({"apiVersion": "v1", "kind": "Namespace", **item})
