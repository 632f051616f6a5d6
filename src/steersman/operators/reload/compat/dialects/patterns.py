"""Names by regular expression, as Go's engine matches them: by RE2, in time linear in the name. Pure.

Any user who may annotate a workload may write an expression, so matching must not backtrack: `(a+)+b` would stop the
whole process. Expressions are limited in length, alone and together.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from steersman.errors import FormatError
from steersman.operators.reload.api.annotations import split_list

_LONGEST: Final = 1000  # characters of an expression
_MEMORY: Final = 1 << 18  # bytes for a compiled expression and its matching
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+\Z")


class NamePattern:
    """`^expression$`, not grouped: `a|b` matches names that begin with a or end with b."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = _PLAIN.match(text) is not None  # it matches one name only
        self._compiled = None if self.plain else _compile(text)

    def matches(self, name: str) -> bool:
        """Whether the expression matches the name."""
        return name == self.text if self._compiled is None else self._compiled.search(name) is not None


@lru_cache(maxsize=1024)
def patterns_in(text: str) -> tuple[tuple[str, ...], str]:
    """The expressions of a list that count, and what is wrong when some do not.

    Together they may have as many characters as one may have alone; plain names are not counted.
    """
    words, problem = split_list(text)
    room, counted = _LONGEST, []
    for word in words:
        cost = 0 if _PLAIN.match(word) or len(word) > _LONGEST else len(word)  # one that is too long is refused alone
        if cost <= room:
            counted.append(word)
            room -= cost
    if len(counted) < len(words):
        problem = f"its expressions have more than {_LONGEST} characters together; not all of them count"
    return tuple(counted), problem


@lru_cache(maxsize=128)  # each may hold _MEMORY
def name_pattern(text: str) -> NamePattern:
    """The compiled pattern; FormatError when the expression is invalid."""
    return NamePattern(text)


def _compile(text: str) -> Any:
    import re2  # type: ignore[import-untyped]  # imported only where a workload has an expression: it costs start-up time

    if len(text) > _LONGEST:
        raise FormatError(f"an expression of {len(text)} characters is too long (at most {_LONGEST})")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(f"^{text}$", options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else error
        raise FormatError(f'"{text[:100]}" is not a regular expression: {reason}') from None
