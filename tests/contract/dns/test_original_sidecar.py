"""The sidecar whose interface ours serves: our driver works with it, and both answer alike but where ours is to differ.

The program is the published one (`tests.support.programs.crates`), beside a real named.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steersman.operators.dns.bind.driver import Refused
from steersman.operators.dns.bind.http_driver import SidecarError
from steersman.operators.dns.bind.zone_statements import primary_config, secondary_config
from steersman.operators.dns.sidecar.zone_data import key_of, value_of
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import RRset, Soa
from steersman.testing import eventually
from steersman.testing.plugin import unavailable
from tests.support.dns.sidecar import OriginalSidecar, SidecarProcess, driving
from tests.support.dns.zones import serial
from tests.support.programs.crates import BINDCAR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ORG = name_of("example.org")
START = Soa(name_of("ns1.example.org"), name_of("host\\.master.example.org"), 10, 3600, 600, 604800, 60)


def rrsets(*rows):
    made = {}
    for name, kind, ttl, *texts in rows:
        key = key_of(name, kind, ORG)
        made[key] = RRset(ttl, frozenset(value_of(key[1], text, None, ORG) for text in texts))
    return made


LEAST = rrsets(("@", "NS", 300, "ns1.example.org."), ("ns1", "A", 300, "192.0.2.53"))
ALL = LEAST | rrsets(
    ("www", "A", 60, "192.0.2.1", "192.0.2.2"),
    ("www", "AAAA", 60, "2001:db8::1"),
    ("alias", "CNAME", 300, "www.example.org."),
    ("@", "MX", 300, "10 ns1.example.org.", "20 mx.example.net."),
    ("text", "TXT", 300, '"a b" "c;d \\"x\\" \\\\ $y (z)"', '"' + "x" * 200 + '"', '"\\195\\188"'),
    ("sub", "NS", 300, "ns.example.net."),
    ("_s._tcp", "SRV", 300, "1 2 3 www.example.org."),
    ("@", "CAA", 300, '0 issue "ca.example.net; policy=ev"'),
    ("*.wild", "A", 300, "192.0.2.9"),
    ("1", "PTR", 300, "www.example.org."),
    ("es\\.caped", "TXT", 300, '"not a plain name"'),
)


@pytest.fixture(params=[OriginalSidecar, SidecarProcess])
def sidecar(request):
    """A kind of sidecar."""
    if request.param is OriginalSidecar and BINDCAR.built() is None:
        unavailable("bindcar is not built: `make programs`")
    return request.param


@pytest.fixture
async def cars(sidecar, named):
    """Two servers with their sidecars."""
    async with (
        named("ns1") as ns1,
        named("ns2", secret=ns1.secret) as ns2,
        sidecar(ns1) as first,
        sidecar(ns2) as second,
    ):
        yield first, second


async def test_zones_of_all_kinds_of_data_come_change_and_go_through_either_sidecar(cars):
    one, two = cars
    async with driving(one) as primary, driving(two, "secondary") as secondary:
        follow = secondary_config(secondary.server, ORG, [primary.server])
        lead = primary_config(primary.server, ORG, [secondary.server])
        await primary.ready()
        assert await primary.configuration(ORG) is None
        await primary.remove(ORG)
        await secondary.create_secondary(ORG, follow)  # nobody has it yet
        async with driving(two, "secondary") as unknowing:
            for driver in (secondary, unknowing):
                assert (await driver.configuration(ORG))[0] == ("type", "secondary")
        await primary.create_primary(ORG, lead, START, ALL, 300)
        assert await primary.read(ORG, frozenset()) == (START.value(), ALL)
        assert (await primary.configuration(ORG))[0] == ("type", "primary")

        async def followed(number):
            if await serial(two.named, "example.org") != number:
                await secondary.refresh(ORG)
                return False
            return True

        await eventually(lambda: followed(10), "the secondary has it", timeout=120)
        for driver, config in ((primary, lead), (secondary, follow)):
            await driver.configure(ORG, config)
        later = replace(START, serial=11)
        change = RRsetChange(key_of("new", "A", ORG), None, RRset(60, frozenset({bytes([192, 0, 2, 7])})))
        await primary.write(ORG, START.value(), later.value(), 300, [change])
        await eventually(lambda: followed(11), "the secondary follows", timeout=120)
        nobody = replace(primary.server, dns_port=1)
        await secondary.configure(ORG, secondary_config(secondary.server, ORG, [nobody, primary.server]))
        shown = await two.named.control("showzone example.org")
        assert shown.index("port 1") < shown.index(f"port {one.named.dns_port}")
        assert "example.org" in await primary.signing(ORG)
        assert await primary.renew()
        for driver in (primary, secondary):
            await driver.remove(ORG)
            assert await driver.configuration(ORG) is None
        assert not list(one.named.zones.glob("example.org*"))


async def test_a_signed_zone_keeps_its_policy_until_it_is_safe_to_take_it_away(cars):
    async with driving(cars[0]) as driver:
        signed = primary_config(driver.server, ORG, [], policy="default")
        plain = primary_config(driver.server, ORG, [])
        await driver.create_primary(ORG, plain, START, LEAST, 300)
        await driver.configure(ORG, signed)
        assert 'dnssec-policy "default"' in await cars[0].named.control("showzone example.org")
        if isinstance(cars[0], OriginalSidecar):

            async def unsafe():
                with pytest.raises(SidecarError, match="Unsafe DNSSEC transition"):
                    await driver.configure(ORG, plain)
                return True

            await eventually(unsafe, "it serves keys", timeout=120)


async def test_what_the_originals_zones_refuse_is_refused_for_itself_and_the_zone_is_there(named):
    if BINDCAR.built() is None:
        unavailable("bindcar is not built: `make programs`")
    async with named("ns1") as ns1, OriginalSidecar(ns1) as car, driving(car) as driver:
        odd = rrsets(("under_score", "A", 300, "192.0.2.1"))
        config = primary_config(driver.server, ORG, [])
        with pytest.raises(Refused):
            await driver.create_primary(ORG, config, START, {**LEAST, **odd}, 300)
        served, found = await driver.read(ORG, frozenset())
        assert found == LEAST
        assert Soa.read(served).serial == START.serial - 1


async def test_a_zone_larger_than_a_request_may_be_comes_in_parts(cars):
    many = rrsets(*((f"n{number}", "A", 300, f"10.0.{number // 250}.{number % 250}") for number in range(26_000)))
    async with driving(cars[0]) as driver:
        config = primary_config(driver.server, ORG, [])
        await driver.create_primary(ORG, config, START, {**LEAST, **many}, 300)
        assert await driver.read(ORG, frozenset()) == (START.value(), {**LEAST, **many})


# -- both, asked the same ---------------------------------------------------------------------------------------------

SOA = {"primaryNs": "ns1.example.org.", "adminEmail": "h.example.org.", "serial": 7}
CONFIG = {
    "ttl": 300,
    "soa": SOA,
    "nameServers": ["ns1.example.org."],
    "nameServerIps": {"ns1.example.org.": "192.0.2.53"},
    "records": [{"name": "www", "type": "A", "value": "192.0.2.1"}],
}


def zone(name="example.org", kind="primary", **config):
    return {"zoneName": name, "zoneType": kind, "zoneConfig": {**CONFIG, **config}, "updateKeyName": "operator"}


def record(name, kind, value, **more):
    return {"name": name, "type": kind, "value": value, **more}


Z, R = "/zones/example.org", "/zones/example.org/records"
VERBS = ("reload", "freeze", "thaw", "notify", "retransfer")
# method, path, body, and where ours answers otherwise: its status (docs/dns.md says why)
REQUESTS: list[tuple] = [
    ("GET", "/health", None, None),
    ("GET", "/ready", None, None),
    ("GET", "/server/status", None, None),
    ("GET", "/zones", None, None),
    *(("GET", f"{Z}{more}", None, None) for more in ("", "/status")),
    ("DELETE", Z, None, None),
    ("PATCH", Z, {"alsoNotify": ["192.0.2.9"]}, None),
    *(("POST", f"{Z}/{verb}", None, None) for verb in VERBS),
    ("POST", R, record("x", "A", "192.0.2.2"), None),
    ("POST", "/zones", zone(), None),
    ("POST", "/zones", zone(), None),
    ("GET", "/zones", None, None),
    *(("GET", f"{Z}{more}", None, None) for more in ("", "/status")),
    ("PATCH", Z, {"alsoNotify": ["192.0.2.9"], "allowTransfer": ["127.0.0.1"]}, None),
    ("PATCH", Z, {"alsoNotify": ["192.0.2.9:5353"]}, 200),
    ("PATCH", Z, {}, None),
    ("POST", R, record("x", "A", "192.0.2.2"), None),
    ("POST", R, record("x", "A", "nonsense"), None),
    ("POST", R, record("x", "WKS", "1"), None),
    ("POST", R, record("m", "MX", "ns1.example.org.", priority=10), None),
    ("POST", R, record("m", "MX", "ns1", priority=10), None),
    ("POST", R, record("q", "TXT", "hello world"), None),
    ("POST", R, record("s", "SRV", "1 2 ns1.example.org.", priority=5), None),
    ("POST", R, record("k", "CAA", '0 issue "ca.example.net"'), None),
    ("POST", R, record("n", "CNAME", "www.example.org."), None),
    ("POST", R, record("n", "A", "192.0.2.2"), 409),
    ("PUT", R, {"name": "x", "type": "A", "currentValue": "192.0.2.2", "newValue": "192.0.2.3"}, None),
    ("DELETE", R, record("x", "A", "192.0.2.3"), None),
    ("DELETE", R, {"name": "q", "type": "TXT"}, None),
    ("POST", f"{Z}/reload", None, 409),
    *(("POST", f"{Z}/{verb}", None, None) for verb in VERBS[1:4]),
    ("POST", f"{Z}/retransfer", None, 409),
    ("POST", "/zones", zone("broken.org", records=[record("www", "A", "nonsense")]), None),
    ("POST", "/zones", zone("bad name.org"), None),
    ("POST", "/zones", zone("policy.org", dnssecPolicy="unknown"), 400),
    ("POST", "/zones", {"zoneName": "x.org"}, 400),
    ("POST", "/zones", zone("second.org", "secondary"), None),
    ("POST", "/zones", zone("second.org", "secondary", primaries=["127.0.0.1:1"]), None),
    ("GET", "/zones/second.org", None, 200),
    ("GET", "/zones/second.org/status", None, 409),
    ("POST", "/zones/second.org/freeze", None, 409),
    ("POST", "/zones/second.org/retransfer", None, None),
    ("PATCH", "/zones/second.org", {"allowTransfer": ["127.0.0.1"]}, None),
    ("PATCH", "/zones/second.org", {"primaries": ["127.0.0.1:2"]}, 200),
    ("DELETE", "/zones/second.org", None, None),
    ("POST", "/server/reconfig", None, 200),
    ("DELETE", Z, None, None),
    ("GET", f"{Z}/status", None, None),
    ("GET", "/nothing", None, None),
]
MORE = {"applied", "steersman"}  # fields that only ours has
LESS = {"dnssec"}  # and that only the original has
FREE = {"details", "serial"}  # that either may leave out
TEXTS = {"Zone example.org", "Zone already", "Zone not found", "Notify sent", "Retransfer", "Record "}


def shape(value):
    """What there is, and of which kind."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items() if name not in MORE | LESS | FREE}
    return type(value)


async def test_both_sidecars_answer_the_same_requests_alike_but_where_ours_is_to_differ(named):
    if BINDCAR.built() is None:
        unavailable("bindcar is not built: `make programs`")
    answers = []
    async with named("ns1") as ns1, named("ns2") as ns2, OriginalSidecar(ns1) as original, SidecarProcess(ns2) as ours:
        for method, path, body, _ in REQUESTS:
            answers.append([await car.ask(method, path, body) for car in (original, ours)])
        for token in ("", "wrong"):
            assert [(await car.ask("GET", "/zones", token=token))[0] for car in (original, ours)] == [401, 401]
    for (method, path, body, other), ((status, theirs), (own, mine)) in zip(REQUESTS, answers, strict=True):
        asked = f"{method} {path} {body}: {status} {theirs}, and ours {own} {mine}"
        assert own == (status if other is None else other), asked
        assert (other is None) == (own == status), asked
        if other is None and isinstance(theirs, dict):
            assert shape(theirs) == shape(mine), asked
            for field in ("message", "error"):
                if any(str(theirs.get(field)).startswith(text) for text in TEXTS):
                    assert mine[field] == theirs[field], asked
            if isinstance(theirs.get("details"), dict):
                assert mine["details"] == theirs["details"], asked
