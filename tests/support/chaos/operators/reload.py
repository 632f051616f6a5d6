"""reload: sources are edited, deleted and created again, workloads come, are scaled and go.

An act is a restart: a change of a pod template by the operator. A cause is a change of the data of a source that the
workload uses. Values are never used twice, so every change is one.
"""

from __future__ import annotations

import contextlib
import itertools
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from steersman.kube.api.errors import AlreadyExists, NotFound
from steersman.kube.api.types import ConfigMap, Deployment, Secret
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import BudgetConfig, ReloadConfig
from steersman.operators.reload.controllers.setup import parts
from steersman.operators.reload.planning.state import read_state
from steersman.runtime.manager.operator_bundle import RuntimeEnvironment
from tests.support.chaos.checkers import SECRET, Act, Cause
from tests.support.chaos.operators import Subject
from tests.support.chaos.schedule import Choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.manager.operator_bundle import OperatorBundle
    from tests.support.chaos.history import History, ObjectVersion
    from tests.support.chaos.schedule import Step

__all__ = ["ReloadSubject"]

SOURCES = ("configmap/app-0", "configmap/app-1", "secret/db-0", "secret/db-1")
WORKLOADS = tuple(f"deployment/web-{number}" for number in range(4))
KINDS: dict[str, Any] = {"configmap": ConfigMap, "secret": Secret, "deployment": Deployment}
PLURALS = {"configmaps": "configmap", "secrets": "secret"}


class ReloadSubject(Subject):
    """The operator reload with four sources and up to four workloads."""

    name = "reload"
    churn = ("start", "remove", "deployment")
    simulated = True
    actions = (
        Choice("edit", SOURCES, weight=6),
        Choice("delete", SOURCES),
        Choice("create", SOURCES, weight=2),
        Choice("start", WORKLOADS, weight=2),
        Choice("scale", WORKLOADS, weight=2),
        Choice("remove", WORKLOADS),
    )

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def prepare(self, client: Client) -> None:
        for source in SOURCES:
            await client.create(self._source(source))
        for workload in WORKLOADS[:3]:
            await client.create(_workload(workload, self.namespace))

    def bundle(self, clock: Clock, registry: Any) -> OperatorBundle:
        config = ReloadConfig(quiet_period="1s", max_delay="5s", budget=BudgetConfig(restarts=0), kinds=("Deployment",))
        return parts(config, RuntimeEnvironment(clock=clock, own_namespace="default"), registry=registry)

    def settings(self) -> str:
        options = "quietPeriod: 1s, maxDelay: 5s, budget: {restarts: 0}, kinds: [Deployment]"
        return f"reload: {{{options}}}\nnamespaces: [{self.namespace}]\n"

    async def act(self, client: Client, step: Step) -> bool:
        kind, name = step.target.split("/")
        try:
            match step.name:
                case "edit":
                    data = {"data": self._source(step.target)["data"]}
                    await client.patch(KINDS[kind], name, data, namespace=self.namespace)
                case "create":
                    await client.create(self._source(step.target))
                case "start":
                    await client.create(_workload(step.target, self.namespace))
                case "scale":
                    replicas = 1 + next(self._numbers) % 3
                    await client.patch(Deployment, name, {"spec": {"replicas": replicas}}, namespace=self.namespace)
                case _:
                    await client.delete(KINDS[kind], name, namespace=self.namespace)
        except (NotFound, AlreadyExists):
            return False
        return True

    async def finish(self, client: Client) -> None:
        for source in SOURCES:  # without one of them, restarts wait
            with contextlib.suppress(AlreadyExists):
                await client.create(self._source(source))

    async def touch(self, client: Client) -> None:
        for source in SOURCES:
            kind, name = source.split("/")
            note = {"metadata": {"annotations": {"note": str(next(self._numbers))}}}
            with contextlib.suppress(NotFound):
                await client.patch(KINDS[kind], name, note, namespace=self.namespace)

    async def unmet(self, client: Client, history: History) -> list[str]:
        live = {
            found.metadata.uid: found.name for found in (await client.list(Deployment, namespace=self.namespace)).items
        }
        found = [f"deployment/{name} has no recorded state" for uid, name in live.items() if not _records(history, uid)]
        acts = self.acts(history)
        for key, change in _required(history):
            if key in live and not any(act.key == key and act.place > change.place for act in acts):
                what = f"{PLURALS[change.resource]}/{change.name}"
                found.append(f"deployment/{live[key]} was not restarted for the change of {what} at {change.place}")
        return found

    def acts(self, history: History) -> list[Act]:
        found, before = [], dict[str, Any]()
        for version in history.of("deployments.apps"):
            template = version.object["spec"]["template"]
            changed = version.uid in before and before[version.uid] != template
            before[version.uid] = template
            if changed and version.type == "MODIFIED" and history.by_operator(version.writer):
                found.append(
                    Act(version.uid, version.place, _digests(version), f"restart of deployment/{version.name}")
                )
        return found

    def causes(self, history: History) -> list[Cause]:
        uids = {version.uid: version.name for version in history.of("deployments.apps")}
        return [
            Cause(uid, change.place)
            for change in _changes(history)
            for uid, name in uids.items()
            if _uses(name, f"{PLURALS[change.resource]}/{change.name}")
        ]

    def _source(self, source: str) -> dict[str, Any]:
        kind, name = source.split("/")
        value, meta = f"{SECRET}-{next(self._numbers)}", {"name": name, "namespace": self.namespace}
        if kind == "configmap":
            value = value.removeprefix(f"{SECRET}-")
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": value}}
        encoded = b64encode(value.encode()).decode()
        return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"password": encoded}}


