"""YAML that is written: the same bytes for the same value, and the same value when it is read again."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from steersman.operators.toolset.render.yaml import dump, load

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
KEYS = st.text(min_size=1)
VALUES = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


def test_the_text_is_in_block_style_in_the_given_order_and_quoted_unless_it_is_a_plain_scalar():
    shared = {"url": "http://a.example:9090"}
    value = {
        "toolsets": {
            "prometheus/metrics": {"enabled": True, "config": {"instances": [{"name": "b", **shared}, shared]}}
        },
        "again": shared,
        "words": ["yes", "null", "12", "", "a: b", "plain", "long " * 60],
        "empty": [{}, []],
        "none": None,
    }
    assert dump(value) == (
        "toolsets:\n"
        "  prometheus/metrics:\n"
        "    enabled: true\n"
        "    config:\n"
        "      instances:\n"
        "      - name: b\n"
        '        url: "http://a.example:9090"\n'
        '      - url: "http://a.example:9090"\n'
        "again:\n"
        '  url: "http://a.example:9090"\n'
        "words:\n"
        '- "yes"\n- "null"\n- "12"\n- ""\n- "a: b"\n- plain\n'
        f'- "{"long " * 60}"\n'
        "empty:\n- {}\n- []\n"
        "none: null\n"
    )
    assert dump({}) == "{}\n"


@given(value=VALUES)
@settings(deadline=None, max_examples=2 * settings().max_examples)
def test_what_is_written_is_read_as_the_same_value(value):
    assert load(dump(value)) == value
