"""Name servers behind the guard: a dry run, and a process that may not act, change nothing on a real named."""

from __future__ import annotations

import base64
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.api.records import ARecord
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.bind.rndc_driver import NativeDriver
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.zone_statements import primary_config, secondary_config
from steersman.operators.dns.wire.client import Withheld
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import NS, A, RRset, Soa
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NotLeading, WriteGuard
from steersman.testing import eventually
from tests.support.dns.zones import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ORG, NET = name_of("example.org"), name_of("example.net")
START = Soa(name_of("ns1.example.net"), name_of("h.example.org"), 7, 3600, 600, 86400, 60)
DATA = {(b"", NS): RRset(60, frozenset({name_of("ns1.example.net")}))}
WWW = RRsetChange((owner_of("www", ORG), A), None, RRset(60, frozenset({bytes(4)})))


def pretending():
    return WriteGuard(dry_run=True)


def deposed():
    guard = WriteGuard()
    guard.fence = lambda _key: NOT_LEADER
    return guard


@contextmanager
def driving(named):
    key = Key(named.key_name, "hmac-sha256", base64.b64decode(named.secret))
    keys = Keys(key, key, key)
    server = Server(NamespacedName("i", "n"), "0", "primary", named.address, named.dns_port, named.rndc_port, keys)
    driver = NativeDriver(server, clock=SYSTEM_CLOCK, timeout=PATIENCE)
    try:
        yield driver
    finally:
        driver.close()


async def state(driver):
    """What there is to see of both zones."""
    return [(await driver.configuration(zone), await driver.soa(zone)) for zone in (ORG, NET)]


@pytest.mark.parametrize(("guard", "error"), [(pretending, Withheld), (deposed, NotLeading)])
async def test_no_change_reaches_a_server_that_the_guard_withholds(named, guard, error):
    async with named("ns1") as server:
        with driving(server) as driver:
            config = primary_config(driver.server, ORG, [])
            await driver.create_primary(ORG, config, START, DATA, 60)
            before = await state(driver)
            changes = [
                lambda: driver.create_primary(NET, primary_config(driver.server, NET, []), START, DATA, 60),
                lambda: driver.create_secondary(NET, secondary_config(driver.server, NET, [driver.server])),
                lambda: driver.configure(ORG, config),
                lambda: driver.write(ORG, START.value(), None, 60, [WWW]),
                lambda: driver.refresh(ORG),
                lambda: driver.load_keys(ORG),
                driver.reconfigure,
                lambda: driver.remove(ORG),
            ]
            with guard().acting_for(None):
                for change in changes:
                    with pytest.raises(error):
                        await change()
                assert await state(driver) == before, "reading goes on as ever"
                assert await driver.read(ORG, frozenset()) == (START.value(), DATA)
                await driver.ready()
            await driver.write(ORG, START.value(), None, 60, [WWW])
            assert (owner_of("www", ORG), A) in (await driver.read(ORG, frozenset()))[1]


async def test_an_operator_in_a_dry_run_changes_neither_servers_nor_objects(pair):
    await pair.zone("example.org")
    await pair.apply("ARecord", "www", {"name": "www", "ipv4Address": "192.0.2.1"}, labels={"zone": "example.org"})
    kinds = (DNSZone, ARecord, Bind9Instance)

    async def objects():
        found = [await pair.client.list(kind, namespace=pair.namespace) for kind in kinds]
        return {obj.metadata.uid: obj.metadata.resource_version for listing in found for obj in listing.items}

    before = await objects()
    with capture_logs() as logs:
        async with pair.running(dry_run=True):
            await eventually(lambda: any(line.get("effect", "").startswith("rndc addzone") for line in logs))
    for server in pair.servers:
        with driving(server) as driver:
            assert await driver.configuration(ORG) is None
    assert await objects() == before
