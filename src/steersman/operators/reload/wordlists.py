"""Lists in annotations, separated by commas, of which a look takes only so much. Pure.

Anybody who may annotate a workload may write one, and a look takes time for each entry: whatever the list, a look ends.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = ["MOST", "bounded", "words_in"]

MOST: Final = 100  # entries of one list


@lru_cache(maxsize=1024)
def words_in(text: str) -> tuple[tuple[str, ...], str]:
    """The entries that count, and what is wrong when some do not.

    >>> words_in("a, b,,c ")
    (('a', 'b', 'c'), '')
    """
    return bounded([word for part in text.split(",") if (word := part.strip())])


def bounded(words: list[str]) -> tuple[tuple[str, ...], str]:
    """The first of many entries, and what to say when there are more."""
    told = f"it has {len(words)} entries, of which the first {MOST} count" if len(words) > MOST else ""
    return tuple(words[:MOST]), told
