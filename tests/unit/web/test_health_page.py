"""The Health view: watches with the time of their last event, and unknown ones as unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from steersman.web.markup import Element
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
