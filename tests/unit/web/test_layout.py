"""What stands around every view."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from steersman.web.markup import text_of
from steersman.web.model import Check, Leadership
from steersman.web.pages.layout import document


def page_of(vitals: Any) -> str:
    cache: Any = SimpleNamespace(vitals=lambda: vitals, asks_for_tokens=False, health_path="/health")
    return text_of(document("map", "Map", cache=cache))


@pytest.mark.parametrize(
    ("who", "word"),
    [
        (Leadership(elected=False, leading=True), "Ready"),
        (Leadership(elected=True, leading=True, leader="pod-a_1"), "Leading"),
        (Leadership(elected=True, leading=False, leader="pod-a_1", namespace="ops"), "Standby"),
    ],
)
def test_leadership_is_named_only_where_there_is_an_election(vitals, who, word):
    shown = page_of(replace(vitals, leadership=who))
    assert [known for known in ("Ready", "Leading", "Standby") if known in shown] == [word]


def test_a_process_that_is_not_ready_says_so_before_anything_else(vitals):
    assert "Not ready" in page_of(replace(vitals, checks=[Check(name="loop", problem="late")]))


def test_a_standby_leads_to_the_page_of_the_leader(vitals):
    who = Leadership(elected=True, leading=False, leader="steersman-5d8f-x2_0f3a", namespace="ops")
    shown = page_of(replace(vitals, leadership=who))
    assert "The leader is steersman-5d8f-x2," in shown
    assert "kubectl port-forward -n ops pod/steersman-5d8f-x2 8080" in shown
