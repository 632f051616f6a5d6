"""What the driver says to a sidecar and what it makes of the answers, word for word, with answers as the original gives
them (its own are in the contract tests, where a real named stands behind them)."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from steersman.errors import DriverError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.bind.breaker import ServerUnavailable
from steersman.operators.dns.bind.http_driver import BindcarDriver, SidecarError
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.zone_statements import primary_config, same_config, secondary_config
from steersman.operators.dns.wire.client import Withheld
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import MX, NS, A, RRset, Soa
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NotLeading, WriteGuard
from steersman.testing import VirtualClock

ORG = name_of("example.org")
KEY = Key("operator", "hmac-sha256", b"s")
SOA = Soa(name_of("ns1.example.org"), name_of("h.example.org"), 7, 3600, 600, 604800, 60)
DATA = {
    (b"", NS): RRset(300, frozenset({name_of("ns1.example.org")})),
    (owner_of("ns1", ORG), A): RRset(300, frozenset({bytes([192, 0, 2, 1])})),
    (b"", MX): RRset(60, frozenset({b"\0\x0a" + name_of("mail.example.net")})),
}
ZONE = "/api/v1/zones/example.org"
DONE = (200, {"success": True, "message": "done", "details": ""})
ABSENT = (404, {"error": "Zone not found: example.org", "details": None})
PRIMARY = (200, {"name": "example.org", "zoneType": "primary", "serial": 7, "filePath": "/z/example.org.zone"})
FETCHED = (200, {"success": True, "message": "ok", "details": "name: example.org\ntype: secondary\nserial: 3"})
BROKEN = (500, {"error": "RNDC command failed", "details": None})


def server_at(port, role="primary", *, address="127.0.0.1", dns_port=1, token="t0ken"):
    keys = Keys(KEY, KEY, KEY, token=token)
    return Server(NamespacedName(role, "n"), "0", role, address, dns_port, 1, keys, api_port=port)


class Heard(BindcarDriver):
    """A driver, and what was heard of it."""

    asked: list
    shown: list


@asynccontextmanager
async def original(*answers, token="t0ken", clock=None):
    """A sidecar that gives these answers, one after the other; `.asked` is what it heard."""
    heard = []
    left = list(answers)

    async def answer(request):
        body = await request.text()
        heard.append((request.method, request.path_qs, json.loads(body) if body else None))
        shown.append(request.headers.get("Authorization"))
        status, value = left.pop(0)
        return web.Response(status=status, text=value if isinstance(value, str) else json.dumps(value))

    shown = []
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = server_at(runner.addresses[0][1], token=token)
    driver = Heard(server, clock=clock or VirtualClock(), timeout=60, token=lambda: "of the operator")
    driver.asked, driver.shown = heard, shown
    try:
        yield driver
    finally:
        driver.close()
        await runner.cleanup()
    assert not left, "it expected more questions"


def others():
    return [server_at(1, "secondary", address="192.0.2.7", dns_port=5353), server_at(1, "s", address="192.0.2.8")]


async def test_a_new_primary_zone_is_sent_complete_in_the_originals_format_and_with_keys_for_ours():
    async with original((201, DONE[1])) as driver:
        config = primary_config(driver.server, ORG, others())
        with pytest.raises(DriverError):  # nobody serves it here, and what is not served was not made
            await driver.create_primary(ORG, config, SOA, DATA, 300)
    ((method, path, body),) = driver.asked
    assert (method, path) == ("POST", "/api/v1/zones")
    assert driver.shown == ["Bearer t0ken"]
    ours = body["zoneConfig"].pop("steersman")
    assert body == {
        "zoneName": "example.org",
        "zoneType": "primary",
        "updateKeyName": "operator",
        "zoneConfig": {
            "ttl": 300,
            "soa": {
                "primaryNs": "ns1.example.org.",
                "adminEmail": "h.example.org.",
                "serial": 7,
                "refresh": 3600,
                "retry": 600,
                "expire": 604800,
                "negativeTtl": 60,
            },
            "nameServers": ["ns1.example.org."],
            "nameServerIps": {},
            "records": [
                {"name": "@", "type": "MX", "value": "mail.example.net.", "ttl": 60, "priority": 10},
                {"name": "ns1", "type": "A", "value": "192.0.2.1", "ttl": 300},
            ],
            "alsoNotify": ["192.0.2.8:1", "192.0.2.7:5353"],
            "allowTransfer": ["192.0.2.8", "192.0.2.7", "127.0.0.1"],
        },
    }
    assert ours == {
        "alsoNotify": ["192.0.2.8:1 key operator", "192.0.2.7:5353 key operator"],
        "allowTransfer": ["key operator"],
        "allowUpdate": ["key operator"],
    }


async def test_a_new_secondary_zone_has_its_primaries_with_ports():
    async with original((201, DONE[1])) as driver:
        await driver.create_secondary(ORG, secondary_config(driver.server, ORG, others()))
    body = driver.asked[0][2]
    assert body["zoneType"] == "secondary"
    assert body["zoneConfig"]["primaries"] == ["192.0.2.8:1", "192.0.2.7:5353"]
    assert {"ttl", "soa", "nameServers", "nameServerIps"} <= set(body["zoneConfig"])  # the original insists on them
    assert "updateKeyName" not in body


ROWS = [
    ("a zone that is not there", [ABSENT, ABSENT], ["GET", "GET status"], None),
    ("a primary zone of the original", [PRIMARY], ["GET"], "primary"),
    ("a secondary zone, which the original does not list", [ABSENT, FETCHED], ["GET", "GET status"], "secondary"),
]


@pytest.mark.parametrize(("answers", "asked", "kind"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_whether_a_zone_is_there_is_asked_so_that_the_original_cannot_be_wrong(answers, asked, kind):
    async with original(*answers) as driver:
        found = await driver.configuration(ORG)
    assert [f"{row[0]} {row[1].removeprefix(ZONE).lstrip('/')}".strip() for row in driver.asked] == asked
    assert found is None if kind is None else found[0] == ("type", kind)


async def test_b31_nothing_that_is_absent_is_deleted_and_a_500_about_it_is_no_reason_to_wait():
    async with original(ABSENT, ABSENT) as driver:
        await driver.remove(ORG)
    assert all(row[0] == "GET" for row in driver.asked)
    async with original(PRIMARY, BROKEN, ABSENT, ABSENT) as driver:  # somebody else was faster
        await driver.remove(ORG)
    async with original(PRIMARY, ABSENT) as driver:
        await driver.remove(ORG)
    async with original(PRIMARY, BROKEN, PRIMARY) as driver:
        with pytest.raises(SidecarError, match="500"):
            await driver.remove(ORG)


async def test_a_zone_of_the_original_gets_its_settings_once_and_again_when_they_change():
    async with original(PRIMARY, DONE, PRIMARY, PRIMARY, DONE) as driver:
        near, far = (server_at(1, "a", address="192.0.2.8", dns_port=53), others()[0])
        config = primary_config(driver.server, ORG, [near])
        assert not same_config(await driver.configuration(ORG), config)
        await driver.configure(ORG, config)
        assert same_config(await driver.configuration(ORG), config)
        wider = primary_config(driver.server, ORG, [near, far])
        assert not same_config(await driver.configuration(ORG), wider)
        await driver.configure(ORG, wider)
    first, second = driver.asked[1][2], driver.asked[4][2]
    assert (first["alsoNotify"], first["allowTransfer"]) == (["192.0.2.8"], ["192.0.2.8", "127.0.0.1"])
    assert "alsoNotify" not in second  # it would take no port, and notify another server
    assert second["steersman"]["alsoNotify"] == ["192.0.2.8:53 key operator", "192.0.2.7:5353 key operator"]


async def test_other_primaries_reach_a_secondary_of_the_original_by_creating_it_again_and_ours_at_once():
    def config(driver, which):
        return secondary_config(driver.server, ORG, others()[which : which + 1])

    created = (201, DONE[1])
    async with original(created, DONE, ABSENT, FETCHED, DONE, created) as driver:
        await driver.create_secondary(ORG, config(driver, 0))
        await driver.configure(ORG, config(driver, 1))
    assert [row[0] for row in driver.asked] == ["POST", "PATCH", "GET", "GET", "DELETE", "POST"]
    async with original(created, (200, {**DONE[1], "applied": True})) as driver:
        await driver.create_secondary(ORG, config(driver, 0))
        await driver.configure(ORG, config(driver, 1))
    assert driver.asked[1][2]["primaries"] == ["192.0.2.8:1"]


async def test_a_secondary_is_notified_so_that_the_original_transfers():
    async with original(DONE) as driver:
        await driver.refresh(ORG)
    assert driver.asked == [("POST", f"{ZONE}/retransfer?ifNewer=true", None)]


async def test_the_name_of_a_zone_is_one_segment():
    async with original(PRIMARY) as driver:
        await driver.configuration(name_of("0/25.2.0.192.in-addr.arpa"))
    assert driver.asked[0][1] == "/api/v1/zones/0%2F25.2.0.192.in-addr.arpa"


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        ((401, {"error": "Invalid token"}), "BindcarAuthFailed", "bindcarTokenFile"),
        ((403, {"error": "not allowed"}), "BindcarAuthFailed", "not allowed"),
        ((400, {"error": "Invalid request: x", "details": None}), "BindcarBadRequest", "Invalid request: x"),
        ((429, "slow down"), "BindcarBadRequest", "429"),
        ((500, {"error": "RNDC command failed", "details": None}), "BindcarInternalError", "RNDC"),
        ((200, "<html>"), "BindcarInternalError", "something else than expected"),
        ((200, '{"deep": ' + "[" * 100_000), "BindcarInternalError", "something else than expected"),
        ((500, '{"deep": ' + "[" * 100_000), "BindcarInternalError", "answered 500"),
        ((302, ""), "BindcarBadRequest", "302"),
    ],
)
async def test_what_went_wrong_is_reported_with_a_reason_and_never_with_the_token(answer, reason, says):
    async with original(answer) as driver:
        with pytest.raises(SidecarError) as told:
            await driver.ready()
    assert told.value.reason == reason
    assert says in str(told.value)
    assert "t0ken" not in f"{told.value} {driver.server!r}"


async def test_without_a_token_of_its_own_a_server_gets_the_operator_s():
    async with original((200, {"status": "up"}), token="") as driver:
        await driver.ready()
    assert driver.shown == ["Bearer of the operator"]


async def test_a_sidecar_that_is_away_is_left_alone_for_a_while_and_one_that_refuses_is_not():
    clock = VirtualClock()
    async with original(*[(400, {"error": "no"})] * 7, clock=clock) as driver:
        for _ in range(7):
            with pytest.raises(SidecarError):
                await driver.ready()
    for _ in range(5):
        with pytest.raises(SidecarError) as told:  # nobody listens there any more
            await driver.ready()
        assert told.value.reason == "BindcarUnreachable"
        await clock.advance(1)  # what fails at once counts once in a second
    with pytest.raises(ServerUnavailable, match=r"does not answer.*failed 5 times in a row"):
        await driver.ready()
    await clock.advance(31)
    with pytest.raises(SidecarError):
        await driver.ready()


async def test_a_token_that_no_header_can_hold_is_the_fault_of_one_server_and_is_not_shown():
    async with original(token="t0ken\nX-Other: yes") as driver:
        with pytest.raises(SidecarError) as told:
            await driver.ready()
    assert "t0ken" not in str(told.value)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_sidecar_is_asked_but_not_asked_to_change_anything_behind_a_guard_that_withholds_it(dry_run):
    guard = WriteGuard(dry_run=dry_run)
    guard.fence = lambda _key: "" if dry_run else NOT_LEADER
    async with original(PRIMARY, PRIMARY) as driver:
        with guard.acting_for(None):
            assert await driver.configuration(ORG)
            for change in (driver.refresh, driver.remove):
                with pytest.raises(Withheld if dry_run else NotLeading):
                    await change(ORG)
    assert {method for method, _, _ in driver.asked} == {"GET"}


async def test_a_term_that_ends_while_a_sidecar_is_being_connected_to_keeps_the_change_from_it():
    guard, answers = WriteGuard(), iter(["", NOT_LEADER])
    guard.fence = lambda _key: next(answers)
    async with original(PRIMARY, PRIMARY) as driver:
        with guard.acting_for(None), pytest.raises(NotLeading):
            await driver.remove(ORG)
        assert await driver.configuration(ORG)
