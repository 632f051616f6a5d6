"""Taking a zone off servers in memory: what goes, what stays, and when a deleted zone may be released."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from steersman.errors import DriverError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.api.servers import Bind9Instance
from steersman.operators.dns.api.zone import DNSZone
from steersman.operators.dns.publish.removal import ZoneRemover, remove, without
from steersman.operators.dns.publish.zone_state import ZoneStates
from steersman.operators.dns.zone.ptr import PtrIndex
from steersman.operators.dns.zone.rdata import MX, NS, RRset
from tests.support.dns.memory_servers import ORG, MemorySite, key_of, rrset_of

OURS, THEIRS = "www A 192.0.2.10", "legacy A 192.0.2.77"


def data(*records: str) -> dict[Any, frozenset[bytes]]:
    return {key_of(record): rrset_of(record).values for record in records}


async def removed(site: MemorySite, *records: str, **options: Any) -> dict[str, str]:
    servers = [driver.server for driver in (*site.primaries, *site.secondaries)]
    return await remove(ORG, servers, site.driver_of, data=lambda: data(*records), **options)


@pytest.mark.parametrize(
    ("added", "options", "stays"),
    [
        (True, {}, False),
        (False, {}, True),
        (False, {"adopted": True}, False),
        (None, {}, True),  # the server cannot say who added it…
        (None, {"is_known": True}, False),  # …and the cluster can
        (False, {"is_known": True}, True),
    ],
)
async def test_a_zone_goes_where_we_added_or_adopted_it_and_stays_where_others_did(added, options, stays):
    site = MemorySite()
    [primary] = site.primaries
    primary.has(OURS, THEIRS, added=added)
    assert await removed(site, OURS, **options) == {}
    assert primary.data() == ({THEIRS} if stays else set())
    assert (ORG in primary.zones) is stays


async def test_only_our_values_are_removed_from_a_zone_that_stays_and_its_serial_moves():
    site = MemorySite()
    [primary] = site.primaries
    primary.has(THEIRS, serial=7)
    shared = rrset_of(OURS, "www A 192.0.2.11")
    primary.zones[ORG].rrsets[key_of(OURS)] = shared
    assert await removed(site, OURS) == {}
    assert primary.data() == {THEIRS, "www A 192.0.2.11"}
    assert primary.serial() == 8


async def test_a_zone_of_the_server_s_own_configuration_keeps_everything_but_our_data():
    site = MemorySite()
    [primary] = site.primaries
    primary.has(OURS, THEIRS, added=True, static=True)
    assert await removed(site, OURS) == {}
    assert primary.data() == {THEIRS}


async def test_a_server_that_takes_records_only_keeps_the_zone_regardless_of_who_added_it():
    site = MemorySite(records_only=True)
    [primary] = site.primaries
    primary.has(OURS, THEIRS, added=True)
    assert await removed(site, OURS) == {}
    assert primary.data() == {THEIRS}


def test_the_last_name_server_of_a_zone_that_stays_is_never_removed():
    servers = RRset(60, frozenset({b"\2ns\0"}))
    assert without({(b"", NS): servers}, {(b"", NS): servers.values}) == []
    both = replace(servers, values=servers.values | {b"\3ns2\0"})
    [change] = without({(b"", NS): both}, {(b"", NS): servers.values})
    assert change.want == replace(servers, values=frozenset({b"\3ns2\0"}))
    [change] = without({(b"\3sub", NS): servers}, {(b"\3sub", NS): servers.values})
    assert change.want is None  # a delegation is data like any other


async def test_a_removal_that_met_a_change_is_made_again():
    site = MemorySite()
    [primary] = site.primaries
    primary.has(OURS, THEIRS)
    primary.before_write = [lambda: primary.put("new A 192.0.2.5")]
    assert await removed(site, OURS) == {}
    assert primary.data() == {THEIRS, "new A 192.0.2.5"}


async def test_what_a_server_refuses_to_remove_is_named_and_everything_else_goes():
    site = MemorySite()
    [primary] = site.primaries
    mail = "@ MX 10 mail.example.org."
    primary.has(OURS, mail, THEIRS)
    primary.refuses = lambda change: change.key[1] == MX
    failed = await removed(site, OURS, mail)
    assert failed == {"primary0/0": "the server refuses to remove 1 RRsets: example.org MX"}
    assert primary.data() == {mail, THEIRS}


async def test_a_server_that_does_not_answer_is_reported_and_keeps_no_other_waiting():
    site = MemorySite(primaries=2)
    away, there = site.primaries
    for primary in site.primaries:
        primary.has(OURS, added=True)
    away.failure = DriverError("no answer", server=away.server.title)
    assert await removed(site, OURS) == {"primary0/0": "no answer"}
    assert there.zones == {}


async def test_a_secondary_with_a_catalog_is_reported_until_it_no_longer_serves_the_zone():
    site = MemorySite(primaries=0)
    site.primaries = []
    catalog = MemorySite(secondaries=1, catalog="catalog.example.org").secondaries[0]
    catalog.has(OURS)
    failed = await remove(ORG, [catalog.server], lambda _server: catalog)
    assert failed == {"secondary0/0": "still serves the zone, which is no longer listed in catalog.example.org"}
    catalog.zones.clear()
    assert await remove(ORG, [catalog.server], lambda _server: catalog) == {}


# -- zones that were deleted while a server was away -------------------------------------------------------------------

API = {"apiVersion": "bindy.firestoned.io/v1beta1"}


def zone() -> DNSZone:
    soa = {"primaryNs": "ns.example.net.", "adminEmail": "h.example.org.", "refresh": 1, "retry": 1, "expire": 1}
    spec = {"zoneName": "example.org", "soaRecord": {**soa, "negativeTtl": 1}}
    return msgspec.convert({**API, "metadata": {"name": "org", "namespace": "shop"}, "spec": spec}, DNSZone)


def instance(**status: Any) -> Bind9Instance:
    body = {**API, "metadata": {"name": "i", "namespace": "shop"}, "spec": {"clusterRef": "c", "role": "primary"}}
    return msgspec.convert({**body, "status": status}, Bind9Instance)


class Instances(dict[NamespacedName, Bind9Instance]):
    def __getitem__(self, _kind: Any) -> Any:
        return self


def remover(woken: list[NamespacedName]) -> ZoneRemover:
    channel: Any = SimpleNamespace(send=woken.append)
    ages: Any = SimpleNamespace(since=lambda _stamp: 0.0)
    return ZoneRemover(ZoneStates(), PtrIndex(), lambda _server: None, channel, ages=ages, grace_seconds=60.0)


def test_a_deleted_zone_is_released_only_when_its_unreachable_instance_lists_it_as_left_behind():
    woken: list[NamespacedName] = []
    hand_over = remover(woken).hand_over
    unaware, aware = instance(), instance(leftBehind=["example.org"])
    assert not hand_over(zone(), [unaware], Instances({unaware.ref: unaware}))
    assert woken == [unaware.ref]
    assert hand_over(zone(), [aware], Instances({aware.ref: aware}))
    assert hand_over(zone(), [aware], Instances())  # it is gone, and its servers with it
    assert woken == [unaware.ref]
