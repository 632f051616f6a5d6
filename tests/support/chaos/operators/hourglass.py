"""hourglass: performers and an executor are changed, deleted and created again, and pods are deleted under them.

An act is a new pod of a performer. A cause is a new spec, or a pod that a user deleted. Two pods for the same spec,
where none ended in between, are one too many.
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any

from steersman.kube.api.errors import AlreadyExists, NotFound
from steersman.kube.api.types import Pod
from steersman.operators.hourglass.api.config import HourglassOptions
from steersman.operators.hourglass.api.types import GROUP, PERFORMER, TEMPLATE_HASH, StoredExecutor, StoredPerformer
from steersman.operators.hourglass.controllers.setup import controllers
from steersman.runtime.manager.operator_bundle import OperatorBundle
from tests.support.chaos.checkers import SECRET, Act, Cause
from tests.support.chaos.operators import Subject
from tests.support.chaos.schedule import Choice
from tests.support.hourglass import executor, install, performer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from tests.support.chaos.history import History, ObjectVersion
    from tests.support.chaos.schedule import Step

__all__ = ["HourglassSubject"]

PERFORMERS = tuple(f"performer/p{number}" for number in range(4))
EXECUTORS = ("hourglassexecutor/e0",)
PODS = tuple(f"pod/performer-p{number}" for number in range(4))
KEYS = "operator-keys"
KINDS: dict[str, Any] = {"performer": StoredPerformer, "hourglassexecutor": StoredExecutor, "pod": Pod}


class HourglassSubject(Subject):
    """The operator hourglass with up to four performers and an executor."""

    name = "hourglass"
    churn = ("create", "delete", "performer")
    simulated = True
    actions = (
        Choice("edit", (*PERFORMERS, *EXECUTORS), weight=6),
        Choice("delete", (*PERFORMERS, *EXECUTORS), weight=2),
        Choice("create", (*PERFORMERS, *EXECUTORS), weight=3),
        Choice("delete", PODS, weight=2),
    )

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def install(self, client: Client) -> None:
        await install(client)

    async def prepare(self, client: Client) -> None:
        data = {"ecdsa": b64encode(f"{SECRET}-key".encode()).decode()}
        meta = {"name": KEYS, "namespace": self.namespace}
        await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
        for target in (*PERFORMERS[:3], *EXECUTORS):
            await client.create(self._made(target))

    def bundle(self, clock: Clock, registry: Any) -> OperatorBundle:  # the manager has the clock
        return OperatorBundle(controllers=controllers(HourglassOptions(), registry=registry))

    def settings(self) -> str:
        return f"namespaces: [{self.namespace}]\n"

    async def act(self, client: Client, step: Step) -> bool:
        kind, name = step.target.split("/")
        try:
            match step.name:
                case "edit":
                    spec = {"spec": self._made(step.target)["spec"]}
                    await client.patch(KINDS[kind], name, spec, namespace=self.namespace)
                case "create":
                    await client.create(self._made(step.target))
                case _:
                    await client.delete(KINDS[kind], name, namespace=self.namespace)
        except (NotFound, AlreadyExists):
            return False
        return True

    async def touch(self, client: Client) -> None:
        note = {"metadata": {"annotations": {"note": str(next(self._numbers))}}}
        for kind in (StoredPerformer, StoredExecutor):
            for found in (await client.list(kind, namespace=self.namespace)).items:
                await client.patch(kind, found.name, note, namespace=self.namespace)

    async def unmet(self, client: Client, history: History) -> list[str]:
        performers: list[Any] = [*(await client.list(StoredPerformer, namespace=self.namespace)).items]
        executors: list[Any] = [*(await client.list(StoredExecutor, namespace=self.namespace)).items]
        pods = (await client.list(Pod, namespace=self.namespace, label_selector=PERFORMER)).items
        found = [f"{item.name} is still being deleted" for item in (*performers, *executors, *pods) if item.deleting]
        for item in (*performers, *executors):
            status = item.status or {}
            settled = status.get("observedGeneration") == item.metadata.generation and status.get("phase") == "Running"
            if not settled:
                found.append(f"{item.name} is {status.get('phase')}")
        wanted = {item.name: item.spec["image"] for item in performers}
        images = sorted((pod.labels[PERFORMER], pod.spec.containers[0].image) for pod in pods)
        if images != sorted(wanted.items()):
            found.append(f"pods {images} instead of {sorted(wanted.items())}")
        return found

    def acts(self, history: History) -> list[Act]:
        found, ended = [], Counter[str]()
        for version in _pods(history):
            owner, template = _owner(version), version.object["metadata"].get("annotations", {}).get(TEMPLATE_HASH, "")
            if version.type == "ADDED":
                effect = f"{template} after {ended[owner + template]}"
                found.append(Act(owner, version.place, effect, f"pod {version.name}"))
            else:
                ended[owner + template] += 1
        return found

    def causes(self, history: History) -> list[Cause]:
        found, generations = [], dict[str, int]()
        for version in history.of(f"performers.{GROUP}"):
            if generations.get(version.uid) != version.object["metadata"]["generation"]:
                found.append(Cause(version.uid, version.place))
                generations[version.uid] = version.object["metadata"]["generation"]
        return found + [
            Cause(_owner(version), version.place)
            for version in _pods(history)
            if version.type != "ADDED" and version.writer == "user"
        ]

    def _made(self, target: str) -> dict[str, Any]:
        kind, name = target.split("/")
        number = next(self._numbers)
        if kind == "performer":
            strategy = "BlueGreen" if int(name[-1]) % 2 else "Recreate"
            return performer(name, self.namespace, image=f"avs:{number}", strategy=strategy)
        made = executor(
            name, self.namespace, config={"logLevel": f"level-{number}", "operatorKeysSecretRef": {"name": KEYS}}
        )
        del made["spec"]["config"]["operatorKeys"]
        return made


def _pods(history: History) -> Iterable[ObjectVersion]:
    """The first version of every pod of a performer, and the one with which its end begins."""
    ending: set[str] = set()
    for version in history.of("pods"):
        if PERFORMER not in version.object["metadata"].get("labels", {}):
            continue
        ends = version.type == "DELETED" or "deletionTimestamp" in version.object["metadata"]
        if version.type == "ADDED" or (ends and version.uid not in ending):
            yield version
        if ends:
            ending.add(version.uid)


def _owner(version: ObjectVersion) -> str:
    return str(version.object["metadata"]["ownerReferences"][0]["uid"])
