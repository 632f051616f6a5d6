"""What publishing costs: many records in one zone, many zones of a few records, one change in a large zone.

Next to each, `nsupdate` makes the same updates on the same kind of server in the same run: the records are written
down as its commands beforehand, so it has only to send them; where zones are to be made, `rndc addzone` makes them one
after the other first. Ours is the operator at work: the time is from the change in the API server that makes all
records part of a zone, or from the first zone that is created, until the last of them is served; writing their statuses
goes on afterwards and is counted as processor time. For one zone the best of three rounds counts, in turns for both.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import Results

from steersman.kube.client import Client
from steersman.kube.kubeconfig import load_config
from steersman.operators.dns.recordkinds import ARecord
from steersman.testing.named import Named
from steersman.testing.zones import Site, install_crds, values

ROUNDS = 3
HEAD = {"apiVersion": "bindy.firestoned.io/v1beta1"}


def address(number: int) -> str:
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


async def world(folder: Path, body: Any, *arguments: Any) -> dict[str, Any]:
    """A fresh API server and two name servers: one for us, one for nsupdate."""
    kubeconfig = folder / "kubeconfig"
    server = subprocess.Popen(  # noqa: ASYNC220  # before anything is measured
        [sys.executable, "-m", "steersman", "apiserver", "--kubeconfig-out", str(kubeconfig)],
        stdout=subprocess.DEVNULL,
    )
    try:
        while not (kubeconfig.exists() and kubeconfig.stat().st_size):  # noqa: ASYNC110  # a process writes it
            await asyncio.sleep(0.05)
        async with Client.connect(load_config(kubeconfig)) as client:
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}})
            await install_crds(client, str(folder))
            async with Named(folder / "ours") as ours, Named(folder / "theirs") as theirs:
                site = Site(client, "bench", [ours])
                await site.instances(zoneDirectory=str(ours.zones))
                return await body(site, theirs, *arguments)
    finally:
        server.terminate()
        server.wait()


async def add_records(site: Site, zone: str, numbers: range) -> None:
    async def one(number: int) -> None:
        await site.client.create(
            {
                **HEAD,
                "kind": "ARecord",
                "metadata": {
                    "name": f"{zone.partition('.')[0]}-{number}",
                    "namespace": "bench",
                    "labels": {"zone": zone},
                },
                "spec": {"name": f"host-{number}", "ipv4Addresses": [address(number)], "ttl": 300},
            }
        )

    for start in range(numbers.start, numbers.stop, 64):
        await asyncio.gather(*(one(number) for number in range(start, min(start + 64, numbers.stop))))


async def served(site: Site, names: list[tuple[str, str]]) -> None:
    for name, value in names:
        while await values(site.primaries[0], name, "A") != {value}:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def zone_file(zone: str) -> str:
    return (
        f"$ORIGIN {zone}.\n$TTL 300\n@ IN SOA ns1 hostmaster 1 3600 600 604800 60\n@ IN NS ns1\nns1 IN A 192.0.2.53\n"
    )


async def add_zone(server: Named, zone: str) -> None:
    (server.zones / f"{zone}.zone").write_text(zone_file(zone))
    rndc = shutil.which("rndc", path="/usr/sbin:/usr/bin") or "rndc"
    conf = server.folder / "rndc.conf"
    conf.write_text(
        f'key "{server.key_name}" {{ algorithm hmac-sha256; secret "{server.secret}"; }};\n'
        f'options {{ default-key "{server.key_name}"; default-server 127.0.0.1; default-port {server.rndc_port}; }};\n'
    )
    text = f'{{ type primary; file "{zone}.zone"; update-policy {{ grant {server.key_name} zonesub ANY; }}; }};'
    await asyncio.to_thread(
        subprocess.run, [rndc, "-c", str(conf), "addzone", zone, text], check=True, capture_output=True
    )


async def nsupdate(server: Named, commands: list[str]) -> float:
    """Seconds that nsupdate takes for these commands."""
    text = "\n".join(
        [f"key hmac-sha256:{server.key_name} {server.secret}", f"server 127.0.0.1 {server.dns_port}", *commands, ""]
    )
    path = server.folder / "commands"
    path.write_text(text)
    began = time.perf_counter()
    await asyncio.to_thread(subprocess.run, ["nsupdate", str(path)], check=True, capture_output=True)
    return time.perf_counter() - began


def spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def one_zone(site: Site, theirs: Named, count: int) -> dict[str, Any]:
    """Records that all become part of a zone by one change of it; the best of some rounds, for both."""
    nothing = [{"selector": {"matchLabels": {"zone": "none"}}}]
    chosen = [{"selector": {"matchLabels": {"zone": "all"}}}]
    zones = [f"big{number}.test" for number in range(ROUNDS)]
    for zone in zones:
        await site.zone(zone, recordsFrom=nothing)
    await add_records(site, "all", range(count))
    ours, used, reference = [], [], []
    async with site.running() as manager:
        for zone in zones:
            await served(site, [(f"ns1.{zone}", "192.0.2.53")])
        await settled(manager, count)
        for zone in zones:
            cpu, began = spent(), time.perf_counter()
            await site.zone(zone, recordsFrom=chosen)
            await served(site, [(f"host-{count - 1}.{zone}", address(count - 1)), (f"host-0.{zone}", address(0))])
            ours.append(time.perf_counter() - began)
            await settled(manager, count)
            used.append(spent() - cpu)
            await add_zone(theirs, zone)
            commands = [f"zone {zone}"]
            for number in range(count):
                commands.append(f"update add host-{number}.{zone} 300 A {address(number)}")
                if number % 1500 == 1499:
                    commands.append("send")
            reference.append(await nsupdate(theirs, [*commands, "send"]))
            await site.zone(zone, recordsFrom=nothing)
            await gone(site, f"host-0.{zone}")
            await settled(manager, count)
    return {"seconds": min(ours), "cpu": min(used), "nsupdate": min(reference)}


async def gone(site: Site, name: str) -> None:
    while await values(site.primaries[0], name, "A"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def many_zones(site: Site, theirs: Named, count: int) -> dict[str, Any]:
    """Many zones are made, each of ten records that are there already; the other way is rndc addzone and nsupdate."""
    zones = [f"z{number}.test" for number in range(count)]
    for zone in zones:
        await add_records(site, zone, range(10))
    async with site.running() as manager:
        await settled(manager, count * 10)
        cpu, began = spent(), time.perf_counter()
        for start in range(0, count, 50):
            await asyncio.gather(*(site.zone(zone) for zone in zones[start : start + 50]))
        await served(site, [(f"host-9.{zone}", address(9)) for zone in reversed(zones)])
        seconds = time.perf_counter() - began
        await settled(manager, count * 10)
        cpu = spent() - cpu
    began = time.perf_counter()
    for zone in zones:
        await add_zone(theirs, zone)
    added = time.perf_counter() - began
    commands = []
    for zone in zones:
        commands.append(f"zone {zone}")
        commands += [f"update add host-{number}.{zone} 300 A {address(number)}" for number in range(10)]
        commands.append("send")
    reference = added + await nsupdate(theirs, commands)
    return {"seconds": seconds, "cpu": cpu, "nsupdate": reference}


async def settled(manager: Any, count: int) -> None:
    """Every record has its status: all were looked at, and for a while nobody has had anything to do."""
    engine = manager.engine("dns-arecords")
    still = 0
    while still < 10:
        await asyncio.sleep(0.05)
        busy = len(engine.queue) or engine.queue.running or engine.tally.results["success"] < count
        still = 0 if busy else still + 1


async def one_change(site: Site, _theirs: Named, count: int) -> dict[str, Any]:
    """One record of a large zone changes, ten times over."""
    await site.zone("big.test")
    await add_records(site, "big.test", range(count))
    async with site.running() as manager:
        await served(site, [("host-0.big.test", address(0)), (f"host-{count - 1}.big.test", address(count - 1))])
        await settled(manager, count)
        times = []
        cpu = spent()
        for number in range(10):
            began = time.perf_counter()
            spec = {"spec": {"ipv4Addresses": [address(99000 + number)]}}
            await site.client.patch(ARecord, "big-0", spec, namespace="bench")
            await served(site, [("host-0.big.test", address(99000 + number))])
            times.append(time.perf_counter() - began)
        return {"seconds": sorted(times)[5], "cpu": (spent() - cpu) / 10, "nsupdate": 0.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--zones", type=int, default=500)
    parser.add_argument("--large", type=int, default=50_000)
    options = parser.parse_args()
    results = Results(
        "dns",
        "Publishing records",
        __doc__ or "",
        {
            "case": "case",
            "seconds": "seconds until served",
            "cpu": "processor seconds",
            "nsupdate": "nsupdate, seconds",
        },
    )
    found: dict[str, dict[str, Any]] = {}
    cases = [
        (f"{options.records} records in one zone", one_zone, options.records),
        (f"{2 * options.records} records in one zone", one_zone, 2 * options.records),
        (f"{options.zones} zones of 10 records", many_zones, options.zones),
        (f"{2 * options.zones} zones of 10 records", many_zones, 2 * options.zones),
        (f"one change among {options.large // 10} records", one_change, options.large // 10),
        (f"one change among {options.large} records", one_change, options.large),
    ]
    for name, body, count in cases:
        if not count:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[name] = asyncio.run(world(Path(folder), body, count))
        results.add(case=name, **found[name])
    names = [name for name, _, _ in cases]
    for place in (0, 2):
        once, twice = found.get(names[place]), found.get(names[place + 1])
        if once and twice:
            results.bar(f"{names[place]}: times nsupdate", once["seconds"] / once["nsupdate"], 2.0)
            results.bar(f"{names[place + 1]}: growth when doubled", twice["seconds"] / once["seconds"] / 2, 1.3)
    few, many = found.get(names[4]), found.get(names[5])
    if few and many:
        results.bar("one change: ten times the records", many["seconds"] / few["seconds"], 1.5)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
