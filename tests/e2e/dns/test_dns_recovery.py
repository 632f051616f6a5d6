"""Whatever is lost and comes back: no answer is ever empty or older than one before it, and nothing half-done stays.

The operator is the real process on the real control plane, the servers exist already, and a witness asks all of them
all the time. Values count up, so an answer from the past shows itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import dns.tsig
import dns.tsigkeyring
import dns.xfr
import dns.zone
import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.errors import KubeError
from steersman.kube.api.types import Secret
from steersman.operators.dns.wire.rndc import ControlError, Rndc
from steersman.operators.dns.wire.tsig import Key
from steersman.testing import eventually
from tests.support.dns.zones import ask, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KILLS = 100
TEXTS = 4


class _Witness:
    """Asks every server all the time, and remembers what none may ever say."""

    def __init__(self, site):
        self._site = site
        self.lies, self.answers, self.more = [], 0, []  # `more`: zones that come and go
        self._serials, self._rounds = {}, {}

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._watch(server)) for server in self._site.servers]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, server):
        while True:
            with contextlib.suppress(OSError, EOFError, dns.exception.DNSException):  # silence is no lie
                await self._ask(server)
            await asyncio.sleep(0.01)

    async def _ask(self, server):
        name = f"{server.folder.name}"
        soa = await ask(server, "example.org", "SOA")
        text = await ask(server, "t0.example.org", "TXT")
        if soa.rcode() == dns.rcode.NOERROR:
            self.answers += 1
            self._later(self._serials, name, soa.answer[0][0].serial if soa.answer else 0, "serial")
        if text.rcode() in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN) and (text.answer or name in self._rounds):
            number = int(text.answer[0][0].strings[0]) if text.answer else -1
            self._later(self._rounds, name, number, "value of t0")
        for zone in self.more[-1:]:
            soa = await ask(server, zone, "SOA")
            address = await ask(server, f"ns1.{zone}", "A")  # a zone's own words, so known whenever the zone is
            if soa.rcode() == dns.rcode.NOERROR and address.rcode() in (0, 3) and not address.answer:
                self.lies.append(f"{name} has {zone} without what is in it")

    def _later(self, known, name, number, what):
        if number < known.setdefault(name, number):
            self.lies.append(f"{name}: {what} went from {known[name]} back to {number}")
        known[name] = max(number, known[name])


async def _written(site, number):
    """Every record gets the number of the round."""
    await asyncio.gather(*(site.record("TXT", f"t{n}", text=[f"{number}"]) for n in range(TEXTS)))


async def _told(site, number, servers=None):
    for n in range(TEXTS):
        await site.answers(f"t{n}.example.org", "TXT", {f'"{number}"'}, servers)
    return True


async def _agreed(site):
    zone = await site.get("DNSZone", "example.org")
    found = {await serial(server, "example.org") for server in site.servers}
    return zone.status is not None and found == {zone.status.serial} and await site.is_ready("DNSZone", "example.org")


async def _content(server, zone):
    """Everything a server has of a zone, by a signed transfer."""
    ring = dns.tsigkeyring.from_text({server.key_name: server.secret})

    def fetch():
        made = dns.zone.Zone(zone, relativize=True)
        query, _ = dns.xfr.make_query(made, keyring=ring, keyalgorithm=dns.tsig.HMAC_SHA256)
        dns.query.inbound_xfr(server.address, made, query, port=server.dns_port, timeout=60)
        return {
            (str(name), dns.rdatatype.to_text(rdataset.rdtype), rdata.to_text())
            for name, rdataset in made.iterate_rdatasets()
            for rdata in rdataset
            if rdataset.rdtype != dns.rdatatype.SOA
        }

    return await asyncio.to_thread(fetch)


async def _kind(server, zone):
    """How a server has a zone: primary, secondary, or not at all."""
    key = Key(server.key_name, "hmac-sha256", base64.b64decode(server.secret))
    channel = Rndc(server.address, server.rndc_port, key, clock=SYSTEM_CLOCK, timeout=60)
    try:
        said = await channel.command(f"zonestatus {zone}")
    except ControlError as error:
        if "not found" in error.text or "no matching" in error.text:
            return ""
        raise
    finally:
        channel.close()
    return next(line.split()[1] for line in said.splitlines() if line.startswith("type:"))


async def test_an_operator_killed_a_hundred_times_in_mid_update_leaves_nothing_half_done(site, steersman):
    seed = random.randrange(1_000_000)
    print("seed", seed)  # noqa: T201  # shown when the test fails
    chance = random.Random(seed)
    await _written(site, 0)
    async with _Witness(site) as witness:
        for number in range(1, KILLS + 1):
            await steersman.start()
            if chance.random() < 0.75:  # at work; otherwise it is killed while it begins
                await eventually(lambda n=number: _told(site, n - 1, site.primaries), timeout=180)
            work = [_written(site, number)]
            if number % 5 == 0:
                zone = f"z{number}.example"
                witness.more.append(zone)
                work += [
                    site.zone(zone),
                    site.record("A", f"www-{number}", owner="www", zone=zone, ipv4Addresses=["192.0.2.9"]),
                ]
                work.append(site.delete("DNSZone", f"z{number - 10}.example"))
            await asyncio.gather(*work)
            for _ in range(chance.randrange(60)):
                await values(site.primaries[0], "t0.example.org", "TXT")  # not a time: a number of questions
            await steersman.kill()
        await steersman.start()
        await eventually(lambda: _told(site, KILLS), timeout=180)
        await eventually(lambda: _agreed(site), "all serve the serial of the status", timeout=180)
        for n in range(TEXTS):
            await eventually(lambda n=n: site.is_ready("TXT", f"t{n}"), timeout=180)
        kept = [f"z{KILLS - 5}.example", f"z{KILLS}.example"]
        for zone in kept:
            await eventually(lambda zone=zone: site.answers(f"www.{zone}", "A", {"192.0.2.9"}), timeout=180)
        for number in range(5, KILLS - 5, 5):
            await eventually(lambda n=number: site.gone("DNSZone", f"z{n}.example"), timeout=180)
    assert witness.lies == []
    assert witness.answers > KILLS
    wanted = {("@", "NS", "ns1"), ("ns1", "A", "192.0.2.53")}
    wanted |= {(f"t{n}", "TXT", f'"{KILLS}"') for n in range(TEXTS)}
    for server in site.servers:
        role = "secondary" if server in site.secondaries else "primary"
        assert await _content(server, "example.org") == wanted
        kinds = {zone: await _kind(server, zone) for zone in ["example.org", *witness.more]}
        assert kinds == {zone: role if zone in ("example.org", *kept) else "" for zone in kinds}


async def test_no_answer_is_empty_or_older_while_disks_keys_servers_and_the_api_server_come_back(real, site, steersman):
    await steersman.start()
    await _written(site, 1)
    await eventually(lambda: _told(site, 1), timeout=180)
    process = steersman.pid
    async with _Witness(site) as witness:
        rounds = iter(range(2, 100))

        async def changes(servers=None):
            number = next(rounds)

            async def done():
                await _written(site, number)
                return True

            await eventually(done, "the change is stored", timeout=180)
            await eventually(lambda: _told(site, number, servers), timeout=180)

        restart = asyncio.create_task(real.restart_server())
        while not restart.done():
            with contextlib.suppress(KubeError):
                await _written(site, next(rounds))
        await restart
        await changes()
        one, two = site.primaries
        for lost in ([two], [one, two]):  # their disks
            for server in lost:
                await server.kill()
                server.wipe()
                await server.start()
            await changes()
        await site.client.delete(Secret, "primary-1-key", namespace=site.namespace)
        await eventually(lambda: site.is_ready("DNSZone", "example.org", "KeyMissing"), timeout=180)
        await changes([one, *site.secondaries])
        await site.key("primary-1-key", two)
        await changes()
        await two.kill()
        await changes([one, *site.secondaries])
        await two.start()
        await changes()
        await eventually(lambda: _agreed(site), timeout=180)
    assert witness.lies == []
    assert steersman.pid == process
    assert len({frozenset(await _content(server, "example.org")) for server in site.servers}) == 1
