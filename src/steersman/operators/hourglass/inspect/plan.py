"""The plan for manifests: every object that would be created, changed or replaced, and every problem. Pure.

It calls the functions that the controllers call, so the plan is what the controllers would do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.api.selectors import Selector
from steersman.operators.hourglass.api.types import (
    GROUP,
    KEYS_HASH,
    TEMPLATE_HASH,
    StoredExecutor,
    StoredPerformer,
    pod_name,
)
from steersman.operators.hourglass.api.validation import account_rejections, read_executor, read_performer
from steersman.operators.hourglass.children.executor_children import account_objects, adopted, children_of
from steersman.operators.hourglass.children.pod import pod_template
from steersman.operators.hourglass.children.replacement import adoptable
from steersman.operators.hourglass.children.service import network_policy_for, performer_budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.operators.hourglass.api.config import HourglassOptions
    from steersman.operators.hourglass.api.scheduling import Scheduling
    from steersman.operators.hourglass.api.types import PerformerSpec

Key = tuple[str, str, str]  # kind, namespace, name


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to one object."""

    resource: str  # the executor or performer it is for
    namespace: str
    object: str
    action: str  # create, update, replace, keep, invalid
    why: str = ""


def plan_manifests(
    manifests: list[dict[str, Any]],
    options: HourglassOptions,
    *,
    namespace: str = "default",
    live: Mapping[Key, Any] | None = None,
    selector: str = "",
) -> list[PlanLine]:
    """The plan for manifests of both kinds with the labels of `selector`; other kinds are ignored.

    `live` is what the cluster has, if it was read.
    """
    ours = [
        _placed(manifest, namespace)
        for manifest in manifests
        if str(manifest.get("apiVersion", "")).startswith(f"{GROUP}/")
    ]
    executors = {
        (manifest["metadata"]["namespace"], manifest["metadata"]["name"]): msgspec.convert(manifest, StoredExecutor)
        for manifest in ours
        if manifest["kind"] == "HourglassExecutor"
    }
    for (kind, *ref), found in (live or {}).items():
        if kind == "HourglassExecutor":
            executors.setdefault((ref[0], ref[1]), found)
    lines: list[PlanLine] = []
    chosen = Selector.parse(selector)
    for manifest in ours:
        if not chosen.matches(manifest["metadata"].get("labels")):
            continue
        if manifest["kind"] == "HourglassExecutor":
            key = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            lines += _executor(executors[key], options, live)
        elif manifest["kind"] == "Performer":
            lines += _performer(msgspec.convert(manifest, StoredPerformer), executors, options, live)
    return lines


def _placed(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "namespace": meta.get("namespace") or namespace}}


def _executor(executor: StoredExecutor, options: HourglassOptions, live: Mapping[Key, Any] | None) -> list[PlanLine]:
    spec, problems = read_executor(executor)
    title = f"HourglassExecutor/{executor.name}"
    if spec is not None:
        problems += account_rejections(executor.namespace, spec, options.service_accounts)
    if spec is None or problems:
        return [_invalid(title, executor.namespace, str(problem)) for problem in problems]
    if live is not None and (known := live.get(("HourglassExecutor", executor.namespace, executor.name))):
        executor = msgspec.structs.replace(executor, metadata=known.metadata)  # digests are salted with its uid
    children = children_of(executor, spec, keys=_keys_in_use(executor, live))
    objects = [children.config_map, children.secret, children.deployment, children.budget]
    if options.create_service_accounts:
        objects = [*account_objects(executor.namespace, spec), *objects]
    lines = []
    for obj in objects:
        if obj is None:
            continue
        meta = obj["metadata"]
        action, why = _action(obj["kind"], meta["namespace"], meta["name"], live)
        if obj["kind"] == "Deployment" and live is not None and action != "create":
            found = live["Deployment", meta["namespace"], meta["name"]]
            same = found.annotations.get(TEMPLATE_HASH) == children.template_hash
            adopts = "template" not in adopted(children, found)["spec"]
            action, why = ("keep", "") if same or adopts else ("update", "its pods roll")
            why = "adopted: its template is kept until the executor changes" if adopts else why
        lines.append(
            PlanLine(
                resource=title,
                namespace=meta["namespace"],
                object=f"{obj['kind']}/{meta['name']}",
                action=action,
                why=why,
            )
        )
    return lines


def _keys_in_use(executor: StoredExecutor, live: Mapping[Key, Any] | None) -> str:
    """The digest of referenced keys that the pods were started with: the Secret itself is not read."""
    found = (live or {}).get(("Deployment", executor.namespace, executor.name))
    recorded: dict[str, str] = (found.spec.template.metadata.annotations or {}) if found is not None else {}
    return recorded.get(KEYS_HASH, "")


def _performer(
    performer: StoredPerformer,
    executors: Mapping[tuple[str, str], StoredExecutor],
    options: HourglassOptions,
    live: Mapping[Key, Any] | None,
) -> list[PlanLine]:
    spec, problems = read_performer(performer)
    title, namespace = f"Performer/{performer.name}", performer.namespace
    if spec is None:
        return [_invalid(title, namespace, str(problem)) for problem in problems]
    inherited, note = _inherited(spec, namespace, executors)
    template, more = pod_template(performer.name, spec, options.hardware, inherited)
    more += account_rejections(namespace, spec, options.service_accounts)
    if problems or more:
        return [_invalid(title, namespace, str(problem)) for problem in (*problems, *more)]
    name = pod_name(performer.name)
    action, why = _action("Service", namespace, name, live)
    lines = [PlanLine(resource=title, namespace=namespace, object=f"Service/{name}", action=action, why=why)]
    for child in (
        performer_budget(performer.name, namespace, spec),
        network_policy_for(performer.name, namespace, spec),
    ):
        if child is not None:
            action, why = _action(child["kind"], namespace, name, live)
            lines.append(
                PlanLine(resource=title, namespace=namespace, object=f"{child['kind']}/{name}", action=action, why=why)
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
            PlanLine(
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
        return None, f"executor {spec.executor_ref} not found: no scheduling defaults"
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


def _action(kind: str, namespace: str, name: str, live: Mapping[Key, Any] | None) -> tuple[str, str]:
    if live is None or (kind, namespace, name) not in live:
        return "create", ""
    return "keep", ""


def _invalid(title: str, namespace: str, why: str) -> PlanLine:
    return PlanLine(resource=title, namespace=namespace, object=title, action="invalid", why=why)
