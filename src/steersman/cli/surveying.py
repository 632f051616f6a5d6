"""What the reload commands have in common: a client for the cluster, and a survey of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from steersman.kube.client import Client
    from steersman.operators.reload.kinds import KindRule
    from steersman.operators.reload.look import Look
    from steersman.operators.reload.survey import Survey
    from steersman.operators.reload.types import Options, SourceRef

__all__ = [
    "among_others",
    "connected",
    "events_of",
    "looked_at",
    "pods_told",
    "rule_named",
    "survey_of",
    "surveyed",
    "users_elsewhere",
    "workload_word",
]

_ROUNDS = 6  # of reading what the last look asked for; templates of templates end long before


def connected(kubeconfig: Path | None, context: str | None) -> Client:
    """A client for what the options name."""
    from steersman.cli.kubeoptions import cluster_config
    from steersman.kube.client import Client

    return Client.connect(cluster_config(kubeconfig, context), user_agent="steersman-cli")


async def surveyed(
    client: Client,
    options: Options,
    namespaces: Sequence[str] | None,
    *,
    copies: int = 1,
    expecting: Iterable[dict[str, Any]] = (),
    as_far_as_allowed: bool = False,
) -> tuple[Survey, ...]:
    """The cluster as it is, `copies` times, read once; `expecting`: manifests that will be laid over one of them.

    `as_far_as_allowed`: what may not be read is noted on the survey instead of raised.
    """
    from steersman.operators.reload.survey import Survey, read_cluster

    served = [one.kind for one in await client.discover()]
    first = Survey(options, served=served)
    first.expect(expecting)
    await read_cluster(first, client, namespaces=namespaces, as_far_as_allowed=as_far_as_allowed)
    if namespaces is not None:
        await _read_extra(first, client, namespaces)
    return (first, *(first.copy() for _ in range(copies - 1)))


async def _read_extra(survey: Survey, client: Client, namespaces: Collection[str]) -> None:
    """Take in the sources of other namespaces that workloads name; what may not be read is noted on the survey."""
    from steersman.kube.errors import Forbidden

    named = {source for _, workload in survey.workloads() for source in workload.facts.settings.extra}
    for source in sorted(named):
        if source.namespace not in namespaces:
            try:
                await _read(survey, client, {str(source)})
            except Forbidden as error:
                survey.unseen.append(f"{source} cannot be read, and may grant or not: {error}")


async def users_elsewhere(
    client: Client, options: Options, namespaces: Collection[str]
) -> tuple[frozenset[str], list[str]]:
    """The other namespaces with workloads that use sources of these, and what could not be asked."""
    from steersman.errors import FormatError
    from steersman.kube.errors import Forbidden
    from steersman.operators.reload.survey import Survey
    from steersman.operators.reload.types import RELOAD_EXTRA

    survey = Survey(options, served=[one.kind for one in await client.discover()])
    found: set[str] = set()
    where = (None,) if options.namespaces is None else sorted(options.namespaces)
    for rule in survey.rules.values():
        for place in where:
            try:
                async for page in client.pages(rule.kind, namespace=place):
                    for item in page.items:
                        meta = item["metadata"]
                        if meta["namespace"] in namespaces or RELOAD_EXTRA not in (meta.get("annotations") or {}):
                            continue
                        with suppress(FormatError):
                            one: Any = survey.add({"apiVersion": rule.kind.api_version, "kind": rule.kind.kind, **item})
                            if any(source.namespace in namespaces for source in one.facts.settings.extra):
                                found.add(meta["namespace"])
            except Forbidden as error:
                what = "of other namespaces" if place is None else f"of namespace {place}"
                return frozenset(found), [f"workloads {what} may use these sources and cannot be read: {error}"]
    return frozenset(found), []


def workload_word(text: str) -> tuple[str, str]:
    """`deploy/web` as kind and name."""
    import click

    kind, slash, name = text.partition("/")
    if not (slash and kind and name) or "/" in name:
        raise click.BadParameter(f'"{text}" is not KIND/NAME (try deployment/web)', param_hint="KIND/NAME")
    return kind, name


def rule_named(survey: Any, kind: str) -> Any:
    """The rule of a kind as people write it."""
    import click

    rule = survey.rule_for(kind)
    if rule is None:
        known = ", ".join(one.kind.kind.lower() for one in survey.rules.values())
        raise click.BadParameter(
            f'"{kind}" is no kind of workload that is looked after ({known})', param_hint="KIND/NAME"
        )
    return rule


def survey_of(
    options: Options,
    names: Sequence[str],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    *,
    all_namespaces: bool = False,
) -> Survey:
    """The objects in manifests when some are named, else those of a cluster."""
    import asyncio

    from steersman.cli.manifestfiles import read_manifests
    from steersman.errors import ConfigError
    from steersman.operators.reload.kinds import BUILT_IN
    from steersman.operators.reload.policies import ClusterReloadPolicy, ReloadPolicy
    from steersman.operators.reload.survey import Survey, is_source

    if names:
        found = read_manifests(names)
        if found.problems:
            where, message = found.problems[0]
            raise ConfigError(message, where=where)
        policies = (ReloadPolicy.KIND, ClusterReloadPolicy.KIND)
        survey = Survey(options, served=[*(rule.kind for rule in BUILT_IN), *policies])
        for _, manifest in sorted(found.objects, key=lambda row: is_source(row[1])):
            survey.add(manifest, namespace or "default")
        return survey

    async def read() -> Survey:
        async with connected(kubeconfig, context) as client:
            spaces = None if all_namespaces else [namespace or client.namespace]
            return (await surveyed(client, options, spaces))[0]

    return asyncio.run(read())


async def looked_at(
    client: Client, options: Options, kind: str, name: str, namespace: str | None
) -> tuple[Survey, KindRule, Look, dict[str, Any]]:
    """A look at one workload, for which only what concerns it is read: the reads of a look are its interests."""
    import time

    from steersman.operators.reload.survey import Survey

    survey = Survey(options, served=[one.kind for one in await client.discover()])
    rule: KindRule = rule_named(survey, kind)
    survey.rules.setdefault((rule.kind.group, rule.kind.kind), rule)
    home = namespace or client.namespace
    raw = await client.get(rule.kind, name, namespace=home)
    workload: Any = survey.add({"apiVersion": rule.kind.api_version, "kind": rule.kind.kind, **raw}, home)
    await _read(survey, client, {f"namespace/{home}"})
    await _read_policies(survey, client, home)
    read: frozenset[str] = frozenset()
    for _ in range(_ROUNDS):
        look = survey.look(rule, workload, time.time())
        wanted = (look.interests - read).union(map(str, look.lacking))
        if not wanted:
            break
        await _read(survey, client, wanted)
        read |= look.interests
    return survey, rule, look, raw


async def among_others(client: Client, survey: Survey, rule: KindRule, look: Look) -> tuple[Look, list[str]]:
    """The look again with the other workloads in sight that may hold it back, and what of them may not be read.

    These are the workloads of its namespace, those elsewhere that use what changed, and all when a limit counts them.
    """
    import time

    from steersman.kube.errors import Forbidden
    from steersman.operators.reload.survey import read_cluster

    changed = {change.source for change in look.plan.changes}
    homes = {look.workload.namespace, *(source.namespace for source in changed)}
    unseen: list[str] = []
    if any(_reaches_out(survey, source, look.workload.namespace) for source in changed):
        users, unseen = await users_elsewhere(client, survey.options, {source.namespace for source in changed})
        homes |= users
    for home in sorted(homes if survey.options.namespaces is None else homes & survey.options.namespaces):
        try:
            await read_cluster(survey, client, namespaces=[home])
        except Forbidden as error:
            unseen.append(f"a workload of namespace {home} may hold it back, which cannot be seen from here: {error}")
    if look.policy.max_concurrent_cluster:
        unseen += await _rollouts_elsewhere(client, survey, homes)
    now = time.time()
    lacking = {str(one) for kind, other in survey.workloads() for one in survey.look(kind, other, now).lacking}
    await _read(survey, client, lacking)
    survey.acquaint_all(now)
    return survey.look_since(rule, look.workload, now), unseen


def _reaches_out(survey: Survey, source: SourceRef, home: str) -> bool:
    """Whether workloads of other namespaces may use a source."""
    held = survey.source(source)
    return source.namespace != home or (held is not None and bool(held.settings.shared_with - {home}))


async def _rollouts_elsewhere(client: Client, survey: Survey, homes: Collection[str]) -> list[str]:
    """Take in which restarts are under way outside of namespaces that are known; returns why not, if so."""
    import time

    from steersman.errors import FormatError
    from steersman.kube.errors import Forbidden
    from steersman.operators.reload.survey import Survey
    from steersman.operators.reload.workloads import workload_id

    abroad = Survey(survey.options)
    abroad.rules = survey.rules
    spaces = survey.options.namespaces
    try:
        for rule in survey.rules.values():
            for space in (None,) if spaces is None else sorted(spaces.difference(homes)):
                async for page in client.pages(rule.kind, namespace=space):
                    for item in page.items:
                        if item["metadata"]["namespace"] not in homes:
                            with suppress(FormatError):
                                abroad.add({"apiVersion": rule.kind.api_version, "kind": rule.kind.kind, **item})
    except Forbidden as error:
        return [f"restarts in other namespaces count against the limit of the cluster, and cannot be seen: {error}"]
    for rule, one in abroad.workloads():
        deadline = abroad.look(rule, one, time.time()).policy.deadline
        survey.fleet.rollouts.saw(workload_id(one), one, deadline_seconds=deadline.total_seconds())
    return []


async def _read_policies(survey: Survey, client: Client, namespace: str) -> None:
    """Take in the policies that may be about workloads of a namespace; without the right to, that is noted."""
    from steersman.kube.errors import Forbidden, NotFound

    for one in survey.policies.kinds:
        kind = one.KIND
        try:
            for item in (await client.list(kind, namespace=namespace if kind.namespaced else None)).items:
                survey.add({"apiVersion": kind.api_version, "kind": kind.kind, **item})
        except NotFound:
            continue
        except Forbidden as error:
            survey.unseen.append(f"{kind.plural} may say more, and cannot be read: {error}")


async def _read(survey: Survey, client: Client, names: Collection[str]) -> None:
    """Take in what a look asked for; what does not exist stays absent."""
    from steersman.kube.errors import Forbidden, NotFound
    from steersman.operators.reload.digest import ConfigMapSource, SecretSource
    from steersman.operators.reload.look import DEPLOYMENT, NamespaceSettings
    from steersman.operators.reload.types import SourceKind

    kinds = {
        "configmap": ConfigMapSource.KIND,
        "secret": SecretSource.KIND,
        "template": DEPLOYMENT.KIND,
        "namespace": NamespaceSettings.KIND,
    }
    for wanted in sorted(names):
        word, *place = wanted.split("/")
        if word == SourceKind.PROVIDER_CLASS and survey.providers:
            await _read_mounted(survey, client, place[0])
        kind = kinds.get(word)
        if kind is None:
            continue
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        try:
            if place[-1] == "*":
                for item in (await client.list(kind, namespace=place[0])).items:
                    survey.add({**head, **item})
            else:
                space = place[0] if len(place) == 2 else None
                survey.add({**head, **await client.get(kind, place[-1], namespace=space)})
        except NotFound:
            continue
        except Forbidden as error:
            if word != "namespace":
                raise
            survey.unseen.append(f"annotations of namespaces may say more, and cannot be read: {error}")


async def _read_mounted(survey: Survey, client: Client, namespace: str) -> None:
    """Take in what the secrets store CSI driver has mounted in a namespace; without the right to, that is noted."""
    from steersman.kube.errors import Forbidden, NotFound
    from steersman.operators.reload.providers import ProviderClass, ProviderStatus

    for kind in (ProviderStatus.KIND, ProviderClass.KIND):
        try:
            for item in (await client.list(kind, namespace=namespace)).items:
                survey.add({"apiVersion": kind.api_version, "kind": kind.kind, **item})
        except NotFound:
            continue
        except Forbidden as error:
            survey.unseen.append(f"{kind.plural} may say more, and cannot be read: {error}")


async def events_of(client: Client, namespace: str | None, kind: str = "", name: str = "") -> list[Any]:
    """The Events of a namespace, or of one object in it; none when they may not be read: they only add to answers."""
    from steersman.kube.errors import KubeError
    from steersman.kube.types.core import Event

    about = f"involvedObject.name={name},involvedObject.kind={kind}" if name else None
    try:
        return (await client.list(Event.KIND, namespace=namespace, field_selector=about)).items
    except KubeError:
        return []


def pods_told(raw: dict[str, Any]) -> str:
    """How the pods of a workload are doing: `3 of 3 pods new and ready`."""
    status = raw.get("status") or {}
    wanted = (raw.get("spec") or {}).get("replicas", status.get("desiredNumberScheduled"))
    if not isinstance(wanted, int):
        return ""
    ready = status.get("readyReplicas", status.get("numberReady", 0))
    fresh = status.get("updatedReplicas", status.get("updatedNumberScheduled", 0))
    return f"{min(ready, fresh)} of {wanted} pods new and ready"
