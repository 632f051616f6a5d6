"""A cluster in miniature for the reload operator: sources, workloads, one revision, and a process that may die.

    world = World()
    world.put(configmap("app", mode="a"))
    world.put(workload("web", uses=[env("app", "mode")]))
    world.run()                                   # look at everything, and carry out what the plans say
    world.put(configmap("app", mode="b"))
    assert world.run(after=30) == {"deployment/web": "restart"}

It has no server and no time of its own: `run` looks at every workload once, at a moment you choose. What is written is
the very patch that a server would get, with its precondition.
"""

from __future__ import annotations

import copy
from base64 import b64encode
from typing import TYPE_CHECKING, Any, cast

import msgspec

from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.patches import apply_merge_patch
from steersman.kube.client.codec import codec_for
from steersman.operators.reload.actions.patch import patch_for
from steersman.operators.reload.api.annotations import NATIVE_ANNOTATIONS, RELOAD
from steersman.operators.reload.api.config import ReloadOptions
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.controllers.change_tracker import source_matters
from steersman.operators.reload.controllers.reconciler import SharedContext, WorkloadReconciler
from steersman.operators.reload.planning.effective_policy import PolicyIndex
from steersman.operators.reload.planning.gates import Moment
from steersman.operators.reload.planning.plan import Action
from steersman.operators.reload.planning.snapshot import NamespaceSettings, total_sources, with_totals
from steersman.operators.reload.sources.csi import ProviderClass, ProviderStatus, by_class
from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource, Source, source_transform
from steersman.operators.reload.sources.digest_cache import CanonicalDigestCache
from steersman.operators.reload.sources.digest_keys import NO_KEYS, Keyring
from steersman.operators.reload.workloads.kinds import BUILT_IN, JOB, KindRule
from steersman.operators.reload.workloads.workload import Workload, workload_class, workload_id, workload_transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.clock import Clock
    from steersman.operators.reload.compat.dialect import Dialect
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.planning.hooks import HookRunner

__all__ = ["World", "configmap", "env", "env_from", "secret", "volume", "workload"]

Manifest = dict[str, Any]
POLICIES: dict[str, Any] = {"ReloadPolicy": ReloadPolicy, "ClusterReloadPolicy": ClusterReloadPolicy}
START = 1_700_000_000.0


def configmap(name: str, *, namespace: str = "shop", annotations: Manifest | None = None, **data: str) -> Manifest:
    """A ConfigMap with this data."""
    return _object("v1", "ConfigMap", name, namespace, annotations, data=data)


def secret(name: str, *, namespace: str = "shop", annotations: Manifest | None = None, **data: str) -> Manifest:
    """A Secret with this data, given in plain text."""
    wire = {key: b64encode(value.encode()).decode() for key, value in data.items()}
    return _object("v1", "Secret", name, namespace, annotations, data=wire)


def env(source: str, key: str, *, kind: str = "configMap", optional: bool = False) -> Manifest:
    """A container that reads one key."""
    ref = {"name": source, "key": key, **({"optional": True} if optional else {})}
    return {"containers": [{"name": "main", "env": [{"name": "X", "valueFrom": {f"{kind}KeyRef": ref}}]}]}


def env_from(source: str, *, kind: str = "configMap", optional: bool = False) -> Manifest:
    """A container that reads every key."""
    ref = {"name": source, **({"optional": True} if optional else {})}
    return {"containers": [{"name": "main", "envFrom": [{f"{kind}Ref": ref}]}]}


def volume(source: str, *, kind: str = "configMap") -> Manifest:
    """A volume with every key."""
    name = {"configMap": {"name": source}} if kind == "configMap" else {"secret": {"secretName": source}}
    return {"volumes": [{"name": f"{source}-{kind.lower()}", **name}]}


