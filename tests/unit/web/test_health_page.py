"""The Health view: watches with the time of their last event, and unknown ones as unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from steersman.cache.informer import NOT_INSTALLED
from steersman.web.markup import Element, text_of
from steersman.web.model import WatchHealth
from steersman.web.pages import health


def elements(child: object, name: str) -> list[Element]:
    if isinstance(child, Element):
        return [*([child] if child.tag == name else []), *elements(child.children, name)]
    if isinstance(child, list | tuple):
        return [element for each in child for element in elements(each, name)]
    return []


def drawn(vitals: Any, at: Any, **watch: Any) -> Element:
    seen = replace(vitals, watches=[WatchHealth(name="configmaps", objects=3, synced=True, **watch)])
    cache: Any = SimpleNamespace(vitals=lambda: seen, now=lambda: at, asks_for_tokens=False, health_path="/health")
    return health.page(cache, {}, {})


def test_the_last_event_of_a_watch_is_an_absolute_time_on_hover(vitals, at):
    (_, last) = elements(drawn(vitals, at, age_seconds=90.0), "time")
    assert last.attributes["title"] == "2026-11-16 11:58:30 UTC"


def test_a_watch_of_which_nothing_is_known_has_the_colour_of_unknown(vitals, at):
    states = [span.attributes.get("class") for span in elements(drawn(vitals, at, unknown="forbidden"), "span")]
    assert "state unknown" in states


@pytest.mark.parametrize(
    ("watch", "word", "note"),
    [
        ({}, "Ready", ""),
        ({"coverage": NOT_INSTALLED}, "Off", NOT_INSTALLED),
        ({"coverage": "list forbidden, names in use are watched one by one"}, "Ready", "list forbidden"),
        ({"coverage": "1 of 3 namespaces unknown", "unseen": ["shop"]}, "Unknown", "1 of 3 namespaces"),
        ({"unknown": "list forbidden"}, "Unknown", "list forbidden"),
        ({"problem": "connection refused"}, "Failing", "connection refused"),
    ],
)
def test_a_watch_has_the_words_of_every_other_state(vitals, at, watch, word, note):
    (row,) = [row for row in elements(drawn(vitals, at, **watch), "tr") if "configmaps" in text_of(row)]
    cell = text_of(elements(row, "td")[1])
    assert f" {word}" in cell
    assert note in cell


def test_a_watch_before_its_first_list_is_progressing():
    assert WatchHealth(name="pods", objects=0, synced=False).state[0].word == "Progressing"
