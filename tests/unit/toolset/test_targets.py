"""What a ToolsetConfig changes, field by field; and whether a candidate takes part."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from steersman.kube.resources import ObjectRef
from steersman.operators.toolset.detection import detect
from steersman.operators.toolset.health import Book, Observed, Outcome, ProbeResult, State, admit
from steersman.operators.toolset.objects import ToolsetConfig
from steersman.operators.toolset.probing import next_probe
from steersman.operators.toolset.targets import find_targets
from steersman.operators.toolset.types import ToolsetSection
from steersman.testing.toolsetting import look, service

FILE = ToolsetSection().settings()


def config(name="c", namespace="n", created="2026-01-01T00:00:00Z", **spec):
    meta = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return msgspec.convert({"metadata": meta, "spec": spec}, ToolsetConfig)


def overlaid(**spec):
    found = find_targets(FILE, [config(**spec)])
    return found.settings[ObjectRef("kubernaut-toolset-config", "n")]


def test_every_field_of_a_toolsetconfig_has_an_effect():
    assert overlaid(discoveryInterval="10m").discovery_interval == 600
    assert overlaid(healthCheck={"enabled": False}).health.enabled is False
    assert overlaid(healthCheck={"timeout": "9s"}).health.timeout == 9
    assert overlaid(serviceTypes={"loki": {"enabled": False}}).types["loki"].enabled is False
    assert overlaid(serviceTypes={"loki": {"labels": {"a": "b"}}}).types["loki"].labels == "a=b"
    assert overlaid(serviceTypes={"loki": {"annotations": {"a/b": "c"}}}).types["loki"].annotations == {"a/b": "c"}
    assert overlaid(configMap={"preserveOverrides": False}).preserve_overrides is False
    named = find_targets(FILE, [config(configMap={"name": "other"})])
    assert ObjectRef("other", "n") in named.settings
    trusting = replace(FILE, trusted_namespaces=frozenset({"n"}))
    chosen = find_targets(trusting, [config(namespaces=["a"])])
    assert chosen.settings[ObjectRef(FILE.name, "n")].namespaces == frozenset({"a"})
    assert ObjectRef("o", "m") in find_targets(trusting, [config(configMap={"name": "o", "namespace": "m"})]).settings


def test_the_file_stays_beside_them_and_gives_way_where_both_name_the_same():
    same = config(namespace="kubernaut-system", discoveryInterval="10m")
    found = find_targets(FILE, [same])
    assert [one.discovery_interval for one in found.settings.values()] == [600]
    assert len(find_targets(FILE, [config()]).settings) == 2


def test_a_toolsetconfig_cannot_widen_what_the_file_allows():
    narrow = replace(FILE, namespaces=frozenset({"a", "b"}), trusted_namespaces=frozenset({"n"}))
    found = find_targets(narrow, [config(namespaces=["b", "c"])])
    assert found.settings[ObjectRef(FILE.name, "n")].namespaces == frozenset({"b"})


@pytest.mark.parametrize("asked", [None, [], ["*"], ["n"]])
def test_a_toolsetconfig_of_an_untrusted_namespace_sees_the_services_of_its_own_only(asked):
    spec = {} if asked is None else {"namespaces": asked}
    assert overlaid(**spec).namespaces == frozenset({"n"})
    trusting = replace(FILE, trusted_namespaces=frozenset({"n"}))
    everywhere = None if asked != ["n"] else frozenset({"n"})
    assert find_targets(trusting, [config(**spec)]).settings[ObjectRef(FILE.name, "n")].namespaces == everywhere
    beside = config(namespace=FILE.namespace)  # where all of it can be read anyway
    assert find_targets(FILE, [beside]).settings[ObjectRef(FILE.name, FILE.namespace)].namespaces is None


def test_a_toolsetconfig_of_an_untrusted_namespace_that_asks_for_another_is_refused():
    (claim,) = find_targets(FILE, [config(namespaces=["n", "other"])]).claims
    assert claim.reason == "UntrustedNamespace"
    assert "namespace other" in claim.refusal


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "c" * 237, "configMap": {"name": ""}},
        {"discoveryInterval": "5s"},
        {"discoveryInterval": "2h"},
        {"discoveryInterval": "x"},
        {"healthCheck": {"timeout": "0s"}},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_with_its_field(spec):
    (claim,) = find_targets(replace(FILE, name=""), [config(**spec)]).claims
    assert claim.reason == "InvalidSpec"
    assert claim.refusal.startswith("spec.")


# -- hysteresis --------------------------------------------------------------------------------------------------------

SURE: Any = detect(look(service("x", labels={"app": "prometheus"}, ports=[9090])), FILE).candidate
GUESS = detect(look(service("my-prometheus", ports=[9090])), FILE).candidate
OK, BAD = ProbeResult(outcome=Outcome.OK), ProbeResult(outcome=Outcome.TIMEOUT)


def seen(*results):
    book, page = Book(), None
    for result in results:
        page = book.probed("k", "q", result, now=1.0)
    return page


@pytest.mark.parametrize(
    ("results", "incumbent", "included"),
    [
        ([], False, False),  # nobody asked yet: not added…
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
    assert admit(SURE, seen(*results), FILE, incumbent=incumbent).included is included


def test_a_guess_needs_its_identity_unless_detection_is_lenient_or_probes_are_off():
    unknown = seen(ProbeResult(outcome=Outcome.NOT_IDENTIFIED))
    assert not admit(GUESS, unknown, FILE, incumbent=False).included
    unprobed = replace(FILE, health=replace(FILE.health, enabled=False))
    assert admit(GUESS, None, unprobed, incumbent=True).state is State.NOT_IDENTIFIED
    assert admit(GUESS, None, replace(unprobed, strict=False), incumbent=False).included
    assert admit(SURE, None, unprobed, incumbent=False).included


def test_a_service_that_asks_for_credentials_takes_part_only_when_there_are_some():
    asked = seen(ProbeResult(outcome=Outcome.AUTH_REQUIRED))
    assert not admit(SURE, asked, FILE, incumbent=True).included
    assert admit(replace(SURE, auth_env="TOKEN"), asked, FILE, incumbent=False).included


def test_without_ready_endpoints_for_a_minute_a_service_goes_and_comes_back_only_after_an_answer():
    book = Book()
    book.probed("k", "q", OK, now=1.0)

    def count(ready, tick):
        page = book.counted("k", "q", ready, tick=tick, now=1.0, limit=60.0)
        return admit(SURE, page, FILE, incumbent=True)

    assert count(0, 100.0).included
    assert count(0, 159.0).included
    assert not count(0, 160.0).included
    assert (
        admit(SURE, book.counted("k", "q", 1, tick=161.0, now=1.0, limit=60.0), FILE, incumbent=False).state
        is State.UNKNOWN
    )
    assert count(None, 1000.0).state is State.UNKNOWN


def test_another_question_makes_old_answers_worthless():
    book = Book()
    book.probed("k", "q", OK, now=1.0)
    assert book.counted("k", "other", 1, tick=1.0, now=1.0, limit=60.0).result is None


def test_probes_come_at_the_interval_with_jitter_and_a_guess_that_never_fits_is_asked_less_and_less():
    well = Observed(result=OK, included=True)
    assert [next_probe(well, FILE, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx([27.0, 30.0, 33.0])
    waits = [next_probe(Observed(result=BAD, failures=count), FILE, 0.5) for count in (1, 3, 4, 5, 20)]
    assert waits == pytest.approx([30, 30, 60, 120, 1200])
