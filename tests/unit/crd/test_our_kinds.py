"""The kinds of our operators explain themselves, and stay compatible with what was released."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steersman.crd import crd_manifest, incompatible_changes, undescribed
from steersman.crd.findings import fields_of
from steersman.operators import OPERATORS, load_operator

RELEASED = Path(__file__).parents[1] / "golden" / "released" / "definitions.json"
KINDS = [kind for operator in OPERATORS for kind in load_operator(operator).kinds]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.KIND.kind)
def test_every_field_has_a_description(kind):
    assert undescribed(crd_manifest(kind)) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.KIND.kind)
def test_a_description_is_one_to_four_sentences_that_end_with_a_full_stop(kind):
    schema = crd_manifest(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    texts = {path: node["description"] for path, node in fields_of(schema)}
    odd = {path: text for path, text in texts.items() if not text.endswith(".") or not 15 < len(text) < 330}
    assert odd == {}


def test_no_change_since_the_last_release_breaks_its_users():
    released = json.loads(RELEASED.read_text())
    assert len(released) == len(KINDS)
    assert incompatible_changes(released, map(crd_manifest, KINDS)) == []
