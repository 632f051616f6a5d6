"""Publishing to servers in memory: what arrives, at which serial, and what a failure of one server means."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from steersman.errors import DriverError
from steersman.operators.dns.api.config import DriftPolicy
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import MX, A
from tests.support.dns.memory_servers import ORG, MemorySite, key_of

WWW, MAIL = "www A 192.0.2.10", "mail A 192.0.2.25"


async def test_a_new_zone_is_created_complete_and_then_changed_in_one_update():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    assert (await site.publish()).ok
    assert (primary.data(), primary.serial()) == ({WWW}, 1)
    site.want("www A 192.0.2.11", MAIL)
    report = await site.publish()
    assert (report.written, report.serial) == (1, 2)
    assert (primary.data(), primary.serial()) == ({"www A 192.0.2.11", MAIL}, 2)
    assert [sorted(update) for update in primary.updates] == [["mail A", "www A"]]


async def test_nothing_is_written_when_nothing_differs_also_by_the_next_process():
    site = MemorySite(primaries=2, secondaries=1)
    site.want(WWW)
    await site.publish()
    assert (await site.publish(check_all=True)).written == 0
    site.restart()
    assert (await site.publish(first=True)).written == 0
    assert [primary.serial() for primary in site.primaries] == [1, 1]


# -- serials -----------------------------------------------------------------------------------------------------------


async def test_the_serial_never_goes_back_when_the_only_primary_lost_its_zone():
    site = MemorySite(secondaries=1)
    [primary], [secondary] = site.primaries, site.secondaries
    for number in range(5):
        site.want(f"www A 192.0.2.{number}")
        await site.publish()
    secondary.transfer()
    assert secondary.serial() == primary.serial() == 5
    primary.zones.clear()
    site.restart()  # only the secondary knows how far the zone was
    await site.publish(first=True)
    assert primary.data() == {"www A 192.0.2.4"}
    assert primary.serial() > secondary.serial()


async def test_a_primary_that_is_added_gets_the_data_and_the_serial_of_the_others():
    site = MemorySite(primaries=2)
    first, second = site.primaries
    first.has(WWW, serial=7)
    site.want(WWW)
    assert (await site.publish(adopt=frozenset({first.server.id}))).ok
    assert (first.serial(), second.serial()) == (7, 7)
    assert second.data() == {WWW}


async def test_primaries_with_different_data_end_with_the_same_later_serial():
    site = MemorySite(primaries=2)
    site.want(WWW)
    await site.publish()
    first, second = site.primaries
    site.want(WWW, MAIL)
    second.failure = DriverError("no answer", server=second.server.title)
    await site.publish()
    second.failure = None
    await site.publish()
    assert [primary.data() for primary in site.primaries] == [{WWW, MAIL}, {WWW, MAIL}]
    assert first.serial() == second.serial() == 2


async def test_a_primary_that_was_written_first_joins_the_later_serial_of_another():
    site = MemorySite(primaries=2)
    site.want(WWW)
    await site.publish()
    first, second = site.primaries
    site.want(WWW, MAIL)
    second.before_write = [lambda: second.put("other A 192.0.2.66")]
    await site.publish(adopt=frozenset({second.server.id}))
    assert first.data() == second.data() == {WWW, MAIL}
    assert first.serial() == second.serial() == 3


# -- changes of others -------------------------------------------------------------------------------------------------


async def test_an_update_that_met_a_change_is_made_again_for_what_the_server_has_then():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    await site.publish()
    site.want(WWW, MAIL)
    primary.before_write = [lambda: primary.put("other A 192.0.2.66")]
    assert (await site.publish()).ok
    assert primary.data() == {WWW, MAIL}
    assert primary.serial() == 3  # the other client took 2


async def test_a_copy_that_changes_before_every_update_is_reported_and_not_tried_for_ever():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    await site.publish()
    site.want(WWW, MAIL)
    before, real = primary.attempts, primary.write

    async def write(*arguments):
        primary.before_write = [lambda: primary.put("other A 192.0.2.66")]
        await real(*arguments)

    primary.write = write
    report = await site.publish()
    assert report.errors["primary0/0"] == ("PrimaryFailed", "the zone has changed since it was read")
    assert primary.attempts - before == 4


async def test_an_update_without_an_answer_is_not_taken_for_done_nor_for_failed():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    await site.publish()
    site.want(WWW, MAIL)
    primary.write_failure = DriverError("connection lost", server=primary.server.title, retryable=True)
    assert not (await site.publish()).ok
    assert primary.data() == {WWW, MAIL}  # it was applied all the same
    primary.write_failure = None
    report = await site.publish()
    assert (report.ok, report.written, primary.serial()) == (True, 0, 2)


async def test_foreign_data_stays_in_a_zone_that_was_not_adopted_and_goes_from_one_that_was():
    site = MemorySite()
    [primary] = site.primaries
    primary.has("legacy A 192.0.2.77", serial=4)
    site.want(WWW)
    report = await site.publish()
    assert primary.data() == {"legacy A 192.0.2.77", WWW}
    assert report.foreign == {"primary0/0": ["legacy.example.org"]}
    report = await site.publish(adopt=frozenset({primary.server.id}), check_all=True)
    assert primary.data() == {WWW}
    assert report.adopted == {"primary0/0": ["legacy.example.org"]}


async def test_a_cname_of_ours_is_held_back_beside_foreign_data_and_reported():
    site = MemorySite()
    [primary] = site.primaries
    primary.has("www TXT legacy", serial=4)
    site.want("www CNAME web.example.net.", MAIL)
    assert (await site.publish()).ok
    assert primary.data() == {'www TXT "legacy"', MAIL}
    assert site.state.refusal_reason([key_of("www CNAME x.")]) == "ForeignData"


@pytest.mark.parametrize(("policy", "stays"), [(DriftPolicy.REPAIR, False), (DriftPolicy.REPORT, True)])
async def test_drift_is_repaired_or_only_reported_as_the_zone_asks(policy, stays):
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    await site.publish(drift=policy)
    primary.put("rogue A 192.0.2.66")
    report = await site.publish(drift=policy, check_all=True)
    assert report.drift == {"primary0/0": ["rogue.example.org"]}
    assert ("rogue A 192.0.2.66" in primary.data()) is stays


async def test_a_zone_of_another_type_that_others_added_is_reported_and_not_removed():
    site = MemorySite()
    [primary] = site.primaries
    primary.has("legacy A 192.0.2.77", config=(("type", "secondary"), ("file", "theirs.db")))
    site.want(WWW)
    report = await site.publish()
    assert "already has the zone as a secondary that Steersman did not add" in report.errors["primary0/0"][1]
    assert primary.data() == {"legacy A 192.0.2.77"}


async def test_a_zone_of_another_type_that_we_added_is_replaced():
    site = MemorySite()
    [primary] = site.primaries
    primary.has(config=(("type", "secondary"), ("file", "ours.db")), added=True)
    site.want(WWW)
    assert (await site.publish()).ok
    assert primary.data() == {WWW}


async def test_a_server_that_takes_records_only_never_gets_a_new_zone():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    primary.create_failure = DriverError("permission denied", server=primary.server.title)
    assert (await site.publish()).errors == {"primary0/0": ("PrimaryFailed", "permission denied")}
    primary.create_failure = None
    primary.server = replace(primary.server, records_only=True)
    report = await site.publish()
    assert "recordsOnly forbids adding it" in report.errors["primary0/0"][1]
    assert primary.zones == {}


# -- refused changes ---------------------------------------------------------------------------------------------------


async def test_one_refused_rrset_keeps_no_other_from_being_published():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    await site.publish()
    primary.refuses = lambda change: change.key[1] == MX
    site.want(WWW, MAIL, "@ MX 10 mail.example.org.")
    assert (await site.publish()).ok
    assert primary.data() == {WWW, MAIL}
    assert site.state.refusals() == {(b"", MX): ["primary0/0"]}
    attempts = primary.attempts
    await site.publish()
    assert primary.attempts == attempts  # not with every pass
    primary.refuses = lambda _change: False
    site.want(WWW, MAIL, "@ MX 10 mail.example.org.", "new A 192.0.2.3")
    await site.publish()
    assert "@ MX 10 mail.example.org." in primary.data()  # beside the next change it is tried again
    assert site.state.refusals() == {}


async def test_a_server_that_refuses_every_update_is_reported_with_the_likely_reasons():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    await site.publish()
    primary.refuses = lambda _change: True
    real = primary.write

    async def write(zone, expected, soa, ttl, changes):
        from steersman.operators.dns.bind.driver import Refused

        if not changes:
            raise Refused("REFUSED", server=primary.server.title)
        await real(zone, expected, soa, ttl, changes)

    primary.write = write
    site.want(WWW, MAIL)
    report = await site.publish()
    assert "it may be frozen (rndc thaw), or its update policy" in report.errors["primary0/0"][1]


async def test_a_new_zone_with_data_that_the_server_does_not_load_starts_with_what_it_does():
    site = MemorySite()
    [primary] = site.primaries
    primary.refuses = lambda change: change.key[1] == MX
    site.want(WWW, MAIL, "@ MX 10 mail.example.org.")
    assert (await site.publish()).ok
    assert primary.data() == {WWW, MAIL}
    assert site.state.refusals() == {(b"", MX): ["primary0/0"]}


# -- several servers ---------------------------------------------------------------------------------------------------


async def test_a_failure_of_one_server_is_reported_and_concerns_no_other():
    site = MemorySite(primaries=2, secondaries=1)
    broken, sound = site.primaries
    broken.failure = DriverError("no answer", server=broken.server.title)
    site.want(WWW)
    report = await site.publish()
    assert report.errors == {"primary0/0": ("PrimaryFailed", "no answer")}
    assert sound.data() == {WWW}
    assert ORG in site.secondaries[0].zones


async def test_a_secondary_that_stays_behind_is_asked_to_refresh_after_its_notification_had_its_chance():
    site = MemorySite(secondaries=1)
    [secondary] = site.secondaries
    site.want(WWW)
    assert (await site.publish()).behind == ["secondary0/0"]
    assert secondary.refreshes == 0
    assert (await site.publish()).behind == ["secondary0/0"]
    assert secondary.refreshes == 1
    assert (await site.publish()).behind == []
    assert secondary.data() == {WWW}


async def test_a_zone_that_others_configured_on_a_secondary_is_not_changed_without_being_adopted():
    site = MemorySite(secondaries=1)
    [secondary] = site.secondaries
    theirs = (("type", "secondary"), ("file", "theirs.db"), ("primaries", (("198.51.100.1",),)))
    secondary.has(config=theirs)
    site.want(WWW)
    report = await site.publish()
    assert "another configuration that Steersman did not write" in report.errors["secondary0/0"][1]
    assert secondary.zones[ORG].config == theirs
    assert (await site.publish(adopt=frozenset({secondary.server.id}), check_all=True)).ok
    assert secondary.zones[ORG].config != theirs


async def test_a_change_too_large_for_one_message_takes_one_serial_per_message():
    site = MemorySite()
    [primary] = site.primaries
    site.want(WWW)
    await site.publish()
    records = [f"h{number} TXT {'x' * 200}" for number in range(600)]
    site.want(WWW, *records)
    report = await site.publish()
    assert report.ok
    assert len(primary.data()) == 601
    assert len(primary.updates) > 1
    assert primary.serial() == report.serial == 1 + len(primary.updates)


def test_names_of_the_memory_site_are_those_of_the_wire():
    assert key_of("www A 192.0.2.1") == (b"\x03www", A)
    assert name_of("example.org") == ORG
