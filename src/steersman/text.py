"""Short texts about many things, for messages that people read: events, conditions, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["some_of"]


def some_of(items: Iterable[object], limit: int = 5, *, separator: str = ", ") -> str:
    """The first few of many, and how many more there are. Sort first: equal facts must give equal messages.

    >>> some_of(["a", "b", "c"])
    'a, b, c'
    >>> some_of("abcdefgh", 3)
    'a, b, c and 5 more'
    >>> some_of(["port: required", "image: required"], 1, separator="; ")
    'port: required; and 1 more'
    """
    texts = [str(item) for item in items]
    shown = separator.join(texts[:limit])
    if len(texts) <= limit:
        return shown
    return f"{shown}{';' if separator.startswith(';') else ''} and {len(texts) - limit} more"
