"""The JSONPath of printer columns, scale paths and selectable fields: a small, safe subset of kubectl's.

Fields (`.a.b`, `['a']`, `.a\\.b`), list items (`[0]`, `[-1]`, `[1:3]`, `[*]`), several of them (`['a','b']`), all
children (`.*`), every level (`..name`) and filters that compare a field of an item with a value
(`[?(@.type=="Ready")]`). A path that leads nowhere finds nothing; it never fails. What this does not know (scripts,
ranges of text) is refused when the path is parsed.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from steersman.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Step = tuple[str, Any]

_FIELD = re.compile(r"(?:\\.|[^.\[\]\\\s])+")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_FILTER = re.compile(r"\?\(\s*@(?P<left>[^=!<>]*?)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<right>.+?))?\s*\)")
_SLICE = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?\d+))?")
_UNION = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^,\s]+")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPath:
    """A parsed path.

    >>> JsonPath(".a[?(@.b=='x')].c").find({"a": [{"b": "x", "c": 1}, {"b": "y", "c": 2}]})
    [1]
    """

    __slots__ = ("_steps", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._steps = tuple(_parse(text))

    @classmethod
    def of(cls, text: str) -> JsonPath:
        """The parsed path, shared."""
        return _cached(text)

    def find(self, value: Any) -> list[Any]:
        """Everything the path leads to."""
        return _follow(self._steps, value)


@lru_cache(maxsize=512)
def _cached(text: str) -> JsonPath:
    return JsonPath(text)


def _parse(text: str) -> Iterator[Step]:
    at = 0
    if text.startswith("$"):
        at = 1
    while at < len(text):
        if text.startswith("..", at):
            match = _FIELD.match(text, at + 2)
            if match is None:
                raise FormatError(f"{text!r}: expected a field after '..'")
            yield "deep", _plain(match[0])
            at = match.end()
        elif text.startswith(".*", at):
            yield "all", None
            at += 2
        elif text[at] == ".":
            match = _FIELD.match(text, at + 1)
            if match is None:
                if at + 1 == len(text) or text[at + 1] == "[":
                    at += 1  # the root itself
                    continue
                raise FormatError(f"{text!r}: expected a field at {text[at:]!r}")
            yield "field", _plain(match[0])
            at = match.end()
        elif text[at] == "[":
            end = _closing(text, at)
            yield from _bracket(text, text[at + 1 : end])
            at = end + 1
        else:
            raise FormatError(f"{text!r}: a path begins with a dot or a bracket, not {text[at:]!r}")


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


def _closing(text: str, start: int) -> int:
    """Where the bracket opened at `start` closes; quotes and inner brackets are skipped."""
    depth = 0
    quote = ""
    for at in range(start, len(text)):
        char = text[at]
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                return at
    raise FormatError(f"{text!r}: unterminated array")


def _bracket(text: str, inside: str) -> list[Step]:
    inside = inside.strip()
    if inside == "*":
        return [("all", None)]
    if quoted := _QUOTED.fullmatch(inside):
        return list(_parse(f".{quoted[1] if quoted[1] is not None else quoted[2]}"))  # dots divide even here
    if "," in inside and not inside.startswith("?"):
        return [("union", tuple(tuple(_bracket(text, part)) for part in _UNION.findall(inside)))]
    if re.fullmatch(r"-?\d+", inside):
        return [("item", int(inside))]
    if parts := _SLICE.fullmatch(inside):
        return [("slice", slice(*(int(part) if part else None for part in parts.groups())))]
    if condition := _FILTER.fullmatch(inside):
        left = JsonPath(condition["left"] or ".")
        if condition["op"] is None:
            return [("filter", (left, None, None))]
        return [("filter", (left, _COMPARE[condition["op"]], _operand(text, condition["right"])))]
    raise FormatError(f"{text!r}: cannot evaluate [{inside}]")


def _operand(text: str, right: str) -> Any:
    if quoted := _QUOTED.fullmatch(right):
        return _plain(quoted[1] if quoted[1] is not None else quoted[2])
    if right in {"true", "false"}:
        return right == "true"
    try:
        return int(right) if re.fullmatch(r"-?\d+", right) else float(right)
    except ValueError:
        raise FormatError(f"{text!r}: cannot compare with {right}") from None


def _follow(steps: tuple[Step, ...], value: Any) -> list[Any]:
    found = [value]
    for kind, detail in steps:
        found = [item for base in found for item in _walk(kind, detail, base)]
    return found


def _walk(kind: str, detail: Any, base: Any) -> list[Any]:
    if kind == "field":
        if isinstance(base, dict):
            return [base[detail]] if detail in base else []
        return []
    if kind == "item":
        return [base[detail]] if isinstance(base, list) and -len(base) <= detail < len(base) else []
    if kind == "slice":
        return base[detail] if isinstance(base, list) else []
    if kind == "deep":
        return list(_deep(base, detail))
    if kind == "union":
        return [item for steps in detail for item in _follow(steps, base)]
    children = list(base.values()) if isinstance(base, dict) else base if isinstance(base, list) else []
    if kind == "all":
        return children
    return [child for child in children if _holds(child, *detail)]


def _deep(base: Any, name: str) -> Iterator[Any]:
    if isinstance(base, dict):
        if name in base:
            yield base[name]
        for child in base.values():
            yield from _deep(child, name)
    elif isinstance(base, list):
        for child in base:
            yield from _deep(child, name)


def _holds(item: Any, left: JsonPath, compare: Callable[[Any, Any], bool] | None, right: Any) -> bool:
    found = left.find(item)
    if not found:
        return False
    if compare is None:
        return True
    try:
        return type(found[0]) is type(right) and compare(found[0], right)
    except TypeError:
        return False
