from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.patch.apply import merge
from steersman.apiserver.resources.schema import Schema

ITEMS = Schema.from_openapi(
    {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "by": {"type": "string"}}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    {},
)
NAMES = st.lists(st.sampled_from("abcdefg"), unique=True, max_size=6)


def merged(live: str | list[str], config: str | list[str]) -> str:
    made = merge(ITEMS, [{"name": name} for name in live], [{"name": name} for name in config])
    return "".join(item["name"] for item in made)


@pytest.mark.parametrize(
    ("live", "config", "result"),
    [
        ("abc", "", "abc"),
        ("abc", "x", "abcx"),
        ("abc", "b", "abc"),
        ("abc", "ca", "bca"),  # what both have comes in the configuration's order…
        ("axb", "ba", "xba"),  # …what only the object has stays where it was among the rest
        ("ab", "xay", "xaby"),
        ("abc", "cx", "abcx"),
    ],
)
def test_shared_items_come_in_the_order_of_the_configuration(live, config, result):
    assert merged(live, config) == result


@given(NAMES, NAMES)
def test_a_merged_list_has_every_item_once_and_keeps_both_orders(live, config):
    names = merged(live, config)
    assert sorted(names) == sorted({*live, *config})
    assert [name for name in names if name in config] == config
    assert [name for name in names if name not in config] == [name for name in live if name not in config]


def test_an_item_the_object_has_twice_is_replaced_by_the_one_that_is_applied():
    live = [{"name": "a", "by": "first"}, {"name": "a", "by": "second"}, {"name": "b", "by": "live"}]
    assert merge(ITEMS, live, [{"name": "a"}]) == [{"name": "a"}, {"name": "b", "by": "live"}]


def test_an_item_the_object_has_twice_stays_when_no_manager_applies_it():
    live = [{"name": "a", "by": "first"}, {"name": "a", "by": "second"}]
    assert merge(ITEMS, live, [{"name": "b"}]) == [*live, {"name": "b"}]
