"""What taking over would do to a cluster as it is now, asked before it is done. Only reads.

Each operator's own plan is asked, with the settings it would run with, so what is said here is what would happen:
restarts of workloads, pods of performers that go, names in zones that change, keys of the toolset that change. An empty
answer means that nobody would notice the change of program.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from steersman.cli.settings import Settings

__all__ = ["Effect", "Place", "Takeover", "forecast_takeover"]


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody would notice."""

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


async def forecast_takeover(operator: str, settings: Settings, place: Place) -> Takeover:
    """Ask the operator's plan about the cluster."""
    return await _FORECASTS[operator](settings, place)


async def _reload(settings: Settings, place: Place) -> Takeover:
    import time

    from steersman.cli.surveying import connected, surveyed
    from steersman.operators.reload.plan import APPLYING, Action

    section = settings.sections["reload"]
    spaces: Sequence[str] | None = section.namespaces or settings.namespaces
    if place.namespace is not None:
        spaces = [place.namespace]
    async with connected(place.kubeconfig, place.context) as client:
        (survey,) = await surveyed(client, section.options(), spaces)
    kept, effects, now = 0, [], time.time()
    for rule, workload in survey.workloads():
        plan = survey.look(rule, workload, now).plan
        changed = plan.action in APPLYING - {Action.TRACK} or (plan.action is Action.WAIT and plan.changes)
        if changed:
            words = " ".join(change.seen_from(workload.namespace) for change in plan.changes)
            effect = plan.action.value if plan.action is not Action.WAIT else "restart, later"
            effects.append(Effect(namespace=workload.namespace, object=workload.title, effect=effect, why=words))
        elif plan.action in (Action.SEED, Action.TRACK, Action.WAIT) or plan.state is not None:
            kept += 1
    return Takeover(operator="reload", kept=kept, effects=tuple(effects))


async def _hourglass(settings: Settings, place: Place) -> Takeover:
    from steersman.cli.hourglass import live_objects
    from steersman.cli.surveying import connected
    from steersman.operators.hourglass.forecast import forecast
    from steersman.operators.hourglass.types import StoredExecutor, StoredPerformer

    manifests: list[dict[str, Any]] = []
    async with connected(place.kubeconfig, place.context) as client:
        for kind in (StoredExecutor.KIND, StoredPerformer.KIND):
            listing = await client.list(kind, into=dict, namespace=place.namespace or "")
            manifests += [{"apiVersion": kind.api_version, "kind": kind.kind, **one} for one in listing.items]
        known = await live_objects(client, {str(one["metadata"]["namespace"]) for one in manifests})
    lines = forecast(manifests, settings.sections["hourglass"].options(), live=known)
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


async def _dns(settings: Settings, place: Place) -> Takeover:
    from steersman.cli.surveying import connected
    from steersman.operators.dns.survey import Survey, objects_of

    async with connected(place.kubeconfig, place.context) as client:
        objects = await objects_of(client)
    survey = Survey(objects, namespace=place.namespace, options=settings.sections["dns"].options())
    try:
        zones = survey.zones()
        # How servers have a zone becomes ours with it; what counts here is what they would answer.
        rows = [(zone, row) for zone in zones for row in await survey.differences(zone) if row.action != "configure"]
    finally:
        survey.close()
    effects = [_in_zone(zone, row) for zone, row in rows]
    return Takeover(operator="dns", kept=len(zones) - len({zone.ref for zone, _ in rows}), effects=tuple(effects))


def _in_zone(zone: Any, row: Any) -> Effect:
    words, why = [row.action, row.name, row.type, f"on {row.server}" if row.server else ""], row.why
    if row.action == "unreachable" and "REFUSED" in why:  # unknown, not nothing: names nobody speaks for are removed
        words, why = ["cannot be compared", words[-1]], f"{why}: let our key transfer the zone (allow-transfer)"
    return Effect(
        namespace=zone.namespace, object=f"DNSZone/{zone.name}", effect=" ".join(filter(None, words)), why=why
    )


async def _toolset(settings: Settings, place: Place) -> Takeover:
    from steersman.cli.toolset import MANAGER, look_now
    from steersman.operators.toolset.steps import plan_target

    chosen = settings.sections["toolset"].settings()
    look, stand = await look_now(chosen, {"kubeconfig": place.kubeconfig, "context": place.context}, probe=False)
    steps = plan_target(look, stand, chosen, manager=MANAGER, now="")
    rows = [(step.desired.name, one) for step in steps for one in step.plan.counted if _is_content(one)]
    effects = [Effect(namespace=chosen.namespace, object=f"ConfigMap/{name}", effect=one) for name, one in rows]
    keys = sum(len(step.desired.data) for step in steps)
    changed = sum(not one.startswith("extra:") for _, one in rows)
    return Takeover(operator="toolset", kept=keys - changed, effects=tuple(effects))


def _is_content(drift: str) -> bool:
    """Whether the agent would notice: not who owns a key, and not labels of the ConfigMap."""
    return not drift.startswith(("ownership:", "metadata:"))


_FORECASTS: dict[str, Callable[[Settings, Place], Coroutine[Any, Any, Takeover]]] = {
    "reload": _reload,
    "hourglass": _hourglass,
    "dns": _dns,
    "toolset": _toolset,
}