def _uses(workload: str, source: str) -> bool:
    """web-0 and web-2 use app-0 and db-0, web-1 and web-3 the others; web-3 uses app-0 too."""
    number = int(workload[-1])
    return int(source[-1]) == number % 2 or (number == 3 and source == "configmap/app-0")


def _workload(workload: str, namespace: str) -> dict[str, Any]:
    name = workload.partition("/")[2]
    used = [source.split("/") for source in SOURCES if _uses(name, source)]
    keys = {"configmap": "configMapRef", "secret": "secretRef"}
    container = {"name": "main", "image": "web:1", "envFrom": [{keys[kind]: {"name": source}} for kind, source in used]}
    labels = {"app": name}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    meta = {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def _changes(history: History) -> Iterator[ObjectVersion]:
    """Every version of a source whose data is not that of the version before."""
    data: dict[str, Any] = {}
    for version in history.of("configmaps", "secrets"):
        key = f"{version.resource}/{version.name}"
        if version.type == "DELETED" or key not in _SOURCE_KEYS:
            continue
        if key in data and data[key] != version.object.get("data"):
            yield version
        data[key] = version.object.get("data")


_SOURCE_KEYS = {f"{kind}s/{name}" for kind, name in (source.split("/") for source in SOURCES)}


def _records(history: History, uid: str) -> list[tuple[int, dict[str, str]]]:
    """The digests that a workload had recorded, and since when."""
    found = []
    for version in history.of("deployments.apps"):
        text = version.object["metadata"].get("annotations", {}).get(APPLIED)
        if version.uid == uid and (applied := read_state(text).applied) is not None:
            found.append((version.place, {name: entry.digest for name, entry in applied.sources.items()}))
    return found


def _required(history: History) -> Iterator[tuple[str, ObjectVersion]]:
    """Changes that must restart a workload: those of sources that it had recorded with their data."""
    uids = {version.uid: version.name for version in history.of("deployments.apps")}
    changes = list(_changes(history))
    for uid, name in uids.items():
        records = _records(history, uid)
        for change in changes:
            source = f"{PLURALS[change.resource]}/{change.name}"
            before = [digests for place, digests in records if place < change.place]
            if _uses(name, source) and before and before[-1].get(source):
                yield uid, change


def _digests(version: ObjectVersion) -> str:
    applied = read_state(version.object["metadata"].get("annotations", {}).get(APPLIED)).applied
    return str(sorted((name, entry.digest) for name, entry in applied.sources.items())) if applied else "none"
