"""What publishing costs: many records in one zone, many zones of a few records, one change in a large zone.

The operator is a process of its own, with an API server and a real named; `nsupdate` makes the same updates on a named
of the same kind, in turns with it. Its commands are in a file beforehand, as many to a message as named takes; zones
that are new are made for it by `rndc addzone`, one after the other. Ours runs from the request to the API server until
the last name is answered as it should be, nsupdate from its start to its end. Medians of all turns; zones have one. The
operator's processor time is given until then, and until it rests again, all statuses written.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from dnsworld import (
    HEAD,
    NAMESPACE,
    Kept,
    World,
    add_zone,
    address,
    answer,
    have_zone,
    host,
    nsupdate,
    until_served,
)
from results import Results

from steersman.operators.dns.api.records import RECORD_KINDS, ARecord

if TYPE_CHECKING:
    from dnsworld import Spent

BATCH = 1500  # updates that nsupdate sends in one message: fewer are not faster, and 2,500 do not fit
PER_ZONE = 10
SIZES = (50, 5, 1)  # parts of --large for which one change is measured: a fiftieth, a fifth, all


class Turns:
    """What ours and nsupdate took, turn by turn."""

    def __init__(self) -> None:
        self.ours: list[float] = []
        self.cpu: list[float] = []
        self.whole: list[float] = []
        self.theirs: list[Spent] = []

    def row(self) -> dict[str, Any]:
        """The medians, as a line of the table."""
        ours, theirs = median(self.ours), median(spent.seconds for spent in self.theirs)
        return {
            "seconds": ours,
            "slowest": max(self.ours),
            "nsupdate": theirs,
            "times": ours / theirs,
            "cpu": median(self.cpu) if self.cpu else None,
            "whole": median(self.whole),
            "their_cpu": median(spent.cpu for spent in self.theirs),
        }


# -- many records in one zone ------------------------------------------------------------------------------------------


async def one_zone(world: World, sizes: tuple[int, int], rounds: int) -> dict[int, Turns]:
    """Records that all become part of a zone by one change of it, in turns for each number and for nsupdate."""
    few, many = sizes
    await world.zone("grow.test", "none")
    await world.add_records(["r"], many, lambda _, number: {"all": "yes"} | ({"half": "yes"} if number < few else {}))
    world.start()
    server = world.site.primaries[0]
    until_served([server], "ns1.grow.test", "A", {"192.0.2.53"})
    await told(world, 0)
    found = {few: Turns(), many: Turns()}
    for turn in range(rounds):
        for count, label in ((few, "half"), (many, "all")):
            before, began = world.cpu, time.perf_counter()
            await world.zone("grow.test", label)
            until_served([server], f"{host(count - 1)}.grow.test", "A", {address(count - 1)})
            found[count].ours.append(time.perf_counter() - began)
            found[count].cpu.append(world.cpu - before)
            found[count].whole.append(await told(world, count) - before)
            missing = [n for n in range(0, count, 97) if answer(server, f"{host(n)}.grow.test") == (set(), 0)]
            assert not missing, missing
            other = f"grow{turn}-{count}.test"
            await have_zone(world.theirs, other)
            found[count].theirs.append(nsupdate(world.theirs, adding(other, count)))
            await world.zone("grow.test", "none")
            await told(world, 0)
            assert answer(server, f"{host(0)}.grow.test") == (set(), 0)
    return found


async def told(world: World, count: int) -> float:
    """Wait until so many records say that they are ready, and the operator rests; what it had used by then."""
    while True:
        used = await world.rest()
        rows = (await world.client.list(ARecord, namespace=NAMESPACE)).items
        told = [row.status.conditions[-1].status for row in rows if row.status is not None]
        if len(told) == len(rows) and told.count("True") == count:
            return used


def adding(zone: str, count: int) -> list[str]:
    """Commands that add the hosts of a zone."""
    commands = [f"zone {zone}"]
    for number in range(count):
        commands.append(f"update add {host(number)}.{zone} 300 A {address(number)}")
        if number % BATCH == BATCH - 1 or number == count - 1:
            commands.append("send")
    return commands


# -- many zones --------------------------------------------------------------------------------------------------------


async def many_zones(world: World, sizes: tuple[int, int]) -> dict[str, Turns]:
    """Zones of ten records each: new ones, and updates of those that are there."""
    world.start()
    found: dict[str, Turns] = {}
    zones: list[str] = []
    ready = 0
    for count in sizes:
        zones = [f"z{count}-{number}.test" for number in range(count)]
        prefixes = [zone.removesuffix(".test") for zone in zones]
        await world.add_records(prefixes, PER_ZONE, lambda prefix, _: {"zone": f"{prefix}.test"})
        await told(world, ready)
        new = found[f"{count} new zones of {PER_ZONE} records"] = Turns()
        ready += count * PER_ZONE
        await _zones_turn(world, new, zones, ready, new_ones=True)
    for zone in zones:  # the same records once more, now that all zones are there
        await have_zone(world.theirs, f"again-{zone}")
    await world.at_once(world.zone(zone, "none", zone) for zone in zones)
    await told(world, ready - len(zones) * PER_ZONE)
    again = found[f"{PER_ZONE} records more in each of {sizes[-1]} zones"] = Turns()
    await _zones_turn(world, again, zones, ready, new_ones=False)
    return found


async def _zones_turn(world: World, turns: Turns, zones: list[str], ready: int, *, new_ones: bool) -> None:
    before, began = world.cpu, time.perf_counter()
    await world.at_once(world.zone(zone, "zone", zone) for zone in zones)
    for zone in reversed(zones):
        until_served(world.site.primaries, f"{host(PER_ZONE - 1)}.{zone}", "A", {address(PER_ZONE - 1)})
    turns.ours.append(time.perf_counter() - began)
    turns.cpu.append(world.cpu - before)
    turns.whole.append(await told(world, ready) - before)
    began = time.perf_counter()
    if new_ones:
        for zone in zones:
            add_zone(world.theirs, zone)
    added = time.perf_counter() - began if new_ones else 0.0
    names = zones if new_ones else [f"again-{zone}" for zone in zones]
    commands = [line for zone in names for line in adding(zone, PER_ZONE)]
    spent = nsupdate(world.theirs, commands)
    turns.theirs.append(type(spent)(spent.seconds + added, spent.cpu))


# -- one change --------------------------------------------------------------------------------------------------------


async def one_change(worlds: dict[int, World], changes: int) -> tuple[dict[int, Turns], Turns, list[float]]:
    """One record changes, again and again, in worlds of several sizes; in turns.

    Beside it an nsupdate per change, and in the largest world also one that is kept running. The last are the seconds
    that the API server takes for the request alone.
    """
    for count, world in worlds.items():
        await world.zone("large.test", "all")
        await world.add_records(["r"], count, lambda *_: {"all": "yes"})
        world.start()
        await have_zone(world.theirs, "large.test", count)
    for count, world in worlds.items():
        until_served(world.site.primaries, f"{host(count - 1)}.large.test", "A", {address(count - 1)})
        await told(world, count)
    found, kept, requests = {count: Turns() for count in worlds}, Turns(), []
    with Kept(worlds[max(worlds)].theirs) as waiting:
        for turn in range(changes):
            for count, world in worlds.items():
                number, value = (turn * 7919) % count, f"192.0.2.{turn + 1}"
                turns, name = found[count], f"{host(number)}.large.test"
                before, began = world.cpu, time.perf_counter()
                body = {"spec": {"ipv4Addresses": [value]}}
                await world.client.patch(ARecord, f"r-{number}", body, namespace=NAMESPACE)
                requests.append(time.perf_counter() - began)
                until_served(world.site.primaries, name, "A", {value})
                turns.ours.append(time.perf_counter() - began)
                await asyncio.sleep(0.4)
                turns.whole.append(world.cpu - before)
                turns.theirs.append(nsupdate(world.theirs, replacing(name, value)))
            kept.theirs.append(waiting.change(replacing(name, "198.51.100.1"), name, "198.51.100.1"))
    kept.ours, kept.whole = turns.ours, turns.whole
    return found, kept, requests


def replacing(name: str, value: str) -> list[str]:
    """Commands that give a name another address."""
    return ["zone large.test", f"update delete {name} A", f"update add {name} 300 A {value}", "send"]


# -- every kind --------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[tuple[dict[str, Any], str], tuple[dict[str, Any], str]]] = {
    "A": (({"ipv4Addresses": ["192.0.2.1"]}, "192.0.2.1"), ({"ipv4Addresses": ["192.0.2.2"]}, "192.0.2.2")),
    "AAAA": (({"ipv6Addresses": ["2001:db8::1"]}, "2001:db8::1"), ({"ipv6Addresses": ["2001:db8::2"]}, "2001:db8::2")),
    "CNAME": (({"target": "a.example.net."}, "a.example.net."), ({"target": "b.example.net."}, "b.example.net.")),
    "MX": (
        ({"priority": 1, "mailServer": "mx.example.net."}, "1 mx.example.net."),
        ({"priority": 2, "mailServer": "mx.example.net."}, "2 mx.example.net."),
    ),
    "TXT": (({"text": ["one"]}, '"one"'), ({"text": ["two"]}, '"two"')),
    "NS": (({"nameserver": "a.example.net."}, "a.example.net."), ({"nameserver": "b.example.net."}, "b.example.net.")),
    "SRV": (
        ({"priority": 1, "weight": 2, "port": 3, "target": "a.example.net."}, "1 2 3 a.example.net."),
        ({"priority": 1, "weight": 2, "port": 4, "target": "a.example.net."}, "1 2 4 a.example.net."),
    ),
    "CAA": (
        ({"flags": 0, "tag": "issue", "value": "one.example"}, '0 issue "one.example"'),
        ({"flags": 0, "tag": "issue", "value": "two.example"}, '0 issue "two.example"'),
    ),
}


async def every_kind(world: World, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Each kind is added, changed, renamed, taken out, put back and deleted; until the primaries know, and all."""
    await world.site.zone("kinds.test")
    world.start()
    until_served(world.site.servers, "ns1.kinds.test", "A", {"192.0.2.53"})
    await world.rest()
    return {kind: [s for turn in range(rounds) for s in await _life(world, kind, turn)] for kind in KINDS}


