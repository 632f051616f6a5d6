"""Which key is in which ConfigMap: one, or a base with parts when one is too small. Pure.

Invariant: the base alone is always loadable, every part is too, no value is ever cut, and a key stays where it is while
it fits there. Sizes are bytes of values in UTF-8, keys of other owners included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.toolset.api.config import HOLMES_KEY, INDEX_KEY
from steersman.operators.toolset.render.holmes import BASE_UNIT, render_holmes
from steersman.operators.toolset.render.kubernaut import render_kubernaut
from steersman.operators.toolset.render.model import KUBERNETES_KEY
from steersman.operators.toolset.render.yaml import GENERATED, dump

if TYPE_CHECKING:
    from collections.abc import Collection

    from steersman.operators.toolset.render.holmes import Entries
    from steersman.operators.toolset.render.model import Model

JOIN_RATIO: Final = 0.8  # parts are joined only well below the limit, so that one service more or less moves no keys


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What this operator writes to every ConfigMap."""

    base: Mapping[str, str]
    parts: Mapping[int, Mapping[str, str]] = {}
    skipped: tuple[str, ...] = ()  # keys that are larger than a ConfigMap may be
    left_over: tuple[str, ...] = ()  # keys that fit into no part

    @property
    def split(self) -> bool:
        """Whether there is more than one."""
        return bool(self.parts)


def size_of(data: Mapping[str, str]) -> int:
    """Bytes of the values."""
    return sum(len(value.encode()) for value in data.values())


def content_hash(data: Mapping[str, str]) -> str:
    """The same for the same keys and values."""
    digest = hashlib.sha256()
    for key in sorted(data):
        digest.update(f"{len(key)}:{key}{len(data[key].encode())}:".encode() + data[key].encode())
    return digest.hexdigest()


def part_name(name: str, number: int) -> str:
    """The ConfigMap of a part."""
    return f"{name}-{number}"


def lay_out(
    model: Model,
    entries: Entries,
    dialects: Collection[str],
    *,
    name: str,
    limit: int,
    most: int = 8,
    others: int = 0,
    places: Mapping[str, int] | None = None,
    avoid: Collection[int] = (),
) -> Layout:
    """Assign every key to a ConfigMap.

    `name` is that of the base, `most` how many parts there may be, `others` are the bytes of foreign keys in the base,
    `places` says where keys are now, `avoid` which parts cannot be used.
    """
    texts = render_kubernaut(model) if "kubernaut" in dialects else {}
    whole = dict(texts)
    if "holmesgpt" in dialects:
        whole[HOLMES_KEY] = render_holmes(entries)
    places = places or {}
    if size_of(whole) + others <= (limit * JOIN_RATIO if places else limit):
        return Layout(base=whole)
    usable = tuple(number for number in range(1, most + 1) if number not in avoid)
    return _split(model, entries, texts, "holmesgpt" in dialects, limit, others, places, usable, name=name)


def _split(
    model: Model,
    entries: Entries,
    texts: Mapping[str, str],
    holmes: bool,
    limit: int,
    others: int,
    places: Mapping[str, int],
    usable: tuple[int, ...],
    *,
    name: str,
) -> Layout:
    """The base holds what is always present; toolsets go to parts, first-fit in order of their keys."""
    sizes = {toolset.key: _weight(toolset.key, texts, entries, holmes) for toolset in model.toolsets}
    homes: dict[str, int] = {}
    filled: dict[int, int] = {}
    for key in sorted(sizes, key=lambda key: (key not in places, key)):  # a key that has a place keeps it
        if sizes[key] > limit:
            continue
        wanted = [places[key]] if places.get(key) in usable else []
        number = next((part for part in (*wanted, *usable) if filled.get(part, 0) + sizes[key] <= limit), None)
        if number is None:
            continue
        homes[key] = number
        filled[number] = filled.get(number, 0) + sizes[key]
    homes = _packed(homes, usable)
    parts: dict[int, dict[str, str]] = {}
    for number in sorted(set(homes.values())):
        units = {key for key, home in homes.items() if home == number}
        parts[number] = {key: texts[key] for key in sorted(units) if key in texts}
        if holmes:
            parts[number][HOLMES_KEY] = render_holmes(entries, units)
    base = {KUBERNETES_KEY: texts[KUBERNETES_KEY]} if texts else {}
    if holmes:
        base[HOLMES_KEY] = render_holmes(entries, {BASE_UNIT})
    base[INDEX_KEY] = _index(name, parts)
    skipped = sorted(key for key, size in sizes.items() if size > limit)
    return Layout(
        base=base,
        parts=parts,
        skipped=(*skipped, *([INDEX_KEY] if size_of(base) + others > limit else [])),
        left_over=tuple(sorted(set(sizes) - set(homes) - set(skipped))),
    )


def _weight(key: str, texts: Mapping[str, str], entries: Entries, holmes: bool) -> int:
    """The most that a toolset adds to a part: its text, and its own loadable file."""
    own = len(texts[key].encode()) if key in texts else 0
    return own + (len(render_holmes(entries, {key}).encode()) if holmes else 0)


def _packed(homes: dict[str, int], usable: tuple[int, ...]) -> dict[str, int]:
    """The same with the first numbers that can be used, without gaps, when a part has become empty."""
    used = sorted(set(homes.values()))
    gaps = [number for number in usable[: len(used)] if number not in used]
    moves = dict(zip(reversed(used), gaps, strict=False))
    moves = {old: new for old, new in moves.items() if new < old}
    return {key: moves.get(home, home) for key, home in homes.items()}


def _index(name: str, parts: Mapping[int, Mapping[str, str]]) -> str:
    rows = [
        {"part": number, "configMap": part_name(name, number), "hash": content_hash(data), "keys": sorted(data)}
        for number, data in sorted(parts.items())
    ]
    return GENERATED + dump({"parts": rows})
