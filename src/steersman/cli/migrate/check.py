"""What taking over would do to a cluster as it is now, asked before it is done. Only reads.

Each operator's own plan is asked, with the settings it would run with, so what is said here is what would happen:
restarts of workloads, pods of performers that go, names in zones that change, keys of the toolset that change. An empty
answer means that the change of program has no effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from steersman.cli.config import RunSettings
    from steersman.cli.migrate.originals import Original
    from steersman.kube.client.client import Client


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One visible effect."""

    namespace: str
    object: str
    effect: str
    why: str = ""


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """What starting our operator now would do."""

    operator: str
    kept: int = 0  # workloads, performers, zones or keys that stay exactly as they are
    effects: tuple[Effect, ...] = ()
    running: tuple[str, ...] = ()  # what of the original still runs: stop it first


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Which cluster, and which part of it; the whole one without a namespace."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


async def forecast_takeover(original: Original, settings: RunSettings, place: Place) -> Takeover:
    """Ask the operator's plan about the cluster; ConfigError for a namespace that does not exist."""
    from steersman.cli.reload.inspection import connected

    section = settings.sections[original.operator]
    async with connected(place.kubeconfig, place.context) as client:
        named = [place.namespace] if place.namespace else []
        named += [*(settings.namespaces or ()), *(getattr(section, "namespaces", None) or ())]
        await check_namespaces_exist(client, named)
    if original.operator == "reload":
        return await _reload(original.name, settings, place)
    return await _FORECASTS[original.operator](settings, place)


async def check_namespaces_exist(client: Client, names: Iterable[str]) -> None:
    """ConfigError for a namespace that does not exist: an answer about it would be about nothing."""
    from steersman.errors import ConfigError
    from steersman.kube.api.errors import Forbidden, NotFound
    from steersman.kube.api.types.core import Namespace

    for name in names:
        if name == "*":
            continue
        try:
            await client.get(Namespace.KIND, name)
        except NotFound:
            raise ConfigError(f'namespace "{name}" does not exist', field="--namespace") from None
        except Forbidden:  # not known; what is read there answers for itself
            continue


async def _reload(name: str, settings: RunSettings, place: Place) -> Takeover:
    import time

    from msgspec.structs import replace

    from steersman.cli.reload.inspection import connected, inspect_cluster
    from steersman.operators.reload.compat.dialects import DIALECTS
    from steersman.operators.reload.planning.plan import APPLYING, Action

    section = settings.sections["reload"]
    spaces: Sequence[str] | None = section.namespaces or settings.namespaces
    if place.namespace is not None:
        spaces = [place.namespace]
    async with connected(place.kubeconfig, place.context) as client:
        (inspection,) = await inspect_cluster(client, section.options(), spaces)
        with_dialect = inspection
        if is_off := name not in section.dialects:
            speaking = replace(section, dialects=(*section.dialects, name)).options()
            (with_dialect,) = await inspect_cluster(client, speaking, spaces, compares=False)
    marks = DIALECTS[name](section.options()).annotations
    kept, effects, now = 0, [], time.time()
    for rule, workload in inspection.workloads():
        plan = inspection.evaluate(rule, workload, now).plan
        changed = plan.action in APPLYING - {Action.TRACK} or (plan.action is Action.WAIT and plan.changes)
        if changed:
            words = " ".join(change.seen_from(workload.namespace) for change in plan.changes)
            effect = plan.action.value if plan.action is not Action.WAIT else "restart, later"
            effects.append(Effect(namespace=workload.namespace, object=workload.title, effect=effect, why=words))
        elif plan.action in (Action.SEED, Action.TRACK, Action.WAIT) or plan.state is not None:
            kept += 1
    if is_off or not (kept or effects):
        why = f"dialect {name} is off: add it to reload.dialects" if is_off else "has annotations that have no effect"
        effects += [
            Effect(namespace=workload.namespace, object=workload.title, effect="no longer restarted", why=why)
            for rule, workload in with_dialect.workloads()
            if _has_any(workload, marks) and not (is_off and _takes_part(inspection, rule, workload.ref, now))
        ]
    return Takeover(operator="reload", kept=kept, effects=tuple(effects))


def _has_any(workload: Any, names: Iterable[str]) -> bool:
    """Whether a workload or its template has an annotation of these names; a name may end in *."""
    from fnmatch import fnmatchcase

    held = {*(workload.annotations or {}), *(workload.facts.template_annotations or {})}
    return any(fnmatchcase(annotation, name) for annotation in held for name in names)


