"""Parsing what users wrote, within a budget: the one door for YAML and JSON that came from outside.

A short text can stand for an endless value: an alias repeats what it names, aliases of aliases multiply it, and copying
or encoding the result writes every repetition out. A short tag can stand for a long one, which a `%TAG` directive says
once and every value repeats. So a text is weighed before it is built:

    text ──size──► events ──weight of every alias added──► within the budget? ──► values
                                                     └──► BudgetError, before anything was built

Invariant: time and memory of a parse grow with the budget and never with what the text stands for. Nesting is bounded
because the C library follows it on a stack whose end is the end of the process, and numbers because converting a long
one takes time that grows with its square. `Parser` adds up what the values of one object cost, so that a thousand
small values are bounded like one large one. Nothing here repeats content in an error, and nothing does I/O.

Even a bounded parse may take a tenth of a second, for which the C library keeps the interpreter to itself. `off_loop`
runs such work on one thread of the process: the event loop goes on, and at most one budget is spent at any moment.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, TypeVar

import msgspec
import yaml

from steersman.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FILE",
    "Budget",
    "BudgetError",
    "Parser",
    "PlainLoader",
    "SafeLoader",
    "check_yaml",
    "load_yaml",
    "off_loop",
]

P = ParamSpec("P")
T = TypeVar("T")

KIB: Final = 1024
_MOST_TAG_DIRECTIVES: Final = 100  # the C library compares each with all before it
_LONGEST_NUMBER: Final = 400  # characters; more than any number that a program could use
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBERS: Final = {
    "tag:yaml.org,2002:int": _Loader.construct_yaml_int,
    "tag:yaml.org,2002:float": _Loader.construct_yaml_float,
}


class BudgetError(FormatError):
    """A text that is too large, too deep, or stands for too much."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that parsing may cost."""

    size: int = 128 * KIB  # bytes of the text
    nodes: int = 50_000  # values and keys, with every alias written out
    expanded: int = 1024 * KIB  # bytes of text in them, with every alias written out
    depth: int = 100  # collections inside each other, with every alias written out


FILE: Final = Budget(size=64 * KIB * KIB, nodes=2_000_000, expanded=128 * KIB * KIB)  # a file its reader chose to read


class SafeLoader(_Loader):  # type: ignore[misc]  # the C loader has no types
    """YAML's own types and nothing else; a number that is too long for a number is an error."""

    def construct_number(self, node: Any) -> Any:
        """A number of ordinary length."""
        if len(node.value) > _LONGEST_NUMBER:
            raise BudgetError(f"has a number of more than {_LONGEST_NUMBER} characters in line {_line(node)}")
        return _NUMBERS[node.tag](self, node)


for _tag in _NUMBERS:
    SafeLoader.add_constructor(_tag, SafeLoader.construct_number)


