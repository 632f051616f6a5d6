"""Names by regular expression, in time that grows with the name and never explodes. Pure.

Anybody who may annotate a workload may write an expression, so matching must not backtrack: `(a+)+b` would stop the
whole program. An expression is matched by the set of places it can have reached, as RE2 does, and what RE2 refuses
(references back, looking around) is refused here too.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError
from steersman.operators.reload.wordlists import words_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["NamePattern", "name_pattern", "patterns_in"]

# the parser of the standard library has no public name
code: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

_LONGEST: Final = 1000  # characters of an expression
_MOST: Final = 1000  # repetitions that may be asked for, as in RE2
_DEEPEST: Final = 3  # repetitions inside each other
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+\Z")
_LEFT_TO_RIGHT: Final = frozenset({code.AT_BEGINNING, code.AT_BEGINNING_STRING, code.AT_END, code.AT_END_STRING})


class NamePattern:
    """`^expression$`, not grouped: `a|b` is what begins with a, or ends with b."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = _PLAIN.match(text) is not None  # it names one source and nothing else
        self._nodes = [] if self.plain else _parsed(text)

    def matches(self, name: str) -> bool:
        """Whether the expression finds itself in the name."""
        return name == self.text if self.plain else bool(_after(self._nodes, name, frozenset(range(len(name) + 1))))


@lru_cache(maxsize=1024)
def patterns_in(text: str) -> tuple[tuple[str, ...], str]:
    """The expressions of a list that count, and what is wrong when some do not.

    Together they may have as many characters as one may have alone; names take no time and are not counted.
    """
    words, problem = words_in(text)
    room, counted = _LONGEST, []
    for word in words:
        cost = 0 if _PLAIN.match(word) or len(word) > _LONGEST else len(word)  # one that is too long is refused alone
        if cost <= room:
            counted.append(word)
            room -= cost
    if len(counted) < len(words):
        problem = f"its expressions have more than {_LONGEST} characters together; not all of them count"
    return tuple(counted), problem


@lru_cache(maxsize=4096)
def name_pattern(text: str) -> NamePattern:
    """The pattern of an expression; FormatError when it is none."""
    return NamePattern(text)


def _parsed(text: str) -> list[Any]:
    if len(text) > _LONGEST:
        raise FormatError(f"an expression of {len(text)} characters is too long (at most {_LONGEST})")
    try:
        nodes = list(parser.parse(f"^{text}$"))
        _check(nodes)
    except (re.error, RecursionError, OverflowError) as error:
        raise FormatError(f'"{text[:100]}" is not a regular expression: {error}') from None
    return nodes


def _check(nodes: Iterable[Any], depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise re.error(f"more than {_DEEPEST} repetitions inside each other")
    for kind, value in nodes:
        if kind in (code.MAX_REPEAT, code.MIN_REPEAT):
            low, high, inner = value
            if low > _MOST or (high != code.MAXREPEAT and high > _MOST):
                raise re.error(f"more than {_MOST} repetitions")
            _check(inner, depth + 1)
        elif kind is code.SUBPATTERN:
            if value[1] or value[2]:
                raise re.error("flags are not understood")
            _check(value[3], depth)
        elif kind is code.BRANCH:
            for branch in value[1]:
                _check(branch, depth)
        elif kind is code.AT:
            if value not in _LEFT_TO_RIGHT:
                raise re.error("word boundaries are not understood")
        elif kind not in (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN):
            raise re.error("references back and looking around are not understood")


def _after(nodes: Iterable[Any], name: str, places: frozenset[int]) -> frozenset[int]:
    """Where the expression may have got to in `name`, when it starts at one of `places`."""
    for node in nodes:
        if not places:
            break
        places = _step(node, name, places)
    return places


def _step(node: Any, name: str, places: frozenset[int]) -> frozenset[int]:
    kind, value = node
    if kind is code.AT:
        wanted = 0 if value in (code.AT_BEGINNING, code.AT_BEGINNING_STRING) else len(name)
        return places & {wanted}
    if kind is code.SUBPATTERN:
        return _after(value[3], name, places)
    if kind is code.BRANCH:
        return frozenset().union(*(_after(branch, name, places) for branch in value[1]))
    if kind in (code.MAX_REPEAT, code.MIN_REPEAT):
        return _repeated(value, name, places)
    return frozenset(place + 1 for place in places if place < len(name) and _accepts(kind, value, name[place]))


def _repeated(value: Any, name: str, places: frozenset[int]) -> frozenset[int]:
    low, high, inner = value
    for _ in range(low):
        before, places = places, _after(inner, name, places)
        if places == before:
            break
    reached = places
    done = low
    while places and (high == code.MAXREPEAT or done < high):
        places = _after(inner, name, places) - reached
        reached |= places
        done += 1
    return reached


def _accepts(kind: Any, value: Any, letter: str) -> bool:
    if kind is code.ANY:
        return letter != "\n"
    if kind is code.LITERAL:
        return bool(ord(letter) == value)
    if kind is code.NOT_LITERAL:
        return bool(ord(letter) != value)
    negated = value[0][0] is code.NEGATE
    return negated != any(_in_set(part, letter) for part in value)


def _in_set(part: Any, letter: str) -> bool:
    kind, value = part
    if kind is code.LITERAL:
        return bool(ord(letter) == value)
    if kind is code.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    return kind is code.CATEGORY and _CATEGORIES[value](letter)


_CATEGORIES: Final[Mapping[Any, Callable[[str], bool]]] = {
    code.CATEGORY_DIGIT: lambda letter: letter in "0123456789",
    code.CATEGORY_NOT_DIGIT: lambda letter: letter not in "0123456789",
    code.CATEGORY_SPACE: str.isspace,
    code.CATEGORY_NOT_SPACE: lambda letter: not letter.isspace(),
    code.CATEGORY_WORD: lambda letter: letter.isascii() and (letter.isalnum() or letter == "_"),
    code.CATEGORY_NOT_WORD: lambda letter: not (letter.isascii() and (letter.isalnum() or letter == "_")),
}
