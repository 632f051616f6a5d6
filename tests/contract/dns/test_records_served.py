"""Records of all kinds, on both API servers and a real name server: what is served, and what each resource says."""

from __future__ import annotations

import pytest

from steersman.testing import eventually
from steersman.testing.zones import serial

KINDS = {
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
    "TXT": ({"text": ['v=spf1 "quoted" ; semi \\ back', "x" * 300]}, None, {"text": ["plain"]}, {'"plain"'}),
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


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_records_of_all_kinds_are_added_changed_renamed_relabelled_and_deleted(site):
    await site.zone("example.org")
    async with site.running():
        owners = {kind: f"_x._tcp.{kind.lower()}" if kind == "SRV" else kind.lower() for kind in KINDS}
        for kind, (first, _, _, _) in KINDS.items():
            await site.record(kind, kind.lower(), owner=owners[kind], **first)
        for kind, (_, served, _, _) in KINDS.items():
            if served is not None and kind != "NS":
                await eventually(lambda k=kind, s=served: site.answers(f"{owners[k]}.example.org", k, s), timeout=99)
            await eventually(lambda k=kind: site.is_ready(k, k.lower()), f"{kind} is ready", timeout=99)
        for kind, (_, _, second, served) in KINDS.items():
            await site.record(kind, kind.lower(), owner=owners[kind], ttl=77, **second)
            if kind != "NS":
                await eventually(lambda k=kind, s=served: site.answers(f"{owners[k]}.example.org", k, s), timeout=99)
        for kind, (_, _, second, served) in KINDS.items():
            renamed = owners[kind] + "-2" if kind != "SRV" else "_y._tcp.srv"
            await site.record(kind, kind.lower(), owner=renamed, **second)
            if kind != "NS":
                await eventually(
                    lambda k=kind, s=served, r=renamed: site.answers(f"{r}.example.org", k, s), timeout=120
                )
                await eventually(lambda k=kind: site.answers(f"{owners[k]}.example.org", k, ()), timeout=99)
            await eventually(lambda k=kind: site.is_ready(k, k.lower()), f"{kind} is ready", timeout=99)
            owners[kind] = renamed
        for number, kind in enumerate(KINDS):
            if number % 2:
                await site.apply(f"{kind}Record", kind.lower(), (await _spec(site, kind)), labels={"zone": "elsewhere"})
                await eventually(lambda k=kind: site.is_ready(k, k.lower(), "NotSelected"), timeout=99)
            else:
                await site.delete(kind, kind.lower())
                await eventually(lambda k=kind: site.gone(k, k.lower()), f"{kind} is gone", timeout=99)
            if kind != "NS":
                await eventually(lambda k=kind: site.answers(f"{owners[k]}.example.org", k, ()), timeout=99)
        zone = await site.get("DNSZone", "example.org")
        await eventually(lambda: _same_serial(site), timeout=99)
        assert zone.status.serial > 1


async def _spec(site, kind):
    found = await site.client.get(
        {k.KIND.kind: k for k in _kinds()}[f"{kind}Record"].KIND, kind.lower(), namespace=site.namespace
    )
    return found["spec"]


def _kinds():
    from steersman.operators.dns.recordkinds import RECORD_KINDS

    return RECORD_KINDS


async def _same_serial(site):
    zone = await site.get("DNSZone", "example.org")
    return await serial(site.primaries[0], "example.org") == zone.status.serial
