"""What executors and performers cost: next to the same pods applied by hand, per resource, at rest, and as they grow.

Two namespaces of one real control plane whose nodes KWOK simulates. In the first, kubectl applies the raw objects that
the resources stand for; in the second, the resources, while the operator runs. Both clocks run from the start of
kubectl until the last pod is ready (for the resources: until their status says so).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml
from children import Child
from results import Results

from steersman.crd import crd_manifest
from steersman.kube.api.types import Deployment, Pod
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.operators.hourglass.api.config import HardwareMap
from steersman.operators.hourglass.api.types import HourglassExecutor, Performer, StoredExecutor, StoredPerformer
from steersman.operators.hourglass.api.validation import read_executor, read_performer
from steersman.operators.hourglass.children.executor_children import account_objects, children_of
from steersman.operators.hourglass.children.pod import pod_template
from steersman.operators.hourglass.children.service import service_for
from steersman.testing.controlplane.binaries import find_program
from steersman.testing.controlplane.launcher import ALL_CONTROLLERS, ControlPlane
from tests.support.hourglass import executor, performer

WRITES = {"create", "update", "patch", "delete", "deletecollection"}
STEERSMAN = Path(sys.executable).with_name("steersman")


def resources(namespace: str, performers: int, executors: int) -> list[dict[str, Any]]:
    """The custom resources."""
    made = [executor(f"e{number:04}", namespace) for number in range(executors)]
    made += [performer(f"p{number:04}", namespace) for number in range(performers)]
    return made


def raw(namespace: str, manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects that they stand for, as the operator would make them."""
    objects: list[dict[str, Any]] = []
    for manifest in manifests:
        if manifest["kind"] == "Performer":
            one = msgspec.convert(manifest, StoredPerformer)
            spec, _ = read_performer(one)
            assert spec is not None
            template, _ = pod_template(one.name, spec, HardwareMap())
            objects += [service_for(one.name, namespace, spec, ""), template.pod(f"performer-{one.name}", namespace)]
        else:
            other = msgspec.convert(manifest, StoredExecutor)
            read, _ = read_executor(other)
            assert read is not None
            children = children_of(other, read)
            if not any(known["kind"] == "ServiceAccount" for known in objects):
                objects = [*account_objects(namespace, read), *objects]
            objects += [one for one in (children.config_map, children.secret, children.deployment) if one is not None]
    return objects


