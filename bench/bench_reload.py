"""What the reload operator costs: requests by the audit log of the API server, time beside bare patches, memory.

fan-out    one ConfigMap that many Deployments use changes: one patch each, no read, at most one Event each, and as
           fast as the same number of bare patches, within a factor, measured in the same run
no-op      an edit of the ConfigMap's metadata: no request
idle       rollouts are over and nothing happens: nothing but watches (and a Lease) is renewed
stuck      rollouts that never end: how often pods are listed to find out why
storm      many sources edited again and again: rollouts bounded by the window, converged soon after the last edit
empty      a cluster without workloads
memory     thousands of large Secrets that no workload uses, beside many Deployments
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from children import Child
from results import Results

from steersman.testing.controlplane.launcher import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STEERSMAN = Path(sys.executable).with_name("steersman")
LOAD = "bench-load"
OURS = "steersman/"
NAMESPACE = "bench"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
CONFIGMAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
APPLIED = "steersman.dev/applied"
AT_ONCE = "reload: {quietPeriod: 0s, maxDelay: 0s, budget: {restarts: 0}, kinds: [Deployment]}\n"
AS_IT_COMES = "reload: {budget: {restarts: 0}, kinds: [Deployment]}\n"
MAX_DELAY = 30.0  # seconds: the default
AT_ONCE_PATCHES = 64  # in flight, as the operator has
PATIENCE = 600.0


def deployment(name: str, sources: list[str]) -> dict[str, Any]:
    """A Deployment without pods that reads these ConfigMaps."""
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "web:1",
        "envFrom": [{"configMapRef": {"name": source}} for source in sources],
    }
    return {
        "metadata": {"name": name, "annotations": {"steersman.dev/reload": "auto"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def each(count: int, work: Callable[[int], Any], *, at_once: int = AT_ONCE_PATCHES) -> None:
    """Do something for every number, some at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(at_once)))


async def create(api: Any, path: str, body: dict[str, Any]) -> None:
    """Create an object."""
    answer = await api.post(path, body)
    assert answer.status == 201, answer


async def eventually(fact: Callable[[], Any], what: str, *, pause: float = 0.1) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + PATIENCE
    while not await fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE:.0f} s")
        await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def operator(plane: ControlPlane, settings: str) -> AsyncIterator[Child]:
    """The real program."""
    config = plane.folder / "bench.yaml"
    config.write_text(settings)
    environment = {"KUBECONFIG": str(plane.write_kubeconfig(plane.folder / "bench.kubeconfig"))}
    listen = ("--listen", "127.0.0.1:0", "--log-level", "warning")
    command = [str(STEERSMAN), "run", "--operators", "reload", "--config", str(config), *listen]
    with Child(command, env=environment) as child:
        yield child


async def roll(api: Any, name: str) -> None:
    """What the controller of Deployments writes at the end of a rollout; a bare API server has none."""
    meta = (await api.get(f"{DEPLOYMENTS}/{name}")).body["metadata"]
    answer = await api.patch(f"{DEPLOYMENTS}/{name}/status", {"status": {"observedGeneration": meta["generation"]}})
    assert answer.status == 200, answer


async def restarts(api: Any) -> list[int]:
    """How often each Deployment was restarted; -1 for one that is not seeded."""
    found = []
    token = ""
    while True:
        query = {"limit": 500, **({"continue": token} if token else {})}
        page = (await api.get(DEPLOYMENTS, **query)).body
        for item in page["items"]:
            state = item["metadata"]["annotations"].get(APPLIED)
            found.append(-1 if state is None else len(msgspec.json.decode(state).get("r", ())))
        token = page["metadata"].get("continue", "")
        if not token:
            return found


def requests(plane: ControlPlane, since: int) -> dict[str, int]:
    """What the operator asked for, by verb and resource; watches are left out."""
    counted: dict[str, int] = {}
    for entry in plane.audit.entries(user_agent=OURS, since=since):
        if entry.verb != "watch":
            name = f"{entry.verb} {entry.resource}"
            counted[name] = counted.get(name, 0) + 1
    return counted


