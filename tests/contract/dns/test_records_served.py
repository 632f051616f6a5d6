"""Records of all kinds, on both API servers and two real name servers: what is served, and what each resource says.

Nobody waits here: every requeue of the operator is hours away, so what happens does so because something was seen.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import dns.rdata
import dns.rdataclass
import dns.rdatatype
import pytest

from steersman.operators.dns.api.records import RECORD_KINDS
from steersman.testing import eventually
from tests.support.dns.zones import Site, ask, serial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NEVER = timedelta(hours=10)
KINDS = {  # what is said first, and then -> how it reads
    "A": (
        {"ipv4Addresses": ["192.0.2.1", "192.0.2.2"]},
        {"192.0.2.1", "192.0.2.2"},
        {"ipv4Addresses": ["192.0.2.9"]},
        {"192.0.2.9"},
    ),
    "AAAA": (
        {"ipv6Addresses": ["2001:db8::1"]},
        {"2001:db8::1"},
        {"ipv6Addresses": ["2001:DB8:0::2"]},
        {"2001:db8::2"},
    ),
    "CNAME": (
        {"target": "other.example.net."},
        {"other.example.net."},
        {"target": "b.example.net."},
        {"b.example.net."},
    ),
    "MX": (
        {"priority": 10, "mailServer": "mx.example.net."},
        {"10 mx.example.net."},
        {"priority": 20, "mailServer": "mx.example.net."},
        {"20 mx.example.net."},
    ),
    "TXT": (
        {"text": ['v=spf1 "quoted" ; semi \\ back', "x" * 300]},
        {f'"v=spf1 \\"quoted\\" ; semi \\\\ back" "{"x" * 255}" "{"x" * 45}"'},
        {"text": ["plain"]},
        {'"plain"'},
    ),
    "NS": (
        {"nameserver": "ns.example.net."},
        {"ns.example.net."},
        {"nameserver": "ns2.example.net."},
        {"ns2.example.net."},
    ),
    "SRV": (
        {"priority": 1, "weight": 2, "port": 3, "target": "t.example.net."},
        {"1 2 3 t.example.net."},
        {"priority": 1, "weight": 2, "port": 4, "target": "t.example.net."},
        {"1 2 4 t.example.net."},
    ),
    "CAA": (
        {"flags": 0, "tag": "issue", "value": "ca.example.net; policy=ev"},
        {'0 issue "ca.example.net; policy=ev"'},
        {"flags": 128, "tag": "iodef", "value": "mailto:a@example.net"},
        {'128 iodef "mailto:a@example.net"'},
    ),
}


@pytest.fixture
async def pair(cluster, client, dns_kinds, namespace, named):
    """A primary and a secondary."""
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        made = Site(client, namespace, [ns1], [ns2])
        await made.instances()
        yield made


async def served(server, name, kind):
    """TTL and values of a name and type; those of a delegation are no answer, but where to ask."""
    answer = await ask(server, name, kind)
    wanted = dns.rdatatype.from_text(kind)
    for rrset in (*answer.answer, *answer.authority):
        if rrset.rdtype == wanted and rrset.name.to_text() == f"{name}.":
            return rrset.ttl, {row.to_text() for row in rrset}
    return None


async def shows(site, name, kind, wanted):
    """Whether every server has exactly that, and how long it may be kept."""
    found = [await served(server, f"{name}.example.org", kind) for server in site.servers]
    assert found == [wanted] * len(found), (name, kind, found)
    return True


async def dug(server, name, kind):
    """The same, by dig."""
    command = ["dig", "+tcp", "+norecurse", "+noall", "+answer", "+authority", f"@{server.address}"]
    command += ["-p", str(server.dns_port), f"{name}.example.org.", kind]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    text, _ = await process.communicate()
    rows = [line.split(None, 4) for line in text.decode().splitlines() if line]
    rows = [row for row in rows if row[3] == kind and row[0] == f"{name}.example.org."]
    klass, number = dns.rdataclass.IN, dns.rdatatype.from_text(kind)
    return int(rows[0][1]), {dns.rdata.from_text(klass, number, row[4]).to_text() for row in rows}


async def test_records_of_all_kinds_are_added_changed_renamed_relabelled_and_deleted(pair):
    site = pair
    await site.zone("example.org")
    async with site.running(drift_period=NEVER, not_ready=NEVER):
        owners = {kind: f"_x._tcp.{kind.lower()}" if kind == "SRV" else kind.lower() for kind in KINDS}
        for kind, (first, _, _, _) in KINDS.items():
            await site.record(kind, kind.lower(), owner=owners[kind], **first)
        for kind, (_, values, _, _) in KINDS.items():
            await eventually(lambda k=kind, v=values: shows(site, owners[k], k, (300, v)), timeout=99)
            await eventually(lambda k=kind: site.is_ready(k, k.lower()), f"{kind} is ready", timeout=99)
            assert await dug(site.primaries[0], owners[kind], kind) == (300, values)
        for kind, (_, _, second, values) in KINDS.items():
            await site.record(kind, kind.lower(), owner=owners[kind], ttl=77, **second)
            await eventually(lambda k=kind, v=values: shows(site, owners[k], k, (77, v)), timeout=99)
        for kind, (_, _, second, values) in KINDS.items():  # nothing but the TTL
            await site.record(kind, kind.lower(), owner=owners[kind], ttl=78, **second)
            await eventually(lambda k=kind, v=values: shows(site, owners[k], k, (78, v)), timeout=99)
        for kind, (_, _, second, values) in KINDS.items():
            renamed = owners[kind] + "-2" if kind != "SRV" else "_y._tcp.srv"
            await site.record(kind, kind.lower(), owner=renamed, **second)
            await eventually(lambda k=kind, v=values, r=renamed: shows(site, r, k, (300, v)), timeout=99)
            await eventually(lambda k=kind: shows(site, owners[k], k, None), timeout=99)
            await eventually(lambda k=kind: site.is_ready(k, k.lower()), f"{kind} is ready", timeout=99)
            owners[kind] = renamed
        for number, kind in enumerate(KINDS):
            if number % 2:
                await site.apply(f"{kind}Record", kind.lower(), (await _spec(site, kind)), labels={"zone": "elsewhere"})
                await eventually(lambda k=kind: site.is_ready(k, k.lower(), "NotSelected"), timeout=99)
            else:
                await site.delete(kind, kind.lower())
                await eventually(lambda k=kind: site.gone(k, k.lower()), f"{kind} is gone", timeout=99)
            await eventually(lambda k=kind: shows(site, owners[k], k, None), timeout=99)
        zone = await site.get("DNSZone", "example.org")
        await eventually(lambda: _same_serial(site), timeout=99)
        assert zone.status.serial > 1


async def _spec(site, kind):
    found = await site.client.get(
        {k.KIND.kind: k for k in RECORD_KINDS}[f"{kind}Record"].KIND, kind.lower(), namespace=site.namespace
    )
    return found["spec"]


async def _same_serial(site):
    zone = await site.get("DNSZone", "example.org")
    return await serial(site.primaries[0], "example.org") == zone.status.serial