async def kubectl_apply(folder: Path, config: Path, manifests: list[dict[str, Any]]) -> float:
    """Apply with kubectl; when it began."""
    path = folder / "manifests.yaml"
    await asyncio.to_thread(path.write_text, "---\n".join(yaml.safe_dump(manifest) for manifest in manifests))
    program = await asyncio.to_thread(find_program, "kubectl")
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(program, "apply", "-f", str(path)),
        env={"KUBECONFIG": str(config), "HOME": str(folder), "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    return began


async def pods_ready(client: Client, namespace: str, performers: int, executors: int) -> bool:
    """Whether all raw pods run, and all Deployments are there."""
    pods = (await client.list(Pod, namespace=namespace, label_selector="app=hourglass-performer")).items
    deployments = (await client.list(Deployment, namespace=namespace)).items
    running = sum(pod.status.phase == "Running" for pod in pods)
    return (
        running == performers and sum(deployment.status.ready_replicas == 1 for deployment in deployments) == executors
    )


async def resources_ready(client: Client, namespace: str, performers: int, executors: int) -> bool:
    """Whether all resources say that they are ready."""
    found = (await client.list(StoredPerformer, namespace=namespace)).items
    others = (await client.list(StoredExecutor, namespace=namespace)).items
    ready = sum((item.status or {}).get("ready") is True for item in found)
    return ready == performers and sum((other.status or {}).get("phase") == "Running" for other in others) == executors


async def until(fact: Any, *arguments: Any) -> float:
    """The time when a fact is true."""
    while not await fact(*arguments):  # noqa: ASYNC110  the fact is on the server
        await asyncio.sleep(0.1)
    return time.monotonic()


def writes(plane: ControlPlane, namespace: str, since: int) -> int:
    """How often the operator wrote, events aside."""
    user = "system:serviceaccount:default:bench-operator"
    entries = plane.audit.entries(namespace=namespace, user=user, since=since)
    return sum(entry.verb in WRITES and entry.resource != "events" for entry in entries)


async def measure(performers: int, executors: int, idle: float) -> dict[str, float]:
    """Raw objects and resources on one control plane, one after the other."""
    async with ControlPlane(controllers=ALL_CONTROLLERS, scheduler=True, kwok=True) as plane:
        await plane.add_nodes("bench-0", "bench-1")
        config = plane.write_kubeconfig(plane.folder / "bench.kubeconfig")
        everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        operator = await plane.service_account("bench-operator", everything, everywhere=True)
        async with Client.connect(load_config(config)) as client:
            for kind in (HourglassExecutor, Performer):
                await client.create(crd_manifest(kind))
            for namespace in ("raw", "ours"):
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            await asyncio.sleep(3)  # default service accounts and the definitions are there
            size = (performers, executors)
            began = await kubectl_apply(plane.folder, config, raw("raw", resources("raw", *size)))
            by_hand = await until(pods_ready, client, "raw", *size) - began
            command = [str(STEERSMAN), "run", "--operators", "hourglass", "--listen", "127.0.0.1:0"]
            with Child([*command, "--namespace", "ours"], env={"KUBECONFIG": str(operator)}) as child:
                await asyncio.sleep(5)  # it is up, as an operator usually is
                mark = plane.audit.mark()
                began = await kubectl_apply(plane.folder, config, resources("ours", *size))
                ours = await until(resources_ready, client, "ours", *size) - began
                await asyncio.sleep(5)
                made = writes(plane, "ours", mark)
                mark, used = plane.audit.mark(), child.usage().cpu
                await asyncio.sleep(idle)
                at_rest, spent = writes(plane, "ours", mark), child.usage().cpu - used
                memory = child.usage().resident
    total = performers + executors
    return {
        "by_hand": by_hand,
        "ours": ours,
        "ratio": ours / by_hand,
        "per_resource": made / total,
        "idle": at_rest,
        "cpu": spent / idle * 1e3,
        "memory": memory,
    }


async def run(options: argparse.Namespace) -> int:
    """Every size."""
    results = Results(
        "hourglass",
        "Performers and executors next to the same objects applied by hand",
        "One real control plane, nodes by KWOK. By hand: `kubectl apply` of the pods, Services, ConfigMaps, Secrets "
        "and Deployments that the resources stand for, until all pods are ready. Ours: `kubectl apply` of the "
        "resources with the operator running, until every status says so. Writes by the audit log; at rest: for "
        f"{options.idle:g} s after everything is ready.",
        {
            "name": "",
            "ours": "ours, s",
            "by_hand": "by hand, s",
            "ratio": "ours / by hand",
            "per_resource": "writes per resource",
            "idle": "writes at rest",
            "cpu": "CPU at rest, ms per s",
            "memory": "MiB",
        },
    )
    main_facts = await measure(options.performers, options.executors, options.idle)
    results.add(name=f"{options.performers} performers, {options.executors} executors", **main_facts)
    grown = []
    for size in options.sizes:
        facts = await measure(size, 0, 10.0)
        grown.append(facts)
        results.add(name=f"{size} performers", **facts)
    results.bar("time to all ready, ours / by hand", main_facts["ratio"], 1.5)
    results.bar("writes at rest", main_facts["idle"], 0)
    if len(grown) > 1:
        factor = options.sizes[-1] / options.sizes[0]
        results.bar(
            f"time for {factor:g} times as many, per resource", grown[-1]["ours"] / grown[0]["ours"] / factor, 1.25
        )
    return results.finish() if options.keep else 0


def main() -> int:
    """1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--performers", type=int, default=200)
    parser.add_argument("--executors", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--idle", type=float, default=60.0)
    parser.add_argument("--no-keep", dest="keep", action="store_false", help="write no results")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