async def _life(world: World, kind: str, turn: int) -> list[tuple[float, float]]:
    name, (first, second) = f"{kind.lower()}{turn}", KINDS[kind]
    owner, other = (f"_{name}._tcp", f"_{name}-x._tcp") if kind == "SRV" else (name, f"{name}-x")
    target = next(one for one in RECORD_KINDS if one.KIND.kind == f"{kind}Record")
    times: list[tuple[float, float]] = []

    async def step(request: Any, *facts: tuple[str, set[str], int]) -> None:
        began = time.perf_counter()
        await request
        seconds = []
        for servers in (world.site.primaries, world.site.secondaries):
            for which, values, ttl in facts:
                until_served(servers, f"{which}.kinds.test", kind, values, ttl)
            seconds.append(time.perf_counter() - began)
        times.append((seconds[0], seconds[1]))
        await asyncio.sleep(0.1)  # so that one change does not ride on another

    def patch(body: dict[str, Any]) -> Any:
        return world.client.patch(target, name, body, namespace=NAMESPACE)

    def gone(which: str) -> tuple[str, set[str], int]:
        return (which, set(), 0)

    meta = {"name": name, "namespace": NAMESPACE, "labels": {"zone": "kinds.test"}}
    body = {**HEAD, "kind": f"{kind}Record", "metadata": meta, "spec": {"name": owner, "ttl": 60, **first[0]}}
    await step(world.client.create(body), (owner, {first[1]}, 60))
    await step(patch({"spec": second[0]}), (owner, {second[1]}, 60))
    await step(patch({"spec": {"ttl": 120}}), (owner, {second[1]}, 120))
    await step(patch({"spec": {"name": other}}), (other, {second[1]}, 120), gone(owner))
    await step(patch({"metadata": {"labels": {"zone": "none"}}}), gone(other))
    await step(patch({"metadata": {"labels": {"zone": "kinds.test"}}}), (other, {second[1]}, 120))
    await step(world.client.delete(target, name, namespace=NAMESPACE), gone(other))
    return times


