"""Combining a live object with an applied configuration.

What the configuration says wins, what it does not say stays. Lists whose items have names are combined item by item:
the result keeps the live order, except that items the configuration mentions appear in the configuration's order.

Invariant: nothing is ever removed here; removal is a question of ownership and belongs to `apply.py`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver.fields import element_text
from steersman.apiserver.typed import LIST, MAP, SCALAR, TypedError, elements, part, shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.schema import Schema

__all__ = ["merge"]

ABSENT: Final = object()  # no value at all, which is not the same as null


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """The live value with the configuration laid over it."""
    merged = _merge(schema, live, config)
    return None if merged is ABSENT else merged


def _merge(schema: Schema, live: Any, config: Any) -> Any:
    kind = shape(schema, live if config is ABSENT else config)
    leaf = live if config is ABSENT else config
    if kind == SCALAR:
        return leaf
    if kind == MAP:
        before = live if isinstance(live, dict) else {}
        after = config if isinstance(config, dict) else {}
        if schema.map_atomic or not (before or after):
            return leaf
        return _merge_maps(schema, before, after)
    items = live if isinstance(live, list) else []
    wanted = config if isinstance(config, list) else []
    if kind != LIST or schema.list_type == "atomic" or not (items or wanted):
        return leaf
    return _merge_lists(schema, items, wanted)


def _merge_maps(schema: Schema, live: dict[str, Any], config: dict[str, Any]) -> Any:
    out = {}
    for name in live | config:
        merged = _merge(part(schema, name), live.get(name, ABSENT), config.get(name, ABSENT))
        if merged is not ABSENT:
            out[name] = merged
    return out or ABSENT


def _merge_lists(schema: Schema, live: list[Any], config: list[Any]) -> Any:
    wanted: dict[str, Any] = {}
    for element, item in elements(schema, config):
        if element in wanted:
            raise TypedError(f"duplicate entries for key {element_text(element)}")
        wanted[element] = item
    present = list(elements(schema, live))
    known: dict[str, Any] = {}
    for element, item in present:
        known[element] = None if element in known else item  # duplicates are not merged, they are replaced
    out = []
    for element, index in _order([element for element, _ in present], wanted):
        item = known.get(element, ABSENT) if index is None else present[index][1]
        merged = _merge(schema.items, item, wanted.get(element, ABSENT))
        if merged is not ABSENT:
            out.append(merged)
    return out or ABSENT


def _order(present: list[str], wanted: dict[str, Any]) -> Iterator[tuple[str, int | None]]:
    """The elements of the merged list; with its index in the live list when only that one has the item.

    A live item that the configuration has too waits for its turn there, so that the shared items come out in the
    configuration's order, each as early as the live order allows.
    """
    order = list(wanted)
    live = set(present)
    shared = deque(element for element in order if element in live)
    taken: set[str] = set()
    left = right = 0
    while left < len(present) or right < len(order):
        if left < len(present):
            element = present[left]
            if element not in wanted:
                yield element, left
                left += 1
                continue
            if right < len(order) and element != order[right] and shared and shared[0] != element:
                left += 1
                continue
            if element in taken or (right < len(order) and element == order[right]):
                left += 1
        if right < len(order):
            element = order[right]
            yield element, None
            taken.add(element)
            right += 1
            if shared and shared[0] == element:
                shared.popleft()
