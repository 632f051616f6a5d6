"""What the reload commands have in common: a client for the cluster, and an inspection of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from steersman.cli.kube_options import config_option

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from steersman.kube.client.client import Client
    from steersman.operators.reload.api.config import ReloadOptions, SourceRef
    from steersman.operators.reload.inspect.offline import OfflineInspection
    from steersman.operators.reload.planning.evaluate import Evaluation
    from steersman.operators.reload.workloads.kinds import KindRule

OPERATOR_NAMESPACE = "steersman"  # where `rbac`, `manifests` and the chart put the operator
F = TypeVar("F", bound="Callable[..., Any]")
_ROUNDS = 6  # of reading what the last evaluation asked for; templates of templates end long before


def settings_options(command: F) -> F:
    """Add --config and --dialect; the command gets `config` and `dialects`."""
    text = "Read the annotations of this program too."
    return config_option(click.option("--dialect", "dialects", multiple=True, metavar="NAME", help=text)(command))


def reload_options(config: Path | None, dialects: Collection[str] = ()) -> ReloadOptions:
    """The settings of the operator, and these dialects besides those that they name."""
    import msgspec

    from steersman.cli.config import load_settings

    section = load_settings(config).sections["reload"]
    options: ReloadOptions = msgspec.structs.replace(section, dialects=(*section.dialects, *dialects)).options()
    return options


def off_hints(inspection: OfflineInspection) -> list[str]:
    """Which dialects annotations are written in though the settings do not name them, and what to do."""
    return [f"the {name} dialect is off: --dialect {name}" for name in sorted(inspection.dialects_off)]


def note_dialects_off(inspection: OfflineInspection) -> None:
    """Say on standard error that annotations of workloads have no effect because their dialect is off."""
    for hint in off_hints(inspection):
        click.echo(f"note: workloads have annotations without effect: {hint}", err=True)


def connected(kubeconfig: Path | None, context: str | None) -> Client:
    """A client for what the options name."""
    from steersman.cli.kube_options import cluster_config
    from steersman.kube.client.client import Client

    return Client.connect(cluster_config(kubeconfig, context), user_agent="steersman-cli")


async def inspect_cluster(
    client: Client,
    options: ReloadOptions,
    namespaces: Sequence[str] | None,
    *,
    copies: int = 1,
    as_far_as_allowed: bool = False,
    compares: bool = True,
) -> tuple[OfflineInspection, ...]:
    """Read the cluster once; returns `copies` inspections of it, to lay manifests over one of them.

    `as_far_as_allowed`: what may not be read is noted on the inspection instead of raised. `compares`: what pods were
    started for will be compared with what sources say, for which the keys of digests are read.
    """
    from steersman.operators.reload.inspect.offline import OfflineInspection, read_cluster

    served = [resource.kind for resource in await client.api_resources()]
    first = OfflineInspection(options, served=served)
    await read_cluster(first, client, namespaces=namespaces, as_far_as_allowed=as_far_as_allowed)
    if namespaces is not None:
        await _read_extra(first, client, namespaces)
    if compares:
        unknown = first.unread if as_far_as_allowed else first.unseen
        unknown += await _read_keys(first, client)
    return (first, *(first.copy() for _ in range(copies - 1)))


async def _read_keys(inspection: OfflineInspection, client: Client) -> list[str]:
    """Add the keys of digests when a state names one; returns what cannot be compared without them, and why."""
    from steersman.operators.reload.api.annotations import APPLIED
    from steersman.operators.reload.controllers.digest_key_store import read_ring
    from steersman.operators.reload.planning.state import read_state

    states = [read_state(workload.annotations.get(APPLIED)).applied for _, workload in inspection.workloads()]
    named = {name for state in states if state is not None for name in state.key_names()}
    if all(inspection.keys.find(name) is not None for name in named):
        return []
    place = inspection.options.digest_secret
    homes = () if place is None else (place[0],) if place[0] else (OPERATOR_NAMESPACE, client.namespace)
    inspection.keys = await read_ring(client, [(home, place[1]) for home in homes if place is not None], named)
    if all(inspection.keys.find(name) is not None for name in named):
        return []
    return [f"what pods were started for is unknown: {inspection.keys.unreadable}"]


async def _read_extra(inspection: OfflineInspection, client: Client, namespaces: Collection[str]) -> None:
    """Add the sources of other namespaces that workloads name; what may not be read is noted on the inspection."""
    from steersman.kube.api.errors import Forbidden

    named = {source for _, workload in inspection.workloads() for source in workload.facts.settings.extra}
    for source in sorted(named):
        if source.namespace not in namespaces:
            try:
                await _read(inspection, client, {str(source)})
            except Forbidden as error:
                inspection.unseen.append(f"{source} cannot be read, and may grant or not: {error}")


async def users_elsewhere(
    client: Client, options: ReloadOptions, namespaces: Collection[str]
) -> tuple[frozenset[str], list[str]]:
    """The other namespaces with workloads that use sources of these, and what could not be asked."""
    from steersman.errors import FormatError
    from steersman.kube.api.errors import Forbidden
    from steersman.operators.reload.api.annotations import RELOAD_EXTRA
    from steersman.operators.reload.inspect.offline import OfflineInspection

    inspection = OfflineInspection(options, served=[resource.kind for resource in await client.api_resources()])
    found: set[str] = set()
    where = (None,) if options.namespaces is None else sorted(options.namespaces)
    for rule in inspection.rules.values():
        for place in where:
            try:
                async for page in client.pages(rule.kind, namespace=place):
                    for item in page.items:
                        meta = item["metadata"]
                        if meta["namespace"] in namespaces or RELOAD_EXTRA not in (meta.get("annotations") or {}):
                            continue
                        with suppress(FormatError):
                            one: Any = inspection.add(
                                {"apiVersion": rule.kind.api_version, "kind": rule.kind.kind, **item}
                            )
                            if any(source.namespace in namespaces for source in one.facts.settings.extra):
                                found.add(meta["namespace"])
            except Forbidden as error:
                what = "of other namespaces" if place is None else f"of namespace {place}"
                return frozenset(found), [f"workloads {what} may use these sources and cannot be read: {error}"]
    return frozenset(found), []


def workload_word(text: str) -> tuple[str, str]:
    """`deploy/web` as kind and name."""
    kind, slash, name = text.partition("/")
    if not (slash and kind and name) or "/" in name:
        raise click.BadParameter(f'"{text}" is not KIND/NAME (try deployment/web)', param_hint="KIND/NAME")
    return kind, name


def rule_named(inspection: Any, kind: str) -> Any:
    """The rule of a kind as people write it."""
    import click

    rule = inspection.rule_for(kind)
    if rule is None:
        known = ", ".join(rule.kind.kind.lower() for rule in inspection.rules.values())
        raise click.BadParameter(f'unknown kind "{kind}" (known: {known})', param_hint="KIND/NAME")
    return rule


def open_inspection(
    options: ReloadOptions,
    names: Sequence[str],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    *,
    all_namespaces: bool = False,
) -> OfflineInspection:
    """The objects in manifests when some are named, else those of a cluster."""
    import asyncio

    from steersman.cli.manifest_files import read_manifests
    from steersman.errors import ConfigError
    from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
    from steersman.operators.reload.inspect.offline import OfflineInspection, is_source
    from steersman.operators.reload.workloads.kinds import BUILT_IN

    if names:
        found = read_manifests(names)
        if found.problems:
            where, message = found.problems[0]
            raise ConfigError(message, where=where)
        policies = (ReloadPolicy.KIND, ClusterReloadPolicy.KIND)
        inspection = OfflineInspection(options, served=[*(rule.kind for rule in BUILT_IN), *policies])
        for _, manifest in sorted(found.objects, key=lambda row: is_source(row[1])):
            inspection.add(manifest, namespace or "default")
        return inspection

    async def read() -> OfflineInspection:
        async with connected(kubeconfig, context) as client:
            spaces = None if all_namespaces else [namespace or client.namespace]
            return (await inspect_cluster(client, options, spaces, compares=False))[0]

    return asyncio.run(read())


async def evaluate_workload(
    client: Client, options: ReloadOptions, kind: str, name: str, namespace: str | None
) -> tuple[OfflineInspection, KindRule, Evaluation, dict[str, Any]]:
    """Evaluate one workload, reading only what concerns it: the reads of an evaluation are its interests."""
    import time

    from steersman.operators.reload.inspect.offline import OfflineInspection

    inspection = OfflineInspection(options, served=[resource.kind for resource in await client.api_resources()])
    rule: KindRule = rule_named(inspection, kind)
    inspection.rules.setdefault((rule.kind.group, rule.kind.kind), rule)
    home = namespace or client.namespace
    raw = await client.get(rule.kind, name, namespace=home)
    workload: Any = inspection.add({"apiVersion": rule.kind.api_version, "kind": rule.kind.kind, **raw}, home)
    await _read_keys(inspection, client)  # what it cannot compare without them is a problem of the evaluation itself
    await _read(inspection, client, {f"namespace/{home}"})
    await _read_policies(inspection, client, home)
    read: frozenset[str] = frozenset()
    for _ in range(_ROUNDS):
        evaluation = inspection.evaluate(rule, workload, time.time())
        wanted = (evaluation.snapshot.interests - read).union(map(str, evaluation.snapshot.incomplete))
        if not wanted:
            break
        await _read(inspection, client, wanted)
        read |= evaluation.snapshot.interests
    return inspection, rule, evaluation, raw


async def among_others(
    client: Client, inspection: OfflineInspection, rule: KindRule, evaluation: Evaluation
) -> tuple[Evaluation, list[str]]:
    """Evaluate again with the other workloads that may hold it back, and report which of them may not be read.

    These are the workloads of its namespace, those of other namespaces that use what changed, where it is ordered with
    any, and all when a limit counts them.
    """
    import time

    from steersman.kube.api.errors import Forbidden
    from steersman.operators.reload.inspect.offline import read_cluster

    changed = {change.source for change in evaluation.plan.changes}
    homes = {evaluation.workload.namespace}
    if evaluation.policy.order_with:
        homes |= {source.namespace for source in changed}
    unseen: list[str] = []
    if evaluation.policy.order_with and any(
        _reaches_out(inspection, source, evaluation.workload.namespace) for source in changed
    ):
        users, unseen = await users_elsewhere(client, inspection.options, {source.namespace for source in changed})
        homes |= users
    for home in sorted(homes if inspection.options.namespaces is None else homes & inspection.options.namespaces):
        try:
            await read_cluster(inspection, client, namespaces=[home])
        except Forbidden as error:
            unseen.append(f"a workload of namespace {home} may hold it back, which cannot be seen from here: {error}")
    if evaluation.policy.max_concurrent_cluster:
        unseen += await _rollouts_elsewhere(client, inspection, homes)
    now = time.time()
    lacking = {
        str(source)
        for kind, other in inspection.workloads()
        for source in inspection.evaluate(kind, other, now).snapshot.incomplete
    }
    await _read(inspection, client, lacking)
    inspection.register_all(now)
    return inspection.evaluate_since_changes(rule, evaluation.workload, now), unseen


def _reaches_out(inspection: OfflineInspection, source: SourceRef, home: str) -> bool:
    """Whether workloads of other namespaces may use a source."""
    held = inspection.source(source)
    return source.namespace != home or (held is not None and bool(held.settings.shared_with - {home}))


async def _rollouts_elsewhere(client: Client, inspection: OfflineInspection, homes: Collection[str]) -> list[str]:
    """Add which restarts are under way outside of namespaces that are known; returns why not, if so."""
    import time

    from steersman.errors import FormatError
    from steersman.kube.api.errors import Forbidden
    from steersman.operators.reload.inspect.offline import OfflineInspection
    from steersman.operators.reload.workloads.workload import workload_id

    abroad = OfflineInspection(inspection.options)
    abroad.rules = inspection.rules
    spaces = inspection.options.namespaces
    try:
        for rule in inspection.rules.values():
            for space in (None,) if spaces is None else sorted(spaces.difference(homes)):
                async for page in client.pages(rule.kind, namespace=space):
                    for item in page.items:
                        if item["metadata"]["namespace"] not in homes:
                            with suppress(FormatError):
                                abroad.add({"apiVersion": rule.kind.api_version, "kind": rule.kind.kind, **item})
    except Forbidden as error:
        return [f"restarts in other namespaces count against the limit of the cluster, and cannot be seen: {error}"]
    for rule, workload in abroad.workloads():
        deadline = abroad.evaluate(rule, workload, time.time()).policy.deadline
        inspection.coordinator.rollouts.observe(
            workload_id(workload), workload, deadline_seconds=deadline.total_seconds()
        )
    return []


async def _read_policies(inspection: OfflineInspection, client: Client, namespace: str) -> None:
    """Add the policies that may be about workloads of a namespace; without the right to, that is noted."""
    from steersman.kube.api.errors import Forbidden, NotFound

    for policy in inspection.policies.kinds:
        kind = policy.KIND
        try:
            for item in (await client.list(kind, namespace=namespace if kind.namespaced else None)).items:
                inspection.add({"apiVersion": kind.api_version, "kind": kind.kind, **item})
        except NotFound:
            continue
        except Forbidden as error:
            inspection.unseen.append(f"{kind.plural} may say more, and cannot be read: {error}")


async def _read(inspection: OfflineInspection, client: Client, names: Collection[str]) -> None:
    """Add what an evaluation asked for; what does not exist stays absent."""
    from steersman.kube.api.errors import Forbidden, NotFound
    from steersman.operators.reload.api.config import SourceKind
    from steersman.operators.reload.planning.snapshot import DEPLOYMENT, NamespaceSettings
    from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource

    kinds = {
        "configmap": ConfigMapSource.KIND,
        "secret": SecretSource.KIND,
        "template": DEPLOYMENT.KIND,
        "namespace": NamespaceSettings.KIND,
    }
    for wanted in sorted(names):
        word, *place = wanted.split("/")
        if word == SourceKind.PROVIDER_CLASS and inspection.providers:
            await _read_mounted(inspection, client, place[0])
        kind = kinds.get(word)
        if kind is None:
            continue
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        try:
            if place[-1] == "*":
                for item in (await client.list(kind, namespace=place[0])).items:
                    inspection.add({**head, **item})
            else:
                space = place[0] if len(place) == 2 else None
                inspection.add({**head, **await client.get(kind, place[-1], namespace=space)})
        except NotFound:
            continue
        except Forbidden as error:
            if word != "namespace":
                raise
            inspection.unseen.append(f"annotations of namespaces may say more, and cannot be read: {error}")


async def _read_mounted(inspection: OfflineInspection, client: Client, namespace: str) -> None:
    """Add what the secrets store CSI driver has mounted in a namespace; without the right to, that is noted."""
    from steersman.kube.api.errors import Forbidden, NotFound
    from steersman.operators.reload.sources.csi import ProviderClass, ProviderStatus

    for kind in (ProviderStatus.KIND, ProviderClass.KIND):
        try:
            for item in (await client.list(kind, namespace=namespace)).items:
                inspection.add({"apiVersion": kind.api_version, "kind": kind.kind, **item})
        except NotFound:
            continue
        except Forbidden as error:
            inspection.unseen.append(f"{kind.plural} may say more, and cannot be read: {error}")


async def events_of(
    client: Client, namespace: str | None, kind: str = "", name: str = "", *, unseen: list[str]
) -> list[Any]:
    """The Events of a namespace, or of one object in it; that they cannot be read is added to `unseen`."""
    from steersman.kube.api.errors import KubeError
    from steersman.kube.api.types.core import Event

    about = f"involvedObject.name={name},involvedObject.kind={kind}" if name else None
    try:
        return (await client.list(Event.KIND, namespace=namespace, field_selector=about)).items
    except KubeError as error:
        unseen.append(f"Events cannot be read, and may say more about restarts: {error}")
        return []


def describe_pods(raw: dict[str, Any]) -> str:
    """How the pods of a workload are doing: `3 of 3 pods new and ready`."""
    status = raw.get("status") or {}
    wanted = (raw.get("spec") or {}).get("replicas", status.get("desiredNumberScheduled"))
    if not isinstance(wanted, int):
        return ""
    ready = status.get("readyReplicas", status.get("numberReady", 0))
    fresh = status.get("updatedReplicas", status.get("updatedNumberScheduled", 0))
    return f"{min(ready, fresh)} of {wanted} pods new and ready"
