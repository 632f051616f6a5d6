"""What reconciling costs: many custom resources, one child each by server-side apply, then peace.

The first run of each operator meets objects without children. When all is done, every object gets an annotation that
means nothing, so that each is reconciled once more although nothing is to do; then the operator is started again on the
finished cluster. The audit log of the API server is the judge of what it wrote each time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

from children import Child
from contenders import CONTROLLER_RUNTIME, KOPF, OURS, Contender
from results import Results

from steersman.testing.controlplane.launcher import ControlPlane

CONTENDERS = [OURS, CONTROLLER_RUNTIME, KOPF]
QUIET = 3.0  # seconds without a write that count as peace
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
NAMESPACE = "/api/v1/namespaces/bench"

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.bench.example.org"},
    "spec": {
        "group": "bench.example.org",
        "scope": "Namespaced",
        "names": {"kind": "Gadget", "plural": "gadgets", "listKind": "GadgetList", "singular": "gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


GADGETS = "/apis/bench.example.org/v1/namespaces/bench/gadgets"
USER_AGENT = "bench-load"


async def prepare(api: Any, count: int) -> None:
    """The definition and its objects."""
    await api.post("/api/v1/namespaces", {"metadata": {"name": "bench"}})
    answer = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    assert answer.status == 201, answer
    await api.eventually(GADGETS, lambda found: found.status == 200)
    numbers = iter(range(count))

    async def create() -> None:
        for number in numbers:
            body = {
                "apiVersion": "bench.example.org/v1",
                "kind": "Gadget",
                "metadata": {"name": f"gadget-{number:05}"},
                "spec": {"payload": {"size": "small"}},
            }
            answer = await api.post(GADGETS, body)
            assert answer.status == 201, answer

    await asyncio.gather(*(create() for _ in range(16)))


async def touch(api: Any, count: int, value: str = "yes") -> None:
    """Change every object in a way that makes no difference."""
    numbers = iter(range(count))

    async def annotate() -> None:
        for number in numbers:
            body = {"metadata": {"annotations": {"bench.example.org/touched": value}}}
            answer = await api.patch(f"{GADGETS}/gadget-{number:05}", body)
            assert answer.status == 200, answer

    await asyncio.gather(*(annotate() for _ in range(16)))


async def children(api: Any) -> int:
    """How many there are."""
    found = await api.get(f"{NAMESPACE}/configmaps", limit=1)
    return len(found.body["items"]) + found.body["metadata"].get("remainingItemCount", 0)


def writes(plane: ControlPlane, since: int) -> int:
    """How often an operator wrote."""
    entries = plane.audit.entries(namespace="bench", since=since)
    return sum(entry.verb in WRITES and not entry.user_agent.startswith(USER_AGENT) for entry in entries)


async def peace(plane: ControlPlane) -> None:
    """Wait until nobody writes any more."""
    mark = plane.audit.mark()
    while True:
        await asyncio.sleep(QUIET)
        if not writes(plane, mark):
            return
        mark = plane.audit.mark()


async def measure(contender: Contender, count: int) -> dict[str, float]:
    """One operator on a cluster of its own."""
    async with ControlPlane() as plane, plane.api(user_agent=USER_AGENT) as api:
        await prepare(api, count)
        environment = {"KUBECONFIG": str(plane.write_kubeconfig(plane.folder / "bench.kubeconfig"))}
        mark = plane.audit.mark()
        started = time.monotonic()
        with Child([*contender.command(), "controllers"], env=environment) as child:
            while await children(api) < count:  # noqa: ASYNC110  the fact is on the server
                await asyncio.sleep(0.05)
            wall = time.monotonic() - started
            await peace(plane)
            used = child.usage()
            first = writes(plane, mark)
            mark = plane.audit.mark()
            await touch(api, count)
            await peace(plane)
            touched = writes(plane, mark)
        mark = plane.audit.mark()
        with Child([*contender.command(), "controllers"], env=environment) as child:
            idle = child.usage().cpu
            while child.usage().cpu - idle > 0.02 or child.usage().cpu < 0.2:  # until it has worked through everything
                idle = child.usage().cpu
                await asyncio.sleep(1.5)
            await peace(plane)
        again = writes(plane, mark)
    return {
        "rate": count / wall,
        "cpu": used.cpu / count * 1e3,
        "memory": used.resident,
        "first": first / count,
        "touched": touched,
        "again": again,
    }


async def run(options: argparse.Namespace) -> int:
    """Everybody, one after the other."""
    results = Results(
        "controllers",
        f"{options.objects:,} custom resources, one child each",
        f"Each operator starts on a kube-apiserver that holds {options.objects:,} custom resources without children "
        "and applies a ConfigMap for each (16 at a time; kopf has no limit of its own). Rate: from starting the "
        "process "
        "until the last child exists. CPU of the operator until nothing was written any more. Then every object "
        "gets an "
        "annotation that means nothing, and at last the operator is started again on the finished cluster. Writes are "
        "the create, update, patch and delete requests of the operator in the server's audit log, no-ops included.",
        {
            "name": "",
            "rate": "children per s",
            "cpu": "CPU ms per object",
            "memory": "MiB",
            "first": "writes per object",
            "touched": "writes when nothing is to do",
            "again": "writes after restart",
            "rate_ratio": "rate, ours = 1",
            "cpu_ratio": "CPU, ours = 1",
        },
    )
    found: dict[str, dict[str, float]] = {}
    for contender in CONTENDERS:
        if options.only and contender.name not in options.only:
            continue
        contender.command()
        found[contender.name] = facts = await measure(contender, options.objects)
        results.versions[contender.name] = contender.version()
        ours = found.get(OURS.name, facts)
        results.add(
            name=contender.name,
            **facts,
            rate_ratio=facts["rate"] / ours["rate"],
            cpu_ratio=facts["cpu"] / ours["cpu"],
        )
    if options.only:
        return 0
    results.bar("our writes when nothing is to do", found[OURS.name]["touched"], 0)
    return results.finish()


def main() -> int:
    """1 when ours writes without need."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=5_000)
    parser.add_argument("--only", nargs="*", help="names of contenders; writes no results")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
