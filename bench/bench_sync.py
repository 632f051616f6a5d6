"""What filling a cache costs: 20,000 ConfigMaps of 2.4 KB from the real API server, ours next to its peers.

Every contender is a process of its own, imports included. CPU and peak memory are read from the kernel when it says
that it is complete; steady memory a few seconds later.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from children import Child, Usage
from contenders import (
    CONTROLLER_RUNTIME,
    DIGESTS,
    KOPF,
    KR8S,
    KUBERNETES_ASYNCIO,
    LIGHTKUBE,
    OFFICIAL,
    OURS,
    Contender,
)
from results import Results

from steersman.testing.controlplane import ControlPlane

if TYPE_CHECKING:
    from pathlib import Path

SETTLE = 3.0  # seconds until memory counts as steady
CONTENDERS = [OURS, DIGESTS, CONTROLLER_RUNTIME, LIGHTKUBE, KUBERNETES_ASYNCIO, OFFICIAL, KR8S, KOPF]


def configmap(number: int) -> dict[str, Any]:
    """2.4 KB as the server sends it, labels and managed fields included."""
    return {
        "metadata": {
            "name": f"config-{number:05}",
            "namespace": "bench",
            "labels": {"app.kubernetes.io/name": f"app-{number % 50}", "app.kubernetes.io/part-of": "bench"},
        },
        "data": {f"key-{n:02}": f"value {number} of key {n} ".ljust(78, "x") for n in range(18)},
    }


async def fill(plane: ControlPlane, count: int) -> float:
    """Create the objects; returns their mean size."""
    size = 0
    async with plane.api() as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "bench"}})
        numbers = iter(range(count))

        async def create() -> None:
            nonlocal size
            for number in numbers:
                answer = await api.post("/api/v1/namespaces/bench/configmaps", configmap(number))
                assert answer.status == 201, answer
                size += len(answer.raw)

        await asyncio.gather(*(create() for _ in range(16)))
    return size / count


def measure(contender: Contender, kubeconfig: Path, count: int) -> tuple[Usage, Usage, float]:
    """What it used until it was complete, what it uses in the long run, and how long it took."""
    started = time.monotonic()
    with Child([*contender.command(), "sync", str(count)], env={"KUBECONFIG": str(kubeconfig)}) as child:
        child.hear()
        wall = time.monotonic() - started
        complete = child.usage()
        time.sleep(SETTLE)
        return complete, child.usage(), wall


async def run(options: argparse.Namespace) -> int:
    """Measure everybody on one server."""
    chosen = [c for c in CONTENDERS if not options.only or c.name.split(",")[0].split()[0] in options.only]
    for contender in chosen:
        contender.command()  # installed before anything is measured
    async with ControlPlane() as plane:
        size = await fill(plane, options.objects)
        kubeconfig = plane.write_kubeconfig(plane.folder / "bench.kubeconfig")
        found: dict[str, tuple[float, float, float, float]] = {}
        results = Results(
            "sync",
            f"Filling a cache with {options.objects:,} ConfigMaps of {size / 1024:.1f} KB",
            f"Each contender fills its cache with {options.objects:,} ConfigMaps ({size / 1024:.1f} KB each as JSON) "
            "of a kube-apiserver with etcd, over TLS, in a process of its own with imports and start-up "
            "included; the best "
            f"of {options.runs} runs, taken in turns (one run of those far away). "
            f"Memory is resident set size; steady means {SETTLE:.0f} s later.",
            {
                "name": "",
                "cpu": "CPU s",
                "peak": "peak MiB",
                "steady": "steady MiB",
                "wall": "wall s",
                "cpu_ratio": "CPU, ours = 1",
                "memory_ratio": "steady, ours = 1",
            },
        )
        for turn in range(options.runs):
            for contender in chosen:
                if turn and contender in (KOPF, KR8S, OFFICIAL, KUBERNETES_ASYNCIO):
                    continue  # so far away that a second look would only cost time
                complete, steady, wall = await asyncio.to_thread(measure, contender, kubeconfig, options.objects)
                new = (complete.cpu, complete.peak, steady.resident, wall)
                print(f"  {contender.name}: {new}", file=sys.stderr)
                found[contender.name] = min(found.get(contender.name, new), new)
        results.versions = {"kube-apiserver": plane.version}
    ours = found.get(OURS.name, next(iter(found.values())))
    for contender in chosen:
        cpu, peak, steady_mib, wall = found[contender.name]
        results.versions[contender.name] = contender.version()
        results.add(
            name=contender.name,
            cpu=cpu,
            peak=peak,
            steady=steady_mib,
            wall=wall,
            cpu_ratio=cpu / ours[0],
            memory_ratio=steady_mib / ours[2],
        )
    if go := found.get(CONTROLLER_RUNTIME.name):
        results.bar("CPU, ours to controller-runtime", ours[0] / go[0], 1.0)
        results.bar("steady memory, ours to controller-runtime", ours[2] / go[2], 0.75)
        if slim := found.get(DIGESTS.name):
            results.bar("steady memory, digests only to controller-runtime", slim[2] / go[2], 0.4)
    if kopf := found.get(KOPF.name):
        results.bar("CPU, ours to kopf", ours[0] / kopf[0], 1 / 15)
    return results.finish() if not options.only else 0


def main() -> int:
    """1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="the first word of the contenders' names; writes no results")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