async def fan_out(results: Results, count: int, idle_seconds: float) -> None:
    """One source, many workloads; then an edit that means nothing; then nothing."""
    async with ControlPlane() as plane, plane.api(user_agent=LOAD) as api:
        await create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await create(api, CONFIGMAPS, {"metadata": {"name": "app"}, "data": {"mode": "a"}})
        await each(count, lambda n: create(api, DEPLOYMENTS, deployment(f"web-{n:04}", ["app"])))

        async def bare(number: int) -> None:
            stamp = {"bench.example.org/at": str(time.time())}
            body = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
            answer = await api.patch(f"{DEPLOYMENTS}/web-{number:04}", body)
            assert answer.status == 200, answer

        began = time.monotonic()
        await each(count, bare)
        alone = time.monotonic() - began
        async with operator(plane, AT_ONCE):

            async def seeded() -> bool:
                return min(await restarts(api)) == 0

            await eventually(seeded, "all are seeded")
            await asyncio.sleep(2)
            mark = plane.audit.mark()
            began = time.monotonic()
            await api.patch(f"{CONFIGMAPS}/app", {"data": {"mode": "b"}})

            async def patched() -> bool:
                return plane.audit.count(user_agent=OURS, verb="patch", resource="deployments", since=mark) >= count

            await eventually(patched, "all are patched", pause=0.02)
            took = time.monotonic() - began
            assert set(await restarts(api)) == {1}
            await asyncio.sleep(5)
            asked = requests(plane, mark)
            mark = plane.audit.mark()
            await api.patch(f"{CONFIGMAPS}/app", {"metadata": {"annotations": {"note": "nothing"}}})
            await asyncio.sleep(5)
            nothing = requests(plane, mark)
            await each(count, lambda n: roll(api, f"web-{n:04}"))
            await asyncio.sleep(2)
            mark = plane.audit.mark()
            await asyncio.sleep(idle_seconds)
            idle = requests(plane, mark)
    events = sum(number for name, number in asked.items() if "events" in name)
    reads = sum(number for name, number in asked.items() if name.startswith(("get ", "list ")))
    results.add(name=f"{count} Deployments, one ConfigMap", seconds=took, bare=alone, ratio=took / alone)
    results.add(name="requests of that change", patches=asked.get("patch deployments", 0), reads=reads, events=events)
    results.bar("patches per restarted workload", asked.get("patch deployments", 0) / count, 1)
    results.bar("reads per change", reads, 0)
    results.bar("Events per workload and change", events / count, 1)
    results.bar("time beside bare patches", took / alone, 1.5)
    results.bar("requests for an edit of metadata", sum(nothing.values()), 0)
    results.bar(f"requests in {idle_seconds:.0f} idle seconds, watches aside", sum(idle.values()), 0)


async def stuck(results: Results, count: int, seconds: float) -> None:
    """Rollouts that no controller carries out, from 30 s after the restart on: earlier no pod is listed."""
    async with ControlPlane() as plane, plane.api(user_agent=LOAD) as api:
        await create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await create(api, CONFIGMAPS, {"metadata": {"name": "app"}, "data": {"mode": "a"}})
        await each(count, lambda n: create(api, DEPLOYMENTS, deployment(f"web-{n:04}", ["app"])))
        async with operator(plane, AT_ONCE) as child:

            async def restarted(times: int) -> bool:
                return min(await restarts(api)) == times

            await eventually(lambda: restarted(0), "all are seeded")
            await api.patch(f"{CONFIGMAPS}/app", {"data": {"mode": "b"}})
            await eventually(lambda: restarted(1), "all are restarted")
            mark = plane.audit.mark()

            async def asks() -> bool:
                return requests(plane, mark).get("list pods", 0) > 0

            await eventually(asks, "pods are listed")
            mark, cpu = plane.audit.mark(), child.usage().cpu
            await asyncio.sleep(seconds)
            lists, cpu = requests(plane, mark).get("list pods", 0), child.usage().cpu - cpu
    results.add(name=f"{count} stuck rollouts, {seconds:.0f} s", lists=lists, cpu=cpu)
    results.bar("LIST pods a second, all stuck rollouts together", lists / seconds, 1.02)


async def storm(results: Results, sources: int, workloads: int, total: int, seconds: float) -> None:
    """Sources edited at a rate that leaves no window quiet."""
    names = [f"app-{number}" for number in range(sources)]
    async with ControlPlane() as plane, plane.api(user_agent=LOAD) as api:
        await create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for name in names:
            await create(api, CONFIGMAPS, {"metadata": {"name": name}, "data": {"mode": "0"}})
        await each(workloads, lambda n: create(api, DEPLOYMENTS, deployment(f"web-{n:04}", names)), at_once=8)
        async with operator(plane, AS_IT_COMES) as child:

            async def seeded() -> bool:
                return min(await restarts(api)) == 0

            await eventually(seeded, "all are seeded")
            began, cpu = time.monotonic(), child.usage().cpu
            for edits in range(1, total + 1):
                await api.patch(f"{CONFIGMAPS}/{names[edits % sources]}", {"data": {"mode": str(edits)}})
                await asyncio.sleep(began + edits * seconds / total - time.monotonic())
            ended = time.monotonic()
            took = ended - began
            await create(api, DEPLOYMENTS, deployment("fresh", names))  # seeded with what they say at the end

            async def converged() -> bool:
                states = set()
                for item in (await api.get(DEPLOYMENTS, limit=500)).body["items"]:
                    state = msgspec.json.decode(item["metadata"]["annotations"].get(APPLIED, "{}"))
                    states.add(msgspec.json.encode(state.get("s"), order="sorted"))
                return len(states) == 1 and b"null" not in states

            await eventually(converged, "all run the last edit")
            late, cpu = time.monotonic() - ended, child.usage().cpu - cpu
            most = max(await restarts(api))
    results.add(name=f"{sources} sources, {total:,} edits in {took:.0f} s", seconds=late, rollouts=most, cpu=cpu)
    results.bar("rollouts per workload in a storm", most, math.ceil(took / MAX_DELAY) + 1)
    results.bar("seconds from the last edit to convergence", late, MAX_DELAY + 1)
    results.bar("CPU seconds of a storm, until convergence", cpu, 1.5)