def _takes_part(inspection: Any, rule: Any, ref: Any, now: float) -> bool:
    """Whether a workload restarts for anything under the settings as they are."""
    found = next((held for kind, held in inspection.workloads() if kind.kind == rule.kind and held.ref == ref), None)
    return found is not None and bool(inspection.evaluate(rule, found, now).edges.tracked)


async def _hourglass(settings: RunSettings, place: Place) -> Takeover:
    from steersman.cli.hourglass.commands import live_objects
    from steersman.cli.reload.inspection import connected
    from steersman.operators.hourglass.api.types import StoredExecutor, StoredPerformer
    from steersman.operators.hourglass.inspect.plan import plan_manifests

    manifests: list[dict[str, Any]] = []
    async with connected(place.kubeconfig, place.context) as client:
        for kind in (StoredExecutor.KIND, StoredPerformer.KIND):
            listing = await client.list(kind, into=dict, namespace=place.namespace or "")
            manifests += [{"apiVersion": kind.api_version, "kind": kind.kind, **manifest} for manifest in listing.items]
        known = await live_objects(client, {str(manifest["metadata"]["namespace"]) for manifest in manifests})
    lines = plan_manifests(manifests, settings.sections["hourglass"].options(), live=known)
    noticed = [
        line
        for line in lines
        if line.action in ("replace", "update", "invalid") or _makes_pods(line.object, line.action)
    ]
    effects = [
        Effect(namespace=line.namespace, object=line.object, effect=line.action, why=line.why) for line in noticed
    ]
    touched = {(effect.namespace, line.resource) for effect, line in zip(effects, noticed, strict=True)}
    kept = len({(line.namespace, line.resource) for line in lines} - touched)
    return Takeover(operator="hourglass", kept=kept, effects=tuple(effects))


def _makes_pods(title: str, action: str) -> bool:
    return action == "create" and title.startswith(("Pod/", "Deployment/"))


async def _dns(settings: RunSettings, place: Place) -> Takeover:
    from steersman.cli.reload.inspection import connected
    from steersman.operators.dns.inspect.offline import ZoneInspection, objects_of

    async with connected(place.kubeconfig, place.context) as client:
        objects = await objects_of(client)
    inspection = ZoneInspection(objects, namespace=place.namespace, options=settings.sections["dns"].options())
    try:
        zones = inspection.zones()
        # How servers have a zone becomes ours with it; what counts here is what they would answer.
        rows = [
            (zone, row) for zone in zones for row in await inspection.differences(zone) if row.action != "configure"
        ]
    finally:
        inspection.close()
    effects = [_in_zone(zone, row) for zone, row in rows]
    return Takeover(operator="dns", kept=len(zones) - len({zone.ref for zone, _ in rows}), effects=tuple(effects))


def _in_zone(zone: Any, row: Any) -> Effect:
    words, why = [row.action, row.name, row.type, f"on {row.server}" if row.server else ""], row.why
    if row.action == "unreachable" and "REFUSED" in why:  # unknown, not none: unmanaged names are removed
        words, why = ["cannot be compared", words[-1]], f"{why}: let our key transfer the zone (allow-transfer)"
    return Effect(
        namespace=zone.namespace, object=f"DNSZone/{zone.name}", effect=" ".join(filter(None, words)), why=why
    )


async def _toolset(settings: RunSettings, place: Place) -> Takeover:
    from steersman.cli.toolset.commands import MANAGER, inspect_cluster
    from steersman.operators.toolset.reconcile.plan import plan_target

    chosen = settings.sections["toolset"].settings()
    cluster = {"kubeconfig": place.kubeconfig, "context": place.context}
    desired, current = await inspect_cluster(chosen, cluster, probe=False)
    steps = plan_target(desired, current, chosen, manager=MANAGER, now="").steps
    rows = [(step.desired.name, drift) for step in steps for drift in step.plan.counted if _is_content(drift)]
    effects = [Effect(namespace=chosen.namespace, object=f"ConfigMap/{name}", effect=drift) for name, drift in rows]
    keys = sum(len(step.desired.data) for step in steps)
    changed = sum(not drift.startswith("extra:") for _, drift in rows)
    return Takeover(operator="toolset", kept=keys - changed, effects=tuple(effects))


def _is_content(drift: str) -> bool:
    """Whether the agent would notice: not who owns a key, and not labels of the ConfigMap."""
    return not drift.startswith(("ownership:", "metadata:"))


_FORECASTS: dict[str, Callable[[RunSettings, Place], Coroutine[Any, Any, Takeover]]] = {
    "hourglass": _hourglass,
    "dns": _dns,
    "toolset": _toolset,
}
