"""Go's regular expressions (RE2), as patterns of schemas are written in them, matched in linear time.

A pattern comes from whoever may write a CustomResourceDefinition, so it must not be able to hang the server: there is
no backtracking here. A pattern is parsed by Go's grammar (with Go's errors), becomes a small program of character sets,
splits and assertions, and is run as a deterministic automaton whose states are made when first reached.

Invariant: the work per character is bounded by the size of the program, once per state and character seen.
Only "does it match anywhere in the text" is answered: no groups, no positions. Lazy and greedy are the same here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from steersman.apiserver.regexsyntax import Alternatives, Assertion, Chars, Node, RegexpError, Repeat, Sequence, parse

__all__ = ["Regexp", "RegexpError", "compile_regexp"]

MAX_PROGRAM = 50_000
MAX_STATES = 4_000
_MATCH = -1


class _Step(NamedTuple):
    """One instruction: consume a character, or go on to several places, or go on only where an assertion holds."""

    chars: Chars | None
    assertion: str | None
    targets: tuple[int, ...]


class _Before(NamedTuple):
    """What lies before a position: enough to decide every assertion there."""

    begin: bool
    newline: bool
    word: bool


_BEGIN = _Before(begin=True, newline=False, word=False)


class _State:
    """A set of instructions to continue from, and where each next character leads."""

    __slots__ = ("accepts", "at", "before", "next")

    def __init__(self, at: frozenset[int], before: _Before) -> None:
        self.at = at
        self.before = before
        self.next: dict[str, _State | None] = {}  # None: matched already
        self.accepts: bool | None = None  # at the end of the text; None until asked


class Regexp:
    """A compiled pattern.

    >>> Regexp("^a+$").search("aaa"), Regexp("^a+$").search("aab")
    (True, False)
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._steps: list[_Step] = []
        self._positional = False
        self._start = self._emit(parse(pattern), _MATCH)
        self._states: dict[tuple[frozenset[int], _Before], _State] = {}
        self._initial = self._state(frozenset((self._start,)), _BEGIN)

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in `text`."""
        state = self._initial
        for char in text:
            try:
                following = state.next[char]
            except KeyError:
                following = self._advance(state, char)
            if following is None:
                return True
            state = following
        if state.accepts is None:
            state.accepts = _MATCH in self._reachable(state, None)
        return state.accepts

    def _emit(self, node: Node, then: int) -> int:
        """Add the program of `node` that goes on at `then`; returns where it starts. Written back to front."""
        if isinstance(node, Chars):
            return self._add(_Step(node, None, (then,)))
        if isinstance(node, Assertion):
            self._positional |= node.kind in {"\\b", "\\B", "m^"}
            return self._add(_Step(None, node.kind, (then,)))
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                then = self._emit(part, then)
            return then
        if isinstance(node, Alternatives):
            return self._add(_Step(None, None, tuple(self._emit(part, then) for part in node.parts)))
        return self._emit_repeat(node, then)

    def _emit_repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._add(_Step(None, None, ()))
            body = self._emit(node.part, loop)
            self._steps[loop] = _Step(None, None, (body, then))
            start = loop
        else:
            start = then
            for _ in range(node.most - node.least):
                start = self._add(_Step(None, None, (self._emit(node.part, start), then)))
        for _ in range(node.least):
            start = self._emit(node.part, start)
        return start

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= MAX_PROGRAM:
            raise RegexpError("expression too large", self.pattern)
        self._steps.append(step)
        return len(self._steps) - 1

    def _state(self, at: frozenset[int], before: _Before) -> _State:
        key = (at, before)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= MAX_STATES:
                self._states.clear()
                self._initial = self._state(frozenset((self._start,)), _BEGIN)
            state = self._states[key] = _State(at, before)
        return state

    def _advance(self, state: _State, char: str) -> _State | None:
        reachable = self._reachable(state, char)
        following: _State | None = None
        if _MATCH not in reachable:
            at = {self._start}  # a match may also begin at the next character
            for index in reachable:
                step = self._steps[index]
                if step.chars is not None and step.chars.matches(char):
                    at.add(step.targets[0])
            word = self._positional and _is_word(char)
            newline = self._positional and char == "\n"
            following = self._state(frozenset(at), _Before(begin=False, newline=newline, word=word))
        state.next[char] = following
        return following

    def _reachable(self, state: _State, upcoming: str | None) -> set[int]:
        """The consuming instructions (and `_MATCH`) that can be reached without consuming anything."""
        seen: set[int] = set()
        found: set[int] = set()
        todo = list(state.at)
        while todo:
            index = todo.pop()
            if index in seen:
                continue
            seen.add(index)
            if index == _MATCH:
                found.add(index)
                continue
            step = self._steps[index]
            if step.chars is not None:
                found.add(index)
            elif step.assertion is None or _holds(step.assertion, state.before, upcoming):
                todo.extend(step.targets)
        return found


def _is_word(char: str | None) -> bool:
    return char is not None and char.isascii() and (char.isalnum() or char == "_")


def _holds(assertion: str, before: _Before, upcoming: str | None) -> bool:
    if assertion == "^":
        return before.begin
    if assertion == "$":
        return upcoming is None
    if assertion == "m^":
        return before.begin or before.newline
    if assertion == "m$":
        return upcoming is None or upcoming == "\n"
    boundary = before.word != _is_word(upcoming)
    return boundary if assertion == "\\b" else not boundary


@lru_cache(maxsize=1024)
def compile_regexp(pattern: str) -> Regexp:
    """The compiled pattern, shared. Raises `RegexpError` worded as Go words it."""
    return Regexp(pattern)
