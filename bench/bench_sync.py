"""What filling a cache costs: 20,000 ConfigMaps of 2.4 KB from the real API server, ours next to its peers.

Every contender is a process of its own, imports included. CPU and peak memory are read from the kernel when it says
that it is complete; steady memory a few seconds later. Each is run several times in turns, and the run with the median
CPU is shown. A contender that is not complete in time is stopped; what it had used by then is a lower bound.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from children import Child
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

from steersman.testing.controlplane.launcher import ControlPlane

if TYPE_CHECKING:
    from pathlib import Path

SETTLE = 3.0  # seconds until memory counts as steady
PATIENCE = 600.0  # seconds a contender may take
FAR = (KOPF, KR8S, OFFICIAL, KUBERNETES_ASYNCIO)  # so far away that a second look would only cost time
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


async def fill(api: Any, count: int) -> float:
    """Create the objects; returns their mean size."""
    size = 0
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


class Run(NamedTuple):
    """One contender, once."""

    cpu: float
    peak: float
    steady: float
    wall: float
    complete: bool


def measure(contender: Contender, kubeconfig: Path, count: int) -> Run:
    """What it used until it was complete, what it uses in the long run, and how long it took."""
    started = time.monotonic()
    with Child([*contender.command(), "sync", str(count)], env={"KUBECONFIG": str(kubeconfig)}) as child:
        try:
            child.hear(PATIENCE)
            complete = True
        except TimeoutError:
            complete = False
        wall, used = time.monotonic() - started, child.usage()
        time.sleep(SETTLE)
        return Run(used.cpu, used.peak, child.usage().resident, wall, complete)


async def run(options: argparse.Namespace) -> int:
    """Measure everybody on one server."""
    chosen = [c for c in CONTENDERS if not options.only or c.name.split(",")[0].split()[0] in options.only]
    for contender in chosen:
        contender.command()  # installed before anything is measured
    async with ControlPlane() as plane:
        async with plane.api() as api:
            size = await fill(api, options.objects)
        kubeconfig = plane.write_kubeconfig(plane.folder / "bench.kubeconfig")
        found: dict[str, list[Run]] = {}
        results = Results(
            "sync",
            f"Filling a cache with {options.objects:,} ConfigMaps of {size / 1024:.1f} KB",
            f"Each contender fills its cache with {options.objects:,} ConfigMaps ({size / 1024:.1f} KB each as JSON) "
            "of a kube-apiserver with etcd, over TLS, in a process of its own with imports and start-up "
            "included (bytecode cached); the median "
            f"of {options.runs} runs by CPU, taken in turns (one run of those far away). "
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
                if turn and contender in FAR:
                    continue
                run = await asyncio.to_thread(measure, contender, kubeconfig, options.objects)
                print(f"  {contender.name}: {run}", file=sys.stderr)
                found.setdefault(contender.name, []).append(run)
        results.versions = {"kube-apiserver": plane.version}
    shown = {name: sorted(runs)[len(runs) // 2] for name, runs in found.items()}
    ours = shown.get(OURS.name, next(iter(shown.values())))
    for contender in chosen:
        run = shown[contender.name]
        results.versions[contender.name] = contender.version()
        results.add(
            name=contender.name if run.complete else f"{contender.name}, stopped before it was complete",
            cpu=run.cpu,
            peak=run.peak,
            steady=run.steady,
            wall=run.wall,
            cpu_ratio=run.cpu / ours.cpu,
            memory_ratio=run.steady / ours.steady,
        )
    if go := shown.get(CONTROLLER_RUNTIME.name):
        results.bar("CPU, ours to controller-runtime", ours.cpu / go.cpu, 1.0)
        results.bar("steady memory, ours to controller-runtime", ours.steady / go.steady, 0.75)
        if slim := shown.get(DIGESTS.name):
            results.bar("steady memory, digests only to controller-runtime", slim.steady / go.steady, 0.4)
    if kopf := shown.get(KOPF.name):
        results.bar(f"CPU, ours to kopf{'' if kopf.complete else ' (at most)'}", ours.cpu / kopf.cpu, 1 / 15)
    return results.finish() if not options.only else 0


def main() -> int:
    """1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="the first word of the contenders' names; writes no results")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
