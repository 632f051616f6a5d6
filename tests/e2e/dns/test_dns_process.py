"""The dns operator as a process on the real control plane: it is killed in mid-update, and its commands are asked."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from steersman.testing import eventually
from steersman.testing.zones import Site, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STEERSMAN = Path(sys.executable).with_name("steersman")
CONFIG = "dns: {driftPeriod: 2s, notReadyPeriod: 2s}\nnamespaces: [%s]\n"


@pytest.fixture
async def site(real, client, dns_kinds, namespace, named):
    async with named("ns1") as one, named("ns2", secret=one.secret) as two, named("ns3", secret=one.secret) as three:
        made = Site(client, namespace, [one, two], [three])
        await made.instances()
        await made.zone("example.org")
        yield made


@pytest.fixture
async def steersman(real, tmp_path, namespace):
    """`await steersman.run()` starts the operator, `steersman.ask(…)` asks a command."""
    real.write_kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "steersman.yaml").write_text(CONFIG % namespace)
    processes = []
    log = (tmp_path / "log").open("ab")

    async def start(*arguments, stdout=asyncio.subprocess.DEVNULL):
        process = await asyncio.create_subprocess_exec(
            STEERSMAN,
            *arguments,
            env={"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=stdout,
            stderr=log,
        )
        processes.append(process)
        return process

    async def run():
        config = str(tmp_path / "steersman.yaml")
        return await start("run", "--operators", "dns", "--config", config, "--listen", "127.0.0.1:0")

    async def ask(*arguments):
        process = await start(*arguments, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        return process.returncode, out.decode()

    yield SimpleNamespace(run=run, ask=ask)
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()
    log.close()
    print((tmp_path / "log").read_text()[-3000:])  # noqa: T201  # shown when the test fails


async def test_a_process_killed_at_any_moment_loses_nothing_and_no_serial_goes_back(site, steersman):
    seed = random.randrange(1_000_000)
    print("seed", seed)  # noqa: T201  # shown when the test fails
    chance = random.Random(seed)
    process = await steersman.run()
    await site.record("A", "start", ipv4Addresses=["192.0.2.1"])
    await eventually(lambda: site.answers("start.example.org", "A", {"192.0.2.1"}), timeout=180)
    seen = [[] for _ in site.servers]
    stop = asyncio.Event()

    async def watch(server, numbers):
        while not stop.is_set():
            if (number := await serial(server, "example.org")) is not None:
                numbers.append(number)
            await asyncio.sleep(0.02)

    watchers = [asyncio.create_task(watch(*pair)) for pair in zip(site.servers, seen, strict=True)]
    try:
        for number in range(6):
            await asyncio.gather(
                *(site.record("TXT", f"t{n}", text=[f"{number}"]) for n in range(5)),
                site.record("A", "start", ipv4Addresses=[f"192.0.2.{number + 2}"]),
            )
            for _ in range(chance.randrange(60)):
                await values(site.primaries[0], "start.example.org", "A")  # not a time: a number of questions
            process.kill()
            await process.wait()
            process = await steersman.run()
        for n in range(5):
            await eventually(lambda n=n: site.answers(f"t{n}.example.org", "TXT", {'"5"'}), timeout=180)
            await eventually(lambda n=n: site.is_ready("TXT", f"t{n}"), timeout=180)
        await eventually(lambda: site.answers("start.example.org", "A", {"192.0.2.7"}), timeout=180)

        async def agreed():
            zone = await site.get("DNSZone", "example.org")
            found = {await serial(server, "example.org") for server in site.servers}
            return zone.status is not None and found == {zone.status.serial}

        await eventually(agreed, "all serve the serial of the status", timeout=180)
    finally:
        stop.set()
        await asyncio.gather(*watchers)
    assert all(numbers == sorted(numbers) for numbers in seen)


async def test_the_commands_find_what_differs_say_why_and_bring_a_zone_along(site, steersman, tmp_path):
    await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
    await site.record("CNAME", "alias", owner="www", target="x.example.net.")
    here = ("-n", site.namespace)
    code, out = await steersman.ask("dns", "plan", *here, "--zone", "example.org", "-o", "json")
    assert code == 3
    assert {(row["action"], row["name"]) for row in json.loads(out)} >= {("create", "example.org")}
    await steersman.run()
    await eventually(lambda: site.is_ready("A", "www"), timeout=180)
    await eventually(lambda: site.is_ready("CNAME", "alias", "CNAMEConflict"), timeout=180)
    await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=180)
    code, out = await steersman.ask("dns", "why", *here, "www.example.org", "-o", "json")
    assert code == 0
    states = {row["type"]: (row["state"], row["served"].get("primary-0/0")) for row in json.loads(out)}
    assert states == {"A": ("published", ["192.0.2.1"]), "CNAME": ("CNAMEConflict", [])}

    async def only_held():
        code, out = await steersman.ask("dns", "check", *here, "example.org", "-o", "json")
        return code == 3 and {row["check"] for row in json.loads(out)} == {"held"}

    await eventually(only_held, "nothing but what is held back", timeout=240)
    one = site.primaries[0]
    key = f'key "{one.key_name}" {{ algorithm hmac-sha256; secret "{one.secret}"; }};'
    (tmp_path / "transfer.key").write_text(key)
    place = f"example.org@127.0.0.1:{one.dns_port}"
    code, out = await steersman.ask("dns", "import", place, "--key-file", str(tmp_path / "transfer.key"))
    assert code == 0
    import yaml

    kinds = [(row["kind"], row["spec"].get("name")) for row in yaml.safe_load_all(out)]
    assert kinds == [("DNSZone", None), ("ARecord", "www")]
