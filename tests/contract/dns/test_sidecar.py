"""Our sidecar as a process beside a real named: every request of the interface and its answer, what the original gets
wrong, and the driver and the operator that work through it. The embedded API server will do: this is about servers."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from io import BytesIO

import aiohttp
import msgspec
import pytest
from msgspec import structs

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import DriverError
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import ServiceAccount
from steersman.operators.dns.bind.driver import Stale
from steersman.operators.dns.bind.http_driver import BindcarDriver, SidecarError
from steersman.operators.dns.bind.zone_statements import primary_config, same_config, secondary_config
from steersman.operators.dns.sidecar.access import Access, AllowedUsers, Problem
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.wire.rndc import Rndc
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import NS, A, RRset, Soa
from steersman.testing import RequestLog, VirtualClock, eventually
from steersman.testing.plugin import unavailable
from tests.support.dns.sidecar import OriginalSidecar, SidecarProcess, driving, put_behind, server_of
from tests.support.dns.zones import PATIENCE, Site, ask, rogue, serial, values
from tests.support.programs.crates import BINDCAR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
ORG = name_of("example.org")
START = Soa(name_of("ns1.example.net"), name_of("h.example.org"), 7, 3600, 600, 86400, 60)
DATA = {
    (b"", NS): RRset(60, frozenset({name_of("ns1.example.net")})),
    (owner_of("a", ORG), A): RRset(30, frozenset({bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])})),
}
SOA = {"primaryNs": "ns1.example.net.", "adminEmail": "h.example.org.", "serial": 7}
CONFIG = {"ttl": 60, "soa": SOA, "nameServers": ["ns1.example.net."], "nameServerIps": {}}


def zone(name="example.org", kind="primary", **config):
    return {
        "zoneName": name,
        "zoneType": kind,
        "zoneConfig": {**CONFIG, **config},
        **({"updateKeyName": "operator"} if kind == "primary" else {}),
    }


@pytest.fixture
async def car(named):
    async with named("ns1") as ns1, SidecarProcess(ns1) as made:
        yield made


# What is asked, in this order, and what the original answers too unless it says otherwise.
TABLE: list[tuple] = [
    ("GET", "/health", None, 200, {"status": "healthy"}),
    ("GET", "/ready", None, 200, {"ready": True}),
    ("GET", "/server/status", None, 200, {}),
    ("GET", "/zones", None, 200, {"zones": [], "count": 0}),
    ("GET", "/zones/example.org", None, 404, {"error": "Zone not found: example.org", "details": None}),
    ("GET", "/zones/example.org/status", None, 404, {}),
    ("DELETE", "/zones/example.org", None, 404, {}),  # the original: 500
    ("POST", "/zones/example.org/freeze", None, 404, {}),  # the original: 500
    ("PATCH", "/zones/example.org", {"alsoNotify": ["192.0.2.1"]}, 404, {}),
    ("POST", "/zones/example.org/records", {"name": "a", "type": "A", "value": "192.0.2.1"}, 404, {}),
    ("POST", "/zones", zone(""), 400, {}),
    ("POST", "/zones", {**zone(), "zoneType": "hint"}, 400, {}),
    ("POST", "/zones", zone(kind="secondary"), 400, {}),
    ("POST", "/zones", zone(allowTransfer=["any; };"]), 400, {}),
    ("POST", "/zones", zone(nameServers=[]), 400, {"error": "RNDC command failed"}),  # named's own word: bad zone
    ("POST", "/zones", zone(dnssecPolicy="unknown"), 400, {"error": "RNDC command failed"}),
    ("GET", "/zones", None, 200, {"zones": [], "count": 0}),  # nothing is left of what failed
    ("POST", "/zones", zone(), 201, {"success": True, "message": "Zone example.org created successfully"}),
    ("POST", "/zones", zone(), 409, {"error": "Zone already exists: example.org"}),
    ("POST", "/zones", zone("0/25.2.0.192.in-addr.arpa"), 201, {}),
    ("POST", "/zones", zone("second.org", "secondary", primaries=["127.0.0.1:1"]), 201, {}),
    ("GET", "/zones", None, 200, {"zones": ["0/25.2.0.192.in-addr.arpa", "example.org", "second.org"], "count": 3}),
    ("GET", "/zones/example.org", None, 200, {"name": "example.org", "zoneType": "primary", "serial": 7}),
    ("GET", "/zones/second.org", None, 200, {"zoneType": "secondary"}),  # the original: 404
    ("GET", "/zones/0%2F25.2.0.192.in-addr.arpa", None, 200, {"zoneType": "primary"}),
    ("GET", "/zones/example.org/status", None, 200, {"success": True}),
    ("PATCH", "/zones/example.org", {}, 400, {}),
    ("PATCH", "/zones/example.org", {"allowTransfer": ["127.0.0.1"]}, 200, {"success": True}),
    ("PATCH", "/zones/example.org", {"alsoNotify": ["127.0.0.1:1"]}, 200, {}),  # the original: 400
    ("PATCH", "/zones/second.org", {"primaries": ["127.0.0.1:2"]}, 200, {}),  # the original: 400
    ("POST", "/zones/example.org/freeze", None, 200, {"success": True}),
    ("POST", "/zones/example.org/thaw", None, 200, {"success": True}),
    ("POST", "/zones/example.org/notify", None, 200, {"success": True}),
    ("POST", "/zones/example.org/reload", None, 409, {"details": "dynamic zone"}),  # the original: 500
    ("POST", "/zones/example.org/retransfer", None, 409, {}),  # the original: 500
    ("POST", "/zones/second.org/retransfer", None, 200, {"success": True}),
    ("POST", "/zones/example.org/records", {"name": "www", "type": "A", "value": "192.0.2.1"}, 201, {"success": True}),
    ("POST", "/zones/example.org/records", {"name": "www", "type": "A", "value": "192.0.2.2"}, 201, {}),
    ("POST", "/zones/example.org/records", {"name": "www", "type": "CNAME", "value": "x.org."}, 409, {}),
    ("POST", "/zones/example.org/records", {"name": "www", "type": "A", "value": "x"}, 400, {}),
    ("POST", "/zones/example.org/records", {"name": "w", "type": "CNAME", "value": "x"}, 400, {}),
    ("POST", "/zones/example.org/records", {"name": "w", "type": "LOC", "value": "x"}, 400, {}),
    (
        "PUT",
        "/zones/example.org/records",
        {"name": "www", "type": "A", "currentValue": "192.0.2.1", "newValue": "192.0.2.3", "ttl": 5},
        200,
        {"success": True},
    ),
    ("DELETE", "/zones/example.org/records", {"name": "www", "type": "A", "value": "192.0.2.2"}, 200, {}),
    (
        "POST",
        "/zones/example.org/records",
        {"name": "@", "type": "MX", "value": "mail.example.net.", "priority": 5},
        201,
        {},
    ),
    ("POST", "/zones/second.org/records", {"name": "www", "type": "A", "value": "192.0.2.1"}, 400, {}),
    ("DELETE", "/zones/second.org", None, 200, {"success": True}),
    ("GET", "/zones", None, 200, {"zones": ["0/25.2.0.192.in-addr.arpa", "example.org"], "count": 2}),
]


async def test_every_request_has_the_answer_that_callers_of_the_original_expect_or_a_better_one(car):
    for number, (method, path, body, status, said) in enumerate(TABLE):
        found, answer = await car.ask(method, path, body)
        assert found == status, f"{number}: {method} {path}: {found} {answer}\n{car.log[-1500:]}"
        assert said.items() <= answer.items(), f"{number}: {method} {path}: {answer}"
        if status >= 400:
            assert set(answer) == {"error", "details"}
    named = car.named
    answer = await ask(named, "www.example.org", "A")
    assert [(rrset.ttl, [row.to_text() for row in rrset]) for rrset in answer.answer] == [(5, ["192.0.2.3"])]
    assert await values(named, "example.org", "MX") == {"5 mail.example.net."}
    assert {path.name for path in named.zones.glob("*second*")} == set()
    _, text = await car.ask("GET", "/metrics")
    assert 'bindcar_zone_operations_total{operation="create",result="success"} 3.0' in text


async def test_a_live_zone_is_never_written_over_and_a_failed_one_leaves_nothing(car):
    named = car.named
    assert (await car.ask("POST", "/zones", zone()))[0] == 201
    await rogue(named, "example.org", ("add", "www", 60, "A", "192.0.2.9"))
    files = {path.name: path.read_bytes() for path in named.zones.glob("example.org.zone*")}
    assert "example.org.zone.jnl" in files
    results = await asyncio.gather(*(car.ask("POST", "/zones", zone()) for _ in range(5)))
    assert {status for status, _ in results} == {409}
    assert {path.name: path.read_bytes() for path in named.zones.glob("example.org.zone*")} == files
    await named.kill()
    await named.start()
    assert await values(named, "www.example.org", "A") == {"192.0.2.9"}  # the original: the journal is gone
    both = [{"name": "w", "type": "CNAME", "value": "x."}, {"name": "w", "type": "A", "value": "192.0.2.1"}]
    assert (await car.ask("POST", "/zones", zone("bad.org", records=both)))[0] == 400
    assert not list(named.zones.glob("bad*"))
    results = await asyncio.gather(*(car.ask("POST", "/zones", zone("race.org")) for _ in range(5)))
    assert sorted(status for status, _ in results) == [201, 409, 409, 409, 409]


async def test_who_shows_no_token_or_a_wrong_one_gets_nothing_and_the_right_one_may_change(car):
    for token in ("", "wrong", car.token[:-1], car.token + "x"):
        status, answer = await car.ask("GET", "/zones", token=token)
        assert (status, set(answer)) == (401, {"error", "details"})
    for path in ("/health", "/ready", "/metrics"):
        assert (await car.ask("GET", path, token=""))[0] == 200
    (car.folder / "token").write_text("another")

    async def changed():
        return (await car.ask("GET", "/zones", token="another"))[0] == 200

    await eventually(changed, "the new token opens", timeout=60)
    assert (await car.ask("GET", "/zones"))[0] == 401
    assert car.token not in car.log
    assert "another" not in car.log


async def test_tokens_of_the_cluster_open_to_those_who_are_named(embedded, client, namespace):
    for name in ("operator", "stranger"):
        await client.create(ServiceAccount(metadata=ObjectMeta(name=name, namespace=namespace)))
    issued = [await client.create_token(name, namespace=namespace) for name in ("operator", "stranger")]
    operator, stranger = (one.token for one in issued)
    clock = VirtualClock()
    guests = AllowedUsers(accounts=frozenset({f"system:serviceaccount:{namespace}:operator"}))
    access = Access(clock=clock, client=client, allowed=guests, token=lambda: "static")
    with RequestLog(client) as log:
        for _ in range(3):
            await access.check(f"Bearer {operator}")
            await access.check("Bearer static")
            for header, status in ((f"Bearer {stranger}", 403), ("Bearer nobody's", 401), ("", 401), ("Basic x", 401)):
                with pytest.raises(Problem) as told:
                    await access.check(header)
                assert told.value.status == status
    assert len(log.writes) == 3  # one review for each token that is not ours
    await clock.advance(61)
    with RequestLog(client) as log:
        await access.check(f"Bearer {operator}")
    assert len(log.writes) == 1  # what the cluster says may change
    other = Access(clock=clock, client=client, allowed=AllowedUsers(audiences=("bindcar",)))
    with pytest.raises(Problem, match="another audience"):
        await other.check(f"Bearer {operator}")
    empty = Access(clock=clock, token=str)
    with pytest.raises(Problem):  # an empty file is a mistake, not a password
        await empty.check("Bearer x")


async def test_floods_large_bodies_and_other_media_are_refused_before_they_cost_anything(named):
    options = ("--rate", "0.1", "--burst", "4", "--max-body", "1")
    async with named("ns1") as ns1, SidecarProcess(ns1, *options) as car:
        url, headers = f"http://127.0.0.1:{car.port}/api/v1/zones", {"Authorization": f"Bearer {car.token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.post(
                url, data=BytesIO(b"x" * 2**21), headers={"Content-Type": "application/json"}
            ) as answer:
                assert answer.status == 413
            async with session.post(url, data=b"{}", headers={"Content-Type": "text/plain"}) as answer:
                assert answer.status == 415
            async with session.post(url, data=b"[" * 5000, headers={"Content-Type": "application/json"}) as answer:
                assert answer.status == 400
        assert (await car.ask("GET", "/zones"))[0] == 200
        assert (await car.ask("GET", "/zones"))[0] == 429
        assert (await car.ask("GET", "/health"))[0] == 200  # a probe is no flood


async def test_wrong_tokens_use_up_nothing_that_the_operator_needs(named):
    async with named("ns1") as ns1, SidecarProcess(ns1, "--rate", "0.1", "--burst", "4") as car:
        statuses = [(await car.ask("GET", "/zones", token=f"wrong-{number}"))[0] for number in range(40)]
        assert statuses[0] == 401
        assert set(statuses) <= {401, 429}
        assert [(await car.ask("GET", "/zones"))[0] for _ in range(5)] == [200] * 4 + [429]


async def test_readiness_is_that_of_named_and_a_named_that_is_away_is_reported(car):
    await car.named.kill()
    status, answer = await car.ask("GET", "/ready")
    assert (status, answer["ready"]) == (503, False)
    assert answer["checks"] == ["zone_dir: ok", "rndc: error", "dns: error"]
    for method, path, body in (("GET", "/zones/example.org", None), ("POST", "/zones", zone())):
        status, answer = await car.ask(method, path, body)
        assert (status, answer) == (
            503,
            {"error": "named is not available", "details": None},
        )  # and nothing of the inside
    assert not list(car.named.zones.glob("*.zone"))
    await car.named.start()

    async def ready():
        return (await car.ask("GET", "/ready"))[0] == 200

    await eventually(ready, "it is ready again", timeout=120)


async def test_zones_that_others_added_are_listed_where_named_keeps_statistics(named):
    from tests.support.programs.loopback_server import PortClaim

    claim = PortClaim()
    statistics = f"statistics-channels {{ inet 127.0.0.1 port {claim.number} allow {{ any; }}; }};"
    own = 'zone "static.org" { type primary; file "static"; };'
    try:
        server = named("ns1", extra=f"{statistics} {own}")
        server.zones.mkdir(parents=True)
        (server.zones / "static").write_text("$TTL 1\n@ SOA ns.example.net. h 1 1 1 1 1\n@ NS ns.example.net.\n")
        async with server as one, SidecarProcess(one, "--statistics", f"127.0.0.1:{claim.number}") as car:
            assert await car.ask("GET", "/zones") == (200, {"zones": ["static.org"], "count": 1})
            assert (await car.ask("GET", "/zones/static.org"))[1]["zoneType"] == "primary"
            for method, body in (("DELETE", None), ("PATCH", {"alsoNotify": []})):  # not ours to change
                assert (await car.ask(method, "/zones/static.org", body))[0] == 409
            assert await serial(one, "static.org") == 1
            (one.zones / "native").write_bytes((one.zones / "static").read_bytes())
            await one.control('addzone native.org { type primary; file "native"; };')
            assert (await car.ask("GET", "/zones/native.org"))[1]["steersman"]["added"] is False
            assert (await car.ask("DELETE", "/zones/native.org"))[0] == 409
            assert await serial(one, "native.org") == 1
    finally:
        claim.release()


async def test_the_driver_makes_changes_and_removes_zones_and_sees_the_real_outcome(car):
    async with driving(car) as driver:
        await driver.ready()
        assert await driver.configuration(ORG) is None
        await driver.remove(ORG)  # b31: what is not there is removed
        config = primary_config(driver.server, ORG, [])
        await driver.create_primary(ORG, config, START, DATA, 60)
        assert same_config(await driver.configuration(ORG), config)
        assert (await driver.read(ORG, frozenset()))[1] == DATA
        with pytest.raises(SidecarError, match="409"):
            await driver.create_primary(ORG, config, START, DATA, 60)
        www = RRsetChange((owner_of("www", ORG), A), None, RRset(60, frozenset({bytes(4)})))
        later = msgspec.structs.replace(START, serial=8, refresh=7200)
        await driver.write(ORG, START.value(), later.value(), 60, [www])
        with pytest.raises(Stale):
            await driver.write(ORG, START.value(), later.value(), 60, [www])
        assert await driver.soa(ORG) == later.value()
        wider = msgspec.structs.replace(driver.server, allow_transfer=("127.0.0.0/8",))
        await driver.configure(ORG, primary_config(wider, ORG, [driver.server]))
        assert same_config(await driver.configuration(ORG), primary_config(wider, ORG, [driver.server]))
        assert await values(car.named, "www.example.org", "A") == {"0.0.0.0"}  # an address like any other
        await car.kill()
        with pytest.raises(SidecarError) as told:
            await driver.ready()
        assert told.value.reason == "BindcarUnreachable"
        await driver.write(
            ORG, later.value(), None, 60, [msgspec.structs.replace(www, key=(b"\1b", A))]
        )  # not its business
        await car.start()
        await car.named.kill()
        with pytest.raises(SidecarError) as told:
            await driver.configuration(ORG)
        assert told.value.reason == "BindcarInternalError"
        await car.named.start()

        async def back():
            try:
                return await driver.configuration(ORG) is not None
            except DriverError:
                return False

        await eventually(back, "named is back, and has its zone", timeout=120)
        await driver.remove(ORG)
        assert await driver.configuration(ORG) is None
        await driver.create_primary(ORG, config, START, DATA, 60)  # t7: nothing is left of what was there
        assert await values(car.named, "www.example.org", "A") == set()
    async with driving(car, token="wrong") as driver:
        with pytest.raises(SidecarError) as told:
            await driver.ready()
        assert told.value.reason == "BindcarAuthFailed"


async def test_a_secondary_has_a_file_and_follows_primaries_that_are_changed_under_it(car, named):
    async with (
        named("ns2", secret=car.named.secret) as two,
        SidecarProcess(two) as second,
        driving(car) as primary,
        driving(second, "secondary") as driver,
    ):
        config = primary_config(primary.server, ORG, [driver.server])
        await primary.create_primary(ORG, config, START, DATA, 60)
        nobody = msgspec.structs.replace(primary.server, dns_port=1)
        await driver.create_secondary(ORG, secondary_config(driver.server, ORG, [nobody]))
        right = secondary_config(driver.server, ORG, [primary.server])
        await driver.configure(ORG, right)
        assert same_config(await driver.configuration(ORG), right)
        await driver.refresh(ORG)

        async def follows():
            return await serial(two, "example.org") == 7

        await eventually(follows, "it has the zone", timeout=120)
        await eventually((two.zones / "example.org.zone").exists, "named has written the file", timeout=60)
        await two.kill()
        await car.named.kill()  # nobody to ask: it answers from its file
        await two.start()
        assert await serial(two, "example.org") == 7
        await car.named.start()
        await driver.remove(ORG)
        assert not list(two.zones.glob("example.org*"))


async def test_a_key_that_named_has_not_read_yet_is_no_reason_to_fail(car):
    assert (await car.ask("POST", "/zones", zone()))[0] == 201
    named = car.named
    named.secret = "bmV3"
    (named.folder / "named.conf").write_text(named.configuration())
    car.write_key()  # the file is new; named has not looked

    async def works():
        return (await car.ask("GET", "/zones/example.org"))[0] == 200

    await eventually(works, "the old key still opens named", timeout=60)

    async def renewed():
        assert (await car.ask("GET", "/ready"))[0] == 200
        key = Key(named.key_name, "hmac-sha256", base64.b64decode(named.secret))
        channel = Rndc(named.address, named.rndc_port, key, clock=SYSTEM_CLOCK, timeout=PATIENCE)
        try:
            await channel.command("null")
        except DriverError:
            return False
        finally:
            channel.close()
        return True

    await eventually(renewed, "probes see to it that named reads the new one", timeout=60)
    await car.kill()
    await car.start()  # now it knows only the new one
    await eventually(works, "named answers to it", timeout=60)
    assert (await car.ask("POST", "/server/reconfig"))[1]["applied"] is True
    assert (await car.ask("POST", "/zones/example.org/records", {"name": "a", "type": "A", "value": "192.0.2.1"}))[
        0
    ] == 201


async def test_a_new_key_of_transfers_is_known_only_when_named_has_read_it(car):
    made = server_of(car)
    lost = Key("transfers", "hmac-sha256", b"s" * 32)
    server = structs.replace(made, keys=structs.replace(made.keys, transfer=lost))
    driver = BindcarDriver(server, clock=SYSTEM_CLOCK, timeout=PATIENCE, pause=0.01)
    try:
        assert not await driver.renew()  # its file has not come yet
        path = car.named.folder / "named.conf"
        secret = base64.b64encode(lost.secret).decode()
        path.write_text(f'{path.read_text()}key "transfers" {{ algorithm hmac-sha256; secret "{secret}"; }};\n')
        assert await driver.renew()
    finally:
        driver.close()


# -- the operator -----------------------------------------------------------------------------------------------------


class BehindSidecars(Site):
    """Servers, and their sidecars."""

    cars: list


@pytest.fixture(params=[SidecarProcess, OriginalSidecar])
async def site(request, embedded, client, dns_kinds, namespace, named):
    """A primary and a secondary, each behind a sidecar, as instances with the driver bindcar."""
    kind = request.param
    if kind is OriginalSidecar and BINDCAR.built() is None:
        unavailable("bindcar is not built: `make programs`")
    async with (
        named("ns1") as ns1,
        named("ns2", secret=ns1.secret) as ns2,
        kind(ns1) as first,
        kind(ns2) as second,
    ):
        made = BehindSidecars(client, namespace, [ns1], [ns2])
        made.cars = [first, second]
        await put_behind(made, "primary", first)
        await put_behind(made, "secondary", second)
        yield made


async def test_the_operator_publishes_through_sidecars_and_survives_their_restarts(site):
    one, two = site.servers
    async with site.running(drift_period=SOON, not_ready=SOON, server_pause=SOON):
        await site.zone("example.org")
        await site.record("A", "www", ipv4Addresses=["192.0.2.1"])
        await site.record("MX", "mail", owner="@", priority=10, mailServer="mail.example.net.")
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.1"}), timeout=180)
        await eventually(lambda: site.answers("example.org", "MX", {"10 mail.example.net."}), timeout=180)
        for kind, name in (("Bind9Instance", "primary"), ("Bind9Instance", "secondary"), ("DNSZone", "example.org")):
            await eventually(lambda kind=kind, name=name: site.is_ready(kind, name), timeout=180)
        for car in site.cars:
            await car.kill()
        await eventually(lambda: site.is_ready("DNSZone", "example.org", "PrimaryFailed"), timeout=180)
        await site.record("A", "www", ipv4Addresses=["192.0.2.2"])  # records need no sidecar
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.2"}), timeout=180)
        await site.zone("later.org")
        await eventually(lambda: site.is_ready("DNSZone", "later.org", "PrimaryFailed"), timeout=180)
        assert "sidecar does not answer" in (await site.ready("DNSZone", "later.org"))[2]
        for car in site.cars:
            await car.start()
        await eventually(lambda: site.is_ready("DNSZone", "later.org"), timeout=300)
        await site.zone("example.org", soa={"refresh": 7200}, nameServers=_two_servers())
        await eventually(
            lambda: site.answers("example.org", "NS", {"ns1.example.org.", "ns2.example.org."}), timeout=180
        )
        before = await serial(one, "example.org")
        await one.kill()
        one.wipe()  # its disk is lost, and what it served with it
        await one.start()
        await eventually(lambda: site.answers("www.example.org", "A", {"192.0.2.2"}), timeout=300)
        assert await serial(one, "example.org") > before
        await eventually(lambda: site.is_ready("DNSZone", "example.org"), timeout=300)
        await site.delete("DNSZone", "later.org")
        await eventually(lambda: site.gone("DNSZone", "later.org"), timeout=180)
        assert [await values(server, "later.org", "SOA") for server in (one, two)] == [None, None]
        assert not list(one.zones.glob("later.org*"))


def _two_servers():
    return [{"hostname": f"ns{n}.example.org.", "ipv4Address": f"192.0.2.5{n}"} for n in (1, 2)]
