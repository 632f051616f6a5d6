"""toolset: Services come, move to another port and go, and users edit and delete the ConfigMap.

An act is a write that changes the data of the ConfigMap. A cause is a change of a Service, or what a user did to the
ConfigMap.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from steersman.kube.api.errors import AlreadyExists, NotFound
from steersman.kube.api.types import ConfigMap, Service
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from steersman.operators.toolset.reconcile.setup import make_bundle
from steersman.runtime.manager.operator_bundle import RuntimeEnvironment
from tests.support.chaos.checkers import Act, Cause
from tests.support.chaos.operators import Subject
from tests.support.chaos.schedule import Choice
from tests.support.toolset.services import service

if TYPE_CHECKING:
    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.manager.operator_bundle import OperatorBundle
    from tests.support.chaos.history import History
    from tests.support.chaos.schedule import Step

__all__ = ["ToolsetSubject"]

TYPES = {"prometheus-a": "prometheus", "prometheus-b": "prometheus", "grafana-a": "grafana", "grafana-b": "grafana"}
SERVICES = tuple(f"service/{name}" for name in TYPES)
TARGET = "kubernaut-toolset-config"
FIRST_PORTS = {"prometheus": 9090, "grafana": 3000}


class ToolsetSubject(Subject):
    """The operator toolset with one ConfigMap and up to four Services."""

    name = "toolset"
    churn = ("create", "delete", "service")
    actions = (
        Choice("create", SERVICES, weight=4),
        Choice("edit", SERVICES, weight=4),
        Choice("delete", SERVICES, weight=3),
        Choice("edit", (f"configmap/{TARGET}",)),
        Choice("delete", (f"configmap/{TARGET}",)),
    )

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def prepare(self, client: Client) -> None:
        for name in SERVICES[:2]:
            await client.create(self._service(name))

    def bundle(self, clock: Clock, registry: Any) -> OperatorBundle:
        health = HealthConfig(enabled=False, empty_after="0s")
        section = ToolsetSection(namespace=self.namespace, namespaces=[self.namespace], health_check=health)
        return make_bundle(section, RuntimeEnvironment(clock=clock), registry=registry)

    def settings(self) -> str:
        health = "healthCheck: {enabled: false, emptyAfter: 0s}"
        return f"toolset: {{namespace: {self.namespace}, namespaces: [{self.namespace}], {health}}}\n"

    async def act(self, client: Client, step: Step) -> bool:
        kind, name = step.target.split("/")
        target: Any = Service if kind == "service" else ConfigMap
        try:
            match (step.name, kind):
                case ("create", _):
                    await client.create(self._service(step.target))
                case ("edit", "service"):
                    await client.patch(
                        Service, name, {"spec": self._service(step.target)["spec"]}, namespace=self.namespace
                    )
                case ("edit", _):
                    data = {"data": {"kubernetes-toolset.yaml": f"edited: {next(self._numbers)}\n"}}
                    await client.patch(ConfigMap, name, data, namespace=self.namespace)
                case _:
                    await client.delete(target, name, namespace=self.namespace)
        except (NotFound, AlreadyExists):
            return False
        return True

    async def touch(self, client: Client) -> None:
        note = {"metadata": {"annotations": {"example.org/note": str(next(self._numbers))}}}
        for found in (await client.list(Service, namespace=self.namespace)).items:
            await client.patch(Service, found.name, note, namespace=self.namespace)

    async def unmet(self, client: Client, history: History) -> list[str]:
        services = (await client.list(Service, namespace=self.namespace)).items
        try:
            data = (await client.get(ConfigMap, TARGET, namespace=self.namespace)).data or {}
        except NotFound:
            return ["there is no ConfigMap"]
        text = "\n".join(data.values())
        ports = {found.name: found.spec.ports[0].port for found in services}
        found = [
            f"{name}:{port} is not in the ConfigMap"
            for name, port in ports.items()
            if f"{name}.{self.namespace}.svc.cluster.local:{port}" not in text
        ]
        found += [
            f"{name} is in the ConfigMap" for name in TYPES if name not in ports and f"{name}.{self.namespace}" in text
        ]
        return found + ["an edit of a user is in the ConfigMap"] * ("edited:" in text)

    def acts(self, history: History) -> list[Act]:
        found, edits, data = [], 0, ""
        for version in history.of("configmaps"):
            if version.name != TARGET:
                continue
            now = "" if version.type == "DELETED" else json.dumps(version.object.get("data"), sort_keys=True)
            if not history.by_operator(version.writer):
                edits += 1
            elif now != data:
                found.append(Act(TARGET, version.place, f"{edits} {now}", f"configmap/{TARGET}"))
            data = now
        return found

    def causes(self, history: History) -> list[Cause]:
        services = [
            Cause(TARGET, version.place) for version in history.of("services") if version.namespace == self.namespace
        ]
        edits = [
            Cause(TARGET, version.place)
            for version in history.of("configmaps")
            if version.name == TARGET and not history.by_operator(version.writer)
        ]
        return [Cause(TARGET, 0), *services, *edits]

    def _service(self, target: str) -> dict[str, Any]:
        name = target.partition("/")[2]
        kind = TYPES.get(name, "grafana")
        port = FIRST_PORTS[kind] + 10_000 * (next(self._numbers) % 2)
        return service(name, namespace=self.namespace, labels={"app": kind}, ports=[("web", port)])