class PlainLoader(SafeLoader):
    """The same without YAML's dates: only the types of JSON come out."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }


class _Weight(msgspec.Struct, frozen=True):
    """What a part of a text stands for."""

    nodes: int = 0
    expanded: int = 0
    height: int = 0


class _Open(msgspec.Struct):
    """A collection whose end has not come."""

    anchor: str | None
    nodes: int  # before it
    expanded: int
    height: int = 1


class _Scale:
    """Adds up what a text stands for, event by event."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._anchors: dict[str, _Weight | None] = {}  # None while the end of it has not come
        self._open: list[_Open] = []
        self.nodes = 0
        self.expanded = 0

    def take(self, event: Any) -> None:
        """Add an event; BudgetError when that is one too many."""
        if isinstance(event, yaml.ScalarEvent):
            weight = _Weight(1, len(event.value) + len(event.tag or ""))
            self._add(weight, event)
            self._anchored(event.anchor, weight)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._anchored(event.anchor, None)
            self._open.append(_Open(event.anchor, self.nodes, self.expanded))
            self._add(_Weight(1, len(event.tag or "")), event)
        elif isinstance(event, yaml.CollectionEndEvent):
            ended = self._open.pop()
            weight = _Weight(self.nodes - ended.nodes, self.expanded - ended.expanded, ended.height)
            self._anchored(ended.anchor, weight)
            self._reach(ended.height)
        elif isinstance(event, yaml.AliasEvent):
            known = self._anchors.get(event.anchor or "", _Weight())  # one that is not known is the composer's business
            if known is None:
                raise BudgetError(f"refers to itself in line {_line(event)}")
            self._reach(known.height)
            self._add(known, event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()

    def _anchored(self, anchor: str | None, weight: _Weight | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = weight

    def _reach(self, height: int) -> None:
        """The innermost open collection holds one of this height."""
        if self._open:
            self._open[-1].height = max(self._open[-1].height, height + 1)

    def _add(self, weight: _Weight, event: Any) -> None:
        budget = self._budget
        self.nodes += weight.nodes
        self.expanded += weight.expanded
        if len(self._open) + weight.height > budget.depth:
            raise BudgetError(f"is nested deeper than {budget.depth} levels in line {_line(event)}")
        for much, most, what in (
            (self.nodes, budget.nodes, "values"),
            (self.expanded, budget.expanded, "bytes"),
        ):
            if much > most:
                raise BudgetError(f"expands to more than {most} {what} by line {_line(event)}, aliases included")


def check_yaml(text: str | bytes, budget: Budget) -> tuple[int, int]:
    """How many nodes and bytes a YAML text stands for; BudgetError when that is beyond the budget.

    Whatever the text stands for, this takes time that grows with its length alone. A text that is not YAML raises
    yaml.YAMLError.
    """
    size = len(text.encode(errors="surrogatepass")) if isinstance(text, str) else len(text)
    if size > budget.size:
        raise BudgetError(f"is {size} bytes long (at most {budget.size})")
    if _tag_directives(text) > _MOST_TAG_DIRECTIVES:
        raise BudgetError(f"has more than {_MOST_TAG_DIRECTIVES} %TAG directives")
    scale = _Scale(budget)
    for event in yaml.parse(text, Loader=PlainLoader):
        scale.take(event)
    return scale.nodes, scale.expanded


def _tag_directives(text: str | bytes) -> int:
    """How many there may be; the C library reads UTF-16 too."""
    return text.count("%TAG") if isinstance(text, str) else text.replace(b"\0", b"").count(b"%TAG")


def load_yaml(text: str | bytes, budget: Budget, *, loader: type[SafeLoader] = PlainLoader) -> list[Any]:
    """The documents of a YAML text; BudgetError when it is beyond the budget, yaml.YAMLError when it is not YAML."""
    return Parser(budget, budget).yaml(text, loader=loader)


class Parser:
    """Parses the values of one object: each within a budget of its own, all together within that of the object."""

    def __init__(self, value: Budget, total: Budget) -> None:
        self._value = value
        self._left = total

    def yaml(self, text: str | bytes, *, loader: type[SafeLoader] = PlainLoader) -> list[Any]:
        """The documents of a YAML text."""
        self._spend(len(text), *check_yaml(text, self._budget()))
        return list(yaml.load_all(text, Loader=loader))  # safe: `SafeLoader` builds YAML's own types only

    def json(self, text: bytes) -> Any:
        """The value of a JSON text; msgspec.DecodeError when it is not JSON."""
        budget = self._budget()
        nodes = 1 + text.count(b",") + text.count(b":") + text.count(b"[") + text.count(b"{")  # or fewer
        if len(text) > budget.size or nodes > budget.nodes:
            raise BudgetError(f"has {len(text)} bytes (at most {budget.size}) and about {nodes} values")
        self._spend(len(text), nodes, len(text))
        return msgspec.json.decode(text)

    def text(self, text: bytes) -> bytes:
        """The text itself, which is about to be parsed in time that grows with its length alone."""
        budget = self._budget()
        if len(text) > budget.size:
            raise BudgetError(f"is {len(text)} bytes long (at most {budget.size})")
        self._spend(len(text), 0, 0)
        return text

    def _budget(self) -> Budget:
        value, left = self._value, self._left
        return Budget(
            size=min(value.size, left.size),
            nodes=min(value.nodes, left.nodes),
            expanded=min(value.expanded, left.expanded),
            depth=min(value.depth, left.depth),
        )

    def _spend(self, size: int, nodes: int, expanded: int) -> None:
        left = self._left
        self._left = msgspec.structs.replace(
            left, size=left.size - size, nodes=left.nodes - nodes, expanded=left.expanded - expanded
        )


_threads: Final = ThreadPoolExecutor(1, thread_name_prefix="parser")


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function on the thread for parsing, after those that wait for it already."""
    return await asyncio.get_running_loop().run_in_executor(_threads, lambda: function(*args, **kwargs))


def _line(place: Any) -> int:
    return int(place.start_mark.line) + 1