async def empty(results: Results) -> None:
    """Nothing to do."""
    async with ControlPlane() as plane, operator(plane, "reload: {}\n") as child:

        async def watches() -> bool:
            return plane.audit.count(user_agent=OURS, verb="watch", resource="deployments") > 0

        await eventually(watches, "Deployments are watched")
        await asyncio.sleep(10)
        used = child.usage()
    results.add(name="an empty cluster", resident=used.resident, peak=used.peak)
    results.bar("MiB resident on an empty cluster", used.resident, 50)


async def memory(results: Results, deployments: int, count: int, size: int) -> None:
    """Secrets that no workload uses."""
    value = b64encode(b"x" * size).decode()
    async with ControlPlane() as plane, plane.api(user_agent=LOAD) as api:
        await create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await create(api, CONFIGMAPS, {"metadata": {"name": "app"}, "data": {"mode": "a"}})
        await each(deployments, lambda n: create(api, DEPLOYMENTS, deployment(f"web-{n:04}", ["app"])))
        await each(
            count, lambda n: create(api, SECRETS, {"metadata": {"name": f"big-{n}"}, "data": {"x": value}}), at_once=8
        )
        async with operator(plane, AT_ONCE) as child:

            async def seeded() -> bool:
                return min(await restarts(api)) == 0

            await eventually(seeded, "all are seeded")
            await asyncio.sleep(5)
            used = child.usage()
    name = f"{count:,} Secrets of {size // 1024} KB, unused, beside {deployments:,} Deployments"
    results.add(name=name, resident=used.resident, peak=used.peak)
    results.bar("MiB resident", used.resident, 75)
    results.bar("MiB at the peak", used.peak, 100)


async def run(options: argparse.Namespace) -> int:
    """Each part on a cluster of its own."""
    results = Results(
        "reload",
        "The reload operator",
        "The real program against a kube-apiserver, Deployments without pods. Requests are those of the operator's "
        f"user agent in the server's audit log. Bare patches: {AT_ONCE_PATCHES} at a time by one client, on the same "
        "server, before the operator starts. Memory as the kernel counts it.",
        {
            "name": "",
            "seconds": "s",
            "bare": "bare patches, s",
            "ratio": "ratio",
            "patches": "patches",
            "reads": "reads",
            "events": "Events",
            "rollouts": "rollouts per workload",
            "lists": "LIST pods",
            "cpu": "CPU s",
            "resident": "MiB",
            "peak": "peak MiB",
        },
    )
    if "fan-out" in options.parts:
        await fan_out(results, options.deployments, options.idle)
    if "stuck" in options.parts:
        await stuck(results, options.deployments, options.stuck)
    if "storm" in options.parts:
        await storm(results, options.sources, options.workloads, options.edits, options.seconds)
    if "empty" in options.parts:
        await empty(results)
    if "memory" in options.parts:
        await memory(results, options.beside, options.secrets, options.size)
    if options.dry:
        print(results.markdown())
        return int(not all(bar.held for bar in results.bars))
    return results.finish()


def main() -> int:
    """1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, default=500)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds")
    parser.add_argument("--stuck", type=float, default=60.0, help="seconds to count requests while rollouts are stuck")
    parser.add_argument("--sources", type=int, default=50)
    parser.add_argument("--workloads", type=int, default=20)
    parser.add_argument("--edits", type=int, default=2_870)
    parser.add_argument("--seconds", type=float, default=20.0, help="of edits")
    parser.add_argument("--secrets", type=int, default=5_000)
    parser.add_argument("--beside", type=int, default=1_000, help="Deployments beside the Secrets")
    parser.add_argument("--size", type=int, default=40 * 1024, help="bytes of a Secret")
    parser.add_argument("--parts", nargs="*", default=["fan-out", "stuck", "storm", "empty", "memory"])
    parser.add_argument("--dry", action="store_true", help="print, and write no results")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
