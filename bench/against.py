"""This version next to another revision of this repository: what became slower between the two, measured in one run.

The other revision gets a worktree and an environment of its own in a temporary folder. Each measured program is the one
of its revision (`bench/peers/steersman_peer.py`, `steersman apiserver`), which speaks the same protocol in all of them;
the server or the load on the other side is always that of this version. The two take turns, first one and then the
other is ahead, so that both meet the same machine: the figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import bench_apiserver
import bench_controllers
import bench_events
import bench_sync
import msgspec
from children import Child
from figures import Spread
from results import Results

from steersman.testing.raw_api import RawApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from bench_apiserver import Server

    Measure = Callable[["Version"], Awaitable[dict[str, float]]]

LIMIT = 1.05  # of the CPU of the other revision
IDLE = 0.5  # seconds in which a process that is at rest uses next to no CPU
HERE = Path(__file__).parents[1]


class Version(msgspec.Struct, frozen=True):
    """One of the two."""

    folder: Path
    python: Path

    def command(self) -> list[str]:
        """How its peer is started; see `contenders.Contender`."""
        return [str(self.python), str(self.folder / "bench/peers/steersman_peer.py")]


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[Version]:
    """The revision as it was, installed with what it had locked."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", folder, revision], check=True)
        try:
            print(f"installing {revision}", file=sys.stderr)
            subprocess.run(["make", "--quiet", "setup"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            yield Version(folder, folder / ".venv/bin/python")
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


# -- scenarios: each sets up its world and gives a function that measures one version in it, figure by figure ----------


@contextlib.asynccontextmanager
async def sync(options: argparse.Namespace) -> AsyncIterator[Measure]:
    """Fill a cache with ConfigMaps."""
    async with bench_apiserver.embedded() as server, _api(server) as api:
        await bench_sync.fill(api, options.objects)
        count = await bench_controllers.children(api)  # with the one that every namespace has

        async def measure(version: Version) -> dict[str, float]:
            started = time.monotonic()
            with _child(version, server, "sync", str(count)) as child:
                await asyncio.to_thread(child.hear)
                return {"CPU s": child.usage().cpu, "wall s": time.monotonic() - started}

        yield measure


@contextlib.asynccontextmanager
async def events(options: argparse.Namespace) -> AsyncIterator[Measure]:
    """Follow a watch."""
    load = argparse.Namespace(objects=1_000, rate=options.rate, seconds=options.seconds)

    async def measure(version: Version) -> dict[str, float]:
        facts = await asyncio.to_thread(bench_events.measure, version, load)
        return {"CPU µs per change": bench_events.cost_of(facts), "lag p50, ms": facts["p50"] * 1e3}

    yield measure


@contextlib.asynccontextmanager
async def controllers(options: argparse.Namespace) -> AsyncIterator[Measure]:
    """Apply a child for every object, then reconcile every object once more with nothing to do."""
    async with bench_apiserver.embedded() as server, _api(server) as api:
        count = options.gadgets
        await bench_controllers.prepare(api, count)

        async def measure(version: Version) -> dict[str, float]:
            started = time.monotonic()
            with _child(version, server, "controllers") as child:
                while await bench_controllers.children(api) < count:  # noqa: ASYNC110  the fact is on the server
                    await asyncio.sleep(0.02)
                wall = time.monotonic() - started
                first = await _at_rest(child)
                await bench_controllers.touch(api, count, f"at {started}")
                again = await _at_rest(child) - first
            await api.delete(f"{bench_controllers.NAMESPACE}/configmaps")
            return {
                "CPU ms per object with a child to apply": first / count * 1e3,
                "CPU ms per object with nothing to do": again / count * 1e3,
                "wall ms per child": wall / count * 1e3,
            }

        yield measure


@contextlib.asynccontextmanager
async def apiserver(options: argparse.Namespace) -> AsyncIterator[Measure]:
    """The embedded API server: creates, lists, fan-out of watches, start."""
    load = argparse.Namespace(objects=options.objects, lists=5, writes=500)

    async def measure(version: Version) -> dict[str, float]:
        async with bench_apiserver.embedded(version.python) as server:
            found = await bench_apiserver.measure(server, load)
        wall, cpu = await asyncio.to_thread(bench_apiserver.started, 3, version.python)
        return {
            "CPU µs per create": found["create_cpu"],
            "CPU ms per list": found["list_cpu"] * 1e3,
            "CPU µs per event delivered": found["event_cpu"],
            "CPU ms from import to ready": cpu,
            "wall µs per create": 1e6 / found["creates"],
            "wall ms per list": found["list"] * 1e3,
            "wall µs per event delivered": 1e6 / found["events"],
            "wall ms from import to ready": wall,
        }

    yield measure


SCENARIOS = {run.__name__: run for run in (sync, events, controllers, apiserver)}


def _api(server: Server) -> RawApi:
    return RawApi(server.url, token=server.token, ssl_context=server.context)


def _child(version: Version, server: Server, *arguments: str) -> Child:
    return Child([*version.command(), *arguments], env={"KUBECONFIG": str(server.kubeconfig)})


async def _at_rest(child: Child) -> float:
    """The CPU that it has used once it uses no more."""
    used, before = child.usage().cpu, 0.0
    while used - before > 0.01:
        await asyncio.sleep(IDLE)
        used, before = child.usage().cpu, used
    return used


async def run(options: argparse.Namespace, old: Version) -> int:
    """All scenarios, one after the other."""
    new = Version(HERE, Path(sys.executable))
    results = Results(
        "against",
        f"Next to revision {options.revision}",
        f"Both versions in one run of {options.rounds} rounds, in turns, each in a process of its own. CPU is what the "
        "measured process used, user and system. Old and new are medians; the ratio is the median of the rounds' "
        "ratios, beside the smallest and the largest; of the lowest: the cheapest round of each, on a busy machine "
        "the closest to the truth, because other work only adds. "
        f"sync: {options.objects:,} ConfigMaps of 2.4 KB. events: {options.rate:,} changes per second for "
        f"{options.seconds:g} s. controllers: {options.gadgets:,} custom resources with one child each. "
        f"apiserver: {options.objects:,} ConfigMaps of 1 KB, 500 changes to 100 watchers. "
        "The other side is an embedded API server.",
        {
            "name": "",
            "ratio": "new / old",
            "low": "smallest",
            "high": "largest",
            "lowest": "of the lowest",
            "old": "old",
            "new": "new",
        },
    )
    for name in options.scenarios:
        found: dict[str, list[tuple[float, float]]] = {}
        async with SCENARIOS[name](options) as measure:
            for turn in range(options.rounds):
                pair = {version: await measure(version) for version in ((old, new), (new, old))[turn % 2]}
                print(f"  {name}: {pair[old]} -> {pair[new]}", file=sys.stderr)
                for figure in pair[new]:
                    found.setdefault(figure, []).append((pair[old][figure], pair[new][figure]))
        for figure, pairs in found.items():
            ratio = Spread.of(after / before for before, after in pairs)
            before, after = (Spread.of(values).middle for values in zip(*pairs, strict=True))
            lowest = min(after for _, after in pairs) / min(before for before, _ in pairs)
            results.add(
                name=f"{name}: {figure}",
                ratio=ratio.middle,
                low=ratio.low,
                high=ratio.high,
                lowest=lowest,
                old=before,
                new=after,
            )
            if figure.startswith("CPU"):
                results.bar(f"{name}: {figure}", ratio.middle, LIMIT)
    return results.finish() if options.write else int(not all(bar.held for bar in results.bars))


def main() -> int:
    """1 when this version uses more CPU than it may."""
    parser = argparse.ArgumentParser(prog="python -m bench --against", description=__doc__)
    parser.add_argument("revision", help="what git knows: a commit, a tag, a branch")
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="all of them when none is named")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--objects", type=int, default=5_000)
    parser.add_argument("--gadgets", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--in-place", type=Path, help="a checkout of the revision that is set up already")
    options = parser.parse_args()
    options.write = not options.scenarios
    options.scenarios = options.scenarios or list(SCENARIOS)
    found = subprocess.run(
        ["git", "-C", HERE, "rev-parse", "--short", "--verify", "--quiet", f"{options.revision}^{{commit}}"],
        check=False,
        capture_output=True,
        text=True,
    )
    if found.returncode:
        parser.error(f"no revision {options.revision!r}; name a commit, a tag or a branch of this repository")
    options.revision = found.stdout.strip()
    if options.in_place:
        return asyncio.run(run(options, Version(options.in_place, options.in_place / ".venv/bin/python")))
    with checked_out(options.revision) as old:
        return asyncio.run(run(options, old))


if __name__ == "__main__":
    sys.exit(main())
