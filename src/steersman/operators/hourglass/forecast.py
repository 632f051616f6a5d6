"""What would become of manifests: every object that would be made, changed or replaced, and what is wrong. Pure.

The same functions that the controllers use make the answer, so a plan cannot promise something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.operators.hourglass.executor import account_objects, adopted, children_of
from steersman.operators.hourglass.pod import pod_template
from steersman.operators.hourglass.replacement import adoptable
from steersman.operators.hourglass.service import network_policy_for, performer_budget
from steersman.operators.hourglass.types import (
    GROUP,
    KEYS_HASH,
    TEMPLATE_HASH,
    StoredExecutor,
    StoredPerformer,
    pod_name,
)
from steersman.operators.hourglass.validation import read_executor, read_performer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.hourglass.scheduling import Scheduling
    from steersman.operators.hourglass.settings import HourglassOptions
    from steersman.operators.hourglass.types import PerformerSpec

__all__ = ["Line", "forecast"]

Key = tuple[str, str, str]  # kind, namespace, name


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to one object."""

    resource: str  # the executor or performer it is for
    namespace: str
    object: str
    action: str  # create, update, replace, keep, invalid
    why: str = ""


def forecast(
    manifests: list[dict[str, Any]],
    options: HourglassOptions,
    *,
    namespace: str = "default",
    live: Mapping[Key, Any] | None = None,
) -> list[Line]:
    """The plan for manifests of both kinds; others are passed over. `live` is what the cluster has, if it was asked."""
    ours = [_placed(one, namespace) for one in manifests if str(one.get("apiVersion", "")).startswith(f"{GROUP}/")]
    executors = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): msgspec.convert(one, StoredExecutor)
        for one in ours
        if one["kind"] == "HourglassExecutor"
    }
    for key, found in (live or {}).items():
        if key[0] == "HourglassExecutor":
            executors.setdefault(key[1:], found)
    lines: list[Line] = []
    for one in ours:
        if one["kind"] == "HourglassExecutor":
            lines += _executor(executors[one["metadata"]["namespace"], one["metadata"]["name"]], options, live)
        elif one["kind"] == "Performer":
            lines += _performer(msgspec.convert(one, StoredPerformer), executors, options, live)
    return lines


def _placed(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "namespace": meta.get("namespace") or namespace}}


def _executor(executor: StoredExecutor, options: HourglassOptions, live: Mapping[Key, Any] | None) -> list[Line]:
    spec, problems = read_executor(executor)
    title = f"HourglassExecutor/{executor.name}"
    if spec is None or problems:
        return [_invalid(title, executor.namespace, str(one)) for one in problems]
    if live is not None and (known := live.get(("HourglassExecutor", executor.namespace, executor.name))):
        executor = msgspec.structs.replace(executor, metadata=known.metadata)  # digests are salted with its uid
    children = children_of(executor, spec, keys=_keys_in_use(executor, live))
    objects = [children.config_map, children.secret, children.deployment, children.budget]
    if options.create_service_accounts:
        objects = [*account_objects(executor.namespace, spec), *objects]
    lines = []
    for one in objects:
        if one is None:
            continue
        meta = one["metadata"]
        action, why = _fate(one["kind"], meta["namespace"], meta["name"], live)
        if one["kind"] == "Deployment" and live is not None and action != "create":
            found = live["Deployment", meta["namespace"], meta["name"]]
            same = found.annotations.get(TEMPLATE_HASH) == children.template_hash
            adopts = "template" not in adopted(children, found)["spec"]
            action, why = ("keep", "") if same or adopts else ("update", "its pods are rolled")
            why = "adopted: its template stays until the executor changes" if adopts else why
        lines.append(
            Line(
                resource=title,
                namespace=meta["namespace"],
                object=f"{one['kind']}/{meta['name']}",
                action=action,
                why=why,
            )
        )
    return lines


def _keys_in_use(executor: StoredExecutor, live: Mapping[Key, Any] | None) -> str:
    """The digest of referred keys that the pods were started with: what is in the Secret is not asked for."""
    found = (live or {}).get(("Deployment", executor.namespace, executor.name))
    noted: dict[str, str] = (found.spec.template.metadata.annotations or {}) if found is not None else {}
    return noted.get(KEYS_HASH, "")


def _performer(
    performer: StoredPerformer,
    executors: Mapping[tuple[str, str], StoredExecutor],
    options: HourglassOptions,
    live: Mapping[Key, Any] | None,
) -> list[Line]:
    spec, problems = read_performer(performer)
    title, namespace = f"Performer/{performer.name}", performer.namespace
    if spec is None:
        return [_invalid(title, namespace, str(one)) for one in problems]
    inherited, note = _inherited(spec, namespace, executors)
    template, more = pod_template(performer.name, spec, options.hardware, inherited)
    if problems or more:
        return [_invalid(title, namespace, str(one)) for one in (*problems, *more)]
    name = pod_name(performer.name)
    action, why = _fate("Service", namespace, name, live)
    lines = [Line(resource=title, namespace=namespace, object=f"Service/{name}", action=action, why=why)]
    for one in (performer_budget(performer.name, namespace, spec), network_policy_for(performer.name, namespace, spec)):
        if one is not None:
            action, why = _fate(one["kind"], namespace, name, live)
            lines.append(
                Line(resource=title, namespace=namespace, object=f"{one['kind']}/{name}", action=action, why=why)
            )
    mine = [pod for key, pod in (live or {}).items() if key[0] == "Pod" and _belongs(pod, performer)]
    current = [
        pod for pod in mine if pod.annotations.get(TEMPLATE_HASH) == template.hash or adoptable(pod, template.image)
    ]
    needs = ", ".join(f"{key}={value}" for key, value in (template.spec.get("nodeSelector") or {}).items())
    for number in range(spec.replicas):
        made = name if number == 0 else f"{name}-{number}"
        if number < len(current):
            kept = current[number]
            action, why, made = "keep", "" if TEMPLATE_HASH in kept.annotations else "adopted as it is", kept.name
        elif number < len(mine):
            action, why = "replace", f"its template changed ({spec.strategy})"
        else:
            action, why = "create", f"on a node with {needs}" if needs else ""
        lines.append(
            Line(
                resource=title,
                namespace=namespace,
                object=f"Pod/{made}",
                action=action,
                why="; ".join(part for part in (why, note) if part),
            )
        )
    return lines


def _inherited(
    spec: PerformerSpec, namespace: str, executors: Mapping[tuple[str, str], StoredExecutor]
) -> tuple[Scheduling | None, str]:
    if not spec.executor_ref:
        return None, ""
    found = executors.get((namespace, spec.executor_ref))
    if found is None:
        return None, f"executor {spec.executor_ref} is not there: nothing is inherited"
    read, _ = read_executor(found)
    kubernetes = read.config.kubernetes if read is not None else None
    return (kubernetes.default_scheduling if kubernetes is not None else None), ""


def _belongs(pod: Any, performer: StoredPerformer) -> bool:
    controller = pod.controller
    return (
        pod.namespace == performer.namespace
        and not pod.deleting
        and controller is not None
        and (controller.kind, controller.name) == ("Performer", performer.name)
    )


def _fate(kind: str, namespace: str, name: str, live: Mapping[Key, Any] | None) -> tuple[str, str]:
    if live is None or (kind, namespace, name) not in live:
        return "create", ""
    return "keep", ""


def _invalid(title: str, namespace: str, why: str) -> Line:
    return Line(resource=title, namespace=namespace, object=title, action="invalid", why=why)
