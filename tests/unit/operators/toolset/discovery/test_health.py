"""Which candidates are included: probes, endpoints and hysteresis."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.toolset.api.config import ToolsetSection
from steersman.operators.toolset.discovery.health import (
    HealthRecord,
    HealthState,
    HealthTable,
    ProbeKey,
    ProbeOutcome,
    ProbeResult,
    decide_inclusion,
)
from steersman.operators.toolset.discovery.matching import detect
from steersman.operators.toolset.discovery.probe_controller import next_probe
from tests.support.toolset.services import parsed, service

FILE = ToolsetSection().settings()
SURE: Any = detect(parsed(service("x", labels={"app": "prometheus"}, ports=[9090])), FILE).candidate
GUESS: Any = detect(parsed(service("my-prometheus", ports=[9090])), FILE).candidate
OK, BAD = ProbeResult(outcome=ProbeOutcome.OK), ProbeResult(outcome=ProbeOutcome.TIMEOUT)


KEY = ProbeKey(NamespacedName("t", "n"), NamespacedName("s", "n"))


def probed(*results):
    table, record = HealthTable(), None
    for result in results:
        record = table.record_probe(KEY, "q", result, now=1.0)
    return record


@pytest.mark.parametrize(
    ("results", "incumbent", "included"),
    [
        ([], False, False),  # not probed yet: not added…
        ([], True, True),  # …and not removed
        ([OK], False, True),  # one success adds
        ([BAD], True, True),
        ([BAD, BAD], True, True),
        ([BAD, BAD, BAD], True, False),  # three failures remove
        ([BAD, BAD, OK, BAD, BAD], True, True),  # in a row
        ([BAD], False, False),
    ],
)
def test_one_success_adds_and_three_failures_in_a_row_remove(results, incumbent, included):
    assert decide_inclusion(SURE, probed(*results), FILE, incumbent=incumbent).included is included


def test_a_guess_needs_its_identity_unless_detection_is_lenient_or_probes_are_off():
    unknown = probed(ProbeResult(outcome=ProbeOutcome.NOT_IDENTIFIED))
    assert not decide_inclusion(GUESS, unknown, FILE, incumbent=False).included
    unprobed = replace(FILE, health=replace(FILE.health, enabled=False))
    assert decide_inclusion(GUESS, None, unprobed, incumbent=True).state is HealthState.NOT_IDENTIFIED
    assert decide_inclusion(GUESS, None, replace(unprobed, strict=False), incumbent=False).included
    assert decide_inclusion(SURE, None, unprobed, incumbent=False).included


def test_a_service_that_requires_credentials_is_included_only_when_some_are_configured():
    asked = probed(ProbeResult(outcome=ProbeOutcome.AUTH_REQUIRED))
    assert not decide_inclusion(SURE, asked, FILE, incumbent=True).included
    assert decide_inclusion(replace(SURE, auth_env="TOKEN"), asked, FILE, incumbent=False).included


def test_without_ready_endpoints_for_a_minute_a_service_goes_and_comes_back_only_after_an_answer():
    table = HealthTable()
    table.record_probe(KEY, "q", OK, now=1.0)

    def count(ready, tick):
        record = table.record_endpoints(KEY, "q", ready, tick=tick, now=1.0, limit=60.0)
        return decide_inclusion(SURE, record, FILE, incumbent=True)

    assert count(0, 100.0).included
    assert count(0, 159.0).included
    assert not count(0, 160.0).included
    assert (
        decide_inclusion(
            SURE, table.record_endpoints(KEY, "q", 1, tick=161.0, now=1.0, limit=60.0), FILE, incumbent=False
        ).state
        is HealthState.UNKNOWN
    )
    assert count(None, 1000.0).state is HealthState.UNKNOWN


def test_other_urls_make_old_results_worthless():
    table = HealthTable()
    table.record_probe(KEY, "q", OK, now=1.0)
    assert table.record_endpoints(KEY, "other", 1, tick=1.0, now=1.0, limit=60.0).result is None


def test_probes_come_at_the_interval_with_jitter_and_a_guess_that_is_never_confirmed_is_probed_less_and_less():
    well = HealthRecord(result=OK, included=True)
    assert [next_probe(well, FILE, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx([27.0, 30.0, 33.0])
    waits = [next_probe(HealthRecord(result=BAD, failures=count), FILE, 0.5) for count in (1, 3, 4, 5, 20)]
    assert waits == pytest.approx([30, 30, 60, 120, 1200])


def test_the_table_keeps_the_health_of_its_candidates_and_names_those_that_were_never_probed():
    table, target = HealthTable(), NamespacedName("t", "n")
    known, fresh = ProbeKey(target, SURE.ref), ProbeKey(target, GUESS.ref)
    table.record_probe(known, "q", OK, now=1.0)
    assert table.set_candidates(target, FILE, [(SURE, True), (GUESS, False)]) == [fresh]
    assert table.get(known).included
    assert table.targets_of(SURE.ref) == [target]
    assert table.set_candidates(target, FILE, [(GUESS, False)]) == [fresh]
    assert (table.get(known), table.targets_of(SURE.ref)) == (None, [])
    table.forget(target)
    assert (table.settings(target), dict(table.candidates(target))) == (None, {})