def workload(
    name: str,
    *,
    uses: Sequence[Manifest] = (),
    kind: str = "Deployment",
    namespace: str = "shop",
    annotations: Manifest | None = None,
    labels: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    """A workload whose pods use these sources; it takes part with all of them unless its annotations say otherwise."""
    pod: Manifest = {}
    for part in uses:
        for field, values in part.items():
            pod.setdefault(field, []).extend(copy.deepcopy(values))
    template: Manifest = {"template": {"spec": pod}}
    if kind not in ("CronJob", "Job"):
        template["selector"] = {"matchLabels": {"app": name}}
    if kind == "CronJob":
        template = {"jobTemplate": {"spec": template}}
    api = "batch/v1" if kind in ("CronJob", "Job") else "apps/v1"
    marks = {RELOAD: "auto"} if annotations is None else annotations
    made = _object(api, kind, name, namespace, marks, spec={**template, **spec})
    if labels:
        made["metadata"]["labels"] = labels
    return made


class World:
    """See the module."""

    def __init__(
        self,
        options: ReloadOptions | None = None,
        *,
        dialects: Sequence[Dialect] = (),
        policies: bool = False,
        providers: bool = False,
        keys: Keyring = NO_KEYS,
    ) -> None:
        """`policies`: ReloadPolicy and ClusterReloadPolicy are installed; `providers`: the secrets store CSI driver.

        `keys`: those of the digests; without any these are not keyed.
        """
        self.keys = keys
        self._providers = providers
        self._policies = [POLICIES[kind].KIND for kind in POLICIES] if policies else []
        self.options = options or ReloadOptions()
        self.now = START
        self.revision = 100
        self.patches = 0
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.restarts: dict[str, int] = {}
        self.rules: dict[str, KindRule] = {rule.kind.kind: rule for rule in (*BUILT_IN, JOB)}
        self._dialects = dialects
        self._kept = NATIVE_ANNOTATIONS.union(*(dialect.annotations for dialect in dialects))
        self._hashes = tuple(one for dialect in dialects for one in dialect.hashes)
        self.reconcilers: dict[str, WorkloadReconciler] = {}
        self.crash()

    # -- the cluster -------------------------------------------------------------------------------------------------

    def put(self, manifest: Manifest) -> None:
        """Create an object, or put it in the place of the one of that name; our marks on it stay, as with apply."""
        key = _key(manifest)
        old = self.objects.get(key)
        new = copy.deepcopy(manifest)
        self.revision += 1
        new["metadata"] |= {"resourceVersion": str(self.revision), "uid": f"uid-{self.revision}"}
        if old is not None:
            new["metadata"]["uid"] = old["metadata"]["uid"]
            ours = {n: v for n, v in (old["metadata"].get("annotations") or {}).items() if n.endswith("/applied")}
            new["metadata"]["annotations"] = {**ours, **(new["metadata"].get("annotations") or {})}
        self._store(key, new)

    def edit(self, kind: str, name: str, patch: Manifest, *, namespace: str = "shop") -> None:
        """Change an object by a merge patch."""
        key = (kind, namespace, name)
        new = apply_merge_patch(self.objects[key], patch)
        self.revision += 1
        new["metadata"]["resourceVersion"] = str(self.revision)
        self._store(key, new)

    def delete(self, kind: str, name: str, *, namespace: str = "shop") -> None:
        """Delete an object."""
        self._store((kind, namespace, name), None)

    def get(self, kind: str, name: str, *, namespace: str = "shop") -> Manifest:
        """An object as the server has it."""
        return self.objects[kind, namespace, name]

    def roll(self, name: str, *, kind: str = "Deployment", namespace: str = "shop", available: bool = True) -> None:
        """Let the controller of a Deployment finish its rollout, or give it up."""
        generation = self.objects[kind, namespace, name]["metadata"].get("generation", 0)
        reason = "NewReplicaSetAvailable" if available else "ProgressDeadlineExceeded"
        counts = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": int(available)}
        conditions = [{"type": "Progressing", "status": str(available), "reason": reason}]
        status = {"observedGeneration": generation, **counts, "conditions": conditions}
        self.edit(kind, name, {"status": status}, namespace=namespace)

    # -- the clock, as `steersman.clock.Clock` has it ------------------------------------------------------------------

    def time(self) -> float:
        """The wall clock."""
        return self.now

    def monotonic(self) -> float:
        """The other one; they are the same here."""
        return self.now

    # -- the process -------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose all memory, and start again with what the cluster holds."""
        self.forms = CanonicalDigestCache(while_decoding=True)
        self.shared = SharedContext(forms=self.forms, policies=PolicyIndex(self._policies))
        self.shared.keys.ring = self.keys
        self.coordinator = self.shared.coordinator
        self.reconcilers = {
            kind: WorkloadReconciler(rule, self.options, self._dialects, self.shared, providers=self._providers)
            for kind, rule in self.rules.items()
        }
        for manifest in self.objects.values():
            self._tell(None, manifest)

    def evaluate(self, kind: str, name: str, *, namespace: str = "shop", hook: HookRunner | None = None) -> Evaluation:
        """Evaluate one workload, and write nothing."""
        reconciler = self.reconcilers[kind]
        reconciler.tracker.live, reconciler.tracker.clock = True, cast("Clock", self)
        found: Any = self._with_totals(self.decoded(self.objects[kind, namespace, name]))
        now = Moment(wall=self.now, tick=self.now)
        snapshot = reconciler.read_snapshot(found, _Caches(self), now)
        self.forms.want((kind, found.ref), snapshot.compare_rules)
        if snapshot.incomplete:  # here every source is decoded for every read, and hashed in the forms then wanted
            snapshot = reconciler.read_snapshot(found, _Caches(self), now)
        return reconciler.evaluate_snapshot(snapshot, hook=hook)

    def caches(self) -> _Caches:
        """What a process that watches this world would have at hand."""
        return _Caches(self)

    def step(self, kind: str, name: str, *, namespace: str = "shop", lose: bool = False) -> Evaluation:
        """Look at one workload and carry the plan out; with `lose`, the answer to the patch is never seen."""
        look = self.evaluate(kind, name, namespace=namespace)
        reconciler = self.reconcilers[kind]
        tracker = reconciler.tracker
        tracker.set_interests(look.workload.ref, look.snapshot.interests)
        self.coordinator.record(look, Moment(wall=self.now, tick=self.now))
        if look.edges.tracked:
            tracker.keep(look.workload.ref, look.plan.observed)
        else:
            tracker.leave(look.workload.ref)
        marks = self.reconcilers[kind].marks(look, self.now)
        patch = patch_for(self.rules[kind], look.workload, look.plan, at=self.now, marks=marks)
        if patch is not None:
            if marks.variables:
                _merge_by_name(self.objects[kind, namespace, name]["spec"], patch["spec"])
            self._patch((kind, namespace, name), patch)
            if look.plan.action in (Action.RESTART, Action.EVICT):
                self.coordinator.restarted(
                    workload_id(look.workload), self.decoded(self.objects[kind, namespace, name])
                )
            if look.plan.action is Action.RESTART:
                title = look.workload.title
                self.restarts[title] = self.restarts.get(title, 0) + 1
        if look.plan.action is Action.CALL:
            self.coordinator.restarted(workload_id(look.workload), None)
        if not lose and look.edges.tracked:
            tracker.keep(look.workload.ref, look.plan.remembered(written=patch is not None))
        return look

    def run(self, *, after: float = 0.0) -> dict[str, str]:
        """Look at every workload, `after` some seconds, and carry out the plans; returns what was done."""
        self.now += after
        actions = {}
        for kind, namespace, name in sorted(self.objects):
            if kind in self.rules:
                look = self.step(kind, name, namespace=namespace)
                if look.plan.action is not Action.NOTHING:
                    actions[look.workload.title] = look.plan.action.value
        return actions

    # -- the machinery -----------------------------------------------------------------------------------------------

    def _patch(self, key: tuple[str, str, str], patch: Manifest) -> None:
        old = self.objects[key]
        assert patch["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"], "the patch is not guarded"
        new = apply_merge_patch(old, patch)
        self.revision += 1
        self.patches += 1
        new["metadata"]["resourceVersion"] = str(self.revision)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._store(key, new)

    def _with_totals(self, workload: Any) -> Any:
        wanted = total_sources(workload, self._dialects)
        kinds = {"configmap": "ConfigMap", "secret": "Secret"}
        held = {source: self.objects.get((kinds[source.kind], source.namespace, source.name)) for source in wanted}
        return with_totals(workload, self._dialects, {source: one for source, one in held.items() if one is not None})

    def _store(self, key: tuple[str, str, str], new: Manifest | None) -> None:
        old = self.objects.pop(key, None)
        if new is not None:
            self.objects[key] = new
        self._tell(old, new)

    def _tell(self, old: Manifest | None, new: Manifest | None) -> None:
        before, after = (None if one is None else self.decoded(one) for one in (old, new))
        some: Any = after if after is not None else before
        for kind, reconciler in self.reconcilers.items():
            if isinstance(some, ProviderClass):
                reconciler.mark_users(some, reconciler.users_of(some))
            elif isinstance(some, Source):
                reconciler.tracker.observe_source(before, after)
                if source_matters(before, after):
                    reconciler.mark_users(some, reconciler.users_of(some))
            elif isinstance(some, Workload) and type(some).KIND.kind == kind:
                reconciler.observe_workload(before, after)
                if after is None:
                    reconciler.tracker.forget(some.ref)
                    self.forms.want((kind, some.ref), {})
                    self.coordinator.gone(workload_id(some))

    def decoded(self, manifest: Manifest) -> Any:
        kind = manifest["kind"]
        seen: tuple[Any, ...] = (ConfigMapSource, SecretSource, NamespaceSettings, ProviderStatus, ProviderClass)
        classes = {item.KIND.kind: item for item in seen}
        cls = (classes | POLICIES).get(kind) or workload_class(self.rules[kind].kind)
        obj = codec_for(cls).object(msgspec.json.encode(manifest))
        if kind in self.rules:
            return workload_transform(self.rules[kind], self._kept)(obj)
        if kind == "Namespace" or kind in POLICIES:
            return obj
        if cls is ProviderStatus:
            return self.reconcilers["Deployment"].status_transform(obj)
        return source_transform(self._kept, self._hashes, self.options.features.compare, self.forms)(obj)


class _Caches:
    """The snapshots of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getitem__(self, target: Any) -> _Shelf:
        return _Shelf(self._world, target.KIND)


class _Shelf:
    def __init__(self, world: World, kind: Kind) -> None:
        self._world = world
        self._kind = kind

    def get(self, ref: NamespacedName) -> Any:
        manifest = self._world.objects.get((self._kind.kind, ref.namespace, ref.name))
        return None if manifest is None else self._world.decoded(manifest)  # a part of the world

    def list(self, *, namespace: str | None = None) -> list[Any]:
        kind = self._kind.kind
        found = sorted(key for key in self._world.objects if key[0] == kind and namespace in (None, key[1]))
        return [self.get(NamespacedName(name, space)) for _, space, name in found]

    def by_index(self, _name: str, value: str) -> Sequence[Any]:
        return [one for one in self.list() if value in by_class(one)]  # the only index that a look asks for


def _merge_by_name(old: Any, new: Any) -> None:
    """Complete the lists of a strategic patch with what they stand for, so that a merge patch says the same."""
    for field, value in new.items():
        if isinstance(value, dict):
            _merge_by_name(old.get(field) or {}, value)
        elif isinstance(value, list):
            named = {item["name"]: item for item in value}
            for one in old.get(field) or ():
                mine = named.pop(one["name"], None)
                if mine is not None:
                    _merge_by_name(one, mine)
                    value[value.index(mine)] = {**one, **mine}
                else:
                    value.append(one)


def _key(manifest: Manifest) -> tuple[str, str, str]:
    meta = manifest["metadata"]
    return manifest["kind"], meta.get("namespace", ""), meta["name"]


def _object(api: str, kind: str, name: str, namespace: str, annotations: Manifest | None, **rest: Any) -> Manifest:
    meta = {"name": name, "namespace": namespace, **({"annotations": dict(annotations)} if annotations else {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **rest}