# -- all of it ---------------------------------------------------------------------------------------------------------


async def run(options: argparse.Namespace, folder: Path) -> int:
    """Every case."""
    results = Results(
        "dns",
        "Publishing records",
        " ".join((__doc__ or "").split("\n\n", 1)[1].split())
        + f" API server: {'kube-apiserver' if options.server == 'real' else 'the embedded one'}.",
        {
            "case": "case",
            "seconds": "ours, s",
            "slowest": "slowest turn, s",
            "nsupdate": "nsupdate, s",
            "times": "ours / nsupdate",
            "cpu": "our CPU until served, s",
            "whole": "our CPU in all, s",
            "their_cpu": "nsupdate's CPU, s",
        },
    )
    if "records" in options.cases:
        await records_case(options, folder, results)
    if "zones" in options.cases:
        await zones_case(options, folder, results)
    if "change" in options.cases:
        await change_case(options, folder, results)
    if "kinds" in options.cases:
        await kinds_case(options, folder, results)
    return results.finish() if options.keep else 0


async def records_case(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Many records in one zone."""
    sizes = (options.records // 2, options.records)
    async with World(folder / "records", real=options.server == "real") as world:
        found = await one_zone(world, sizes, options.rounds)
    rows = {count: turns.row() for count, turns in found.items()}
    for count, row in rows.items():
        results.add(case=f"{count} records join a zone", **row)
    few, many = (rows[count] for count in sizes)
    results.bar(f"{sizes[1]} records, times nsupdate", many["times"], 2.0)
    results.bar(f"{sizes[1]} records, time beside {sizes[0]}", many["seconds"] / few["seconds"], 2.4)
    results.bar(f"{sizes[1]} records, CPU in all beside {sizes[0]}", many["whole"] / few["whole"], 2.4)


async def zones_case(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """Many zones of ten records."""
    sizes = (options.zones // 2, options.zones)
    async with World(folder / "zones", real=options.server == "real") as world:
        found = await many_zones(world, sizes)
    rows = {name: turns.row() for name, turns in found.items()}
    for name, row in rows.items():
        results.add(case=name, **row)
    few, many, again = rows.values()
    names = list(rows)
    results.bar(f"{names[1]}, times addzone and nsupdate", many["times"], 2.0)
    results.bar(f"{names[1]}, time beside {sizes[0]}", many["seconds"] / few["seconds"], 2.4)
    results.bar(f"{names[1]}, CPU in all beside {sizes[0]}", many["whole"] / few["whole"], 2.4)
    results.bar(f"{names[2]}, times nsupdate", again["times"], 2.0)


async def change_case(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """One change, whatever the size of its zone."""
    sizes = [options.large // part for part in SIZES]
    async with AsyncExitStack() as stack:
        worlds = {}
        for size in sizes:
            world = World(folder / f"change-{size}", real=options.server == "real")
            worlds[size] = await stack.enter_async_context(world)
        found, kept, requests = await one_change(worlds, options.changes)
    rows = {size: turns.row() for size, turns in found.items()}
    for size, row in rows.items():
        results.add(case=f"one change among {size} records", **row)
    running = kept.row()
    results.add(case=f"one change among {sizes[-1]} records, nsupdate kept running", **running)
    results.add(case="the request of one change alone", seconds=median(requests), slowest=max(requests))
    small, large = rows[sizes[0]], rows[sizes[-1]]
    results.bar(f"one change among {sizes[-1]} records, times nsupdate", large["times"], 2.0)
    results.bar(f"one change among {sizes[-1]} records, times an nsupdate that is kept running", running["times"], 2.0)
    results.bar(f"one change, time among {sizes[-1]} beside {sizes[0]}", large["seconds"] / small["seconds"], 1.5)
    results.bar(f"one change, CPU among {sizes[-1]} beside {sizes[0]}", large["whole"] / small["whole"], 1.5)


async def kinds_case(options: argparse.Namespace, folder: Path, results: Results) -> None:
    """All eight kinds, on two primaries and a secondary."""
    async with World(folder / "kinds", real=options.server == "real", primaries=2, secondaries=1) as world:
        found = await every_kind(world, 2)
    for kind, times in found.items():
        everywhere = [whole for _, whole in times]
        case = f"{kind}: add, change, rename, relabel, delete"
        results.add(case=case, seconds=median(everywhere), slowest=max(everywhere))
    primaries = [first for times in found.values() for first, _ in times]
    results.add(case="all eight kinds, on the primaries", seconds=median(primaries), slowest=max(primaries))
    everything = [whole for times in found.values() for _, whole in times]
    results.bar("a change of any kind on all three servers, slowest, s", max(everything), 1.0)


def main() -> int:
    """1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--zones", type=int, default=500)
    parser.add_argument("--large", type=int, default=50_000)
    parser.add_argument("--changes", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=("embedded", "real"), default="embedded")
    parser.add_argument("--cases", default="records,zones,change,kinds")
    parser.add_argument("--no-keep", dest="keep", action="store_false", help="write no results")
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
