"""YAML (or JSON) files whose values know their line, so that an error can point at it.

Only the plain types of JSON come out: what YAML would make a date stays text. An error quotes the position and the
field, never the content, because the content may be a password.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import yaml

from steersman.bounded_parsing import FILE, BudgetError, PlainLoader, check_yaml
from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

__all__ = ["YamlDocument", "did_you_mean"]

T = TypeVar("T")

_SEPARATOR = re.compile(r"---(\s|$)")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class YamlDocument:
    """One parsed file."""

    def __init__(self, path: Path, value: Any, root: yaml.Node | None, offset: int = 0) -> None:
        self.path = path
        self.value = value
        self._root = root
        self._offset = offset  # lines of the file before this document

    @classmethod
    def read(cls, path: Path, *, hint: str = "") -> YamlDocument:
        """Parse `path`; FileNotFoundError when it is not there, ConfigError when it is not YAML, with the `hint`."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
        except UnicodeDecodeError:
            raise ConfigError("is not a text file in UTF-8", where=str(path)) from None
        return cls.parse(text, path, hint=hint)

    @classmethod
    def parse(cls, text: str, path: Path, *, offset: int = 0, hint: str = "") -> YamlDocument:
        """The one document in `text`, which begins `offset` lines into the file; ConfigError when it is not YAML."""
        problem, line = "not YAML", None
        try:
            check_yaml(text, FILE)
            loader = PlainLoader(text)
            try:
                root = loader.get_single_node()
                return cls(path, loader.construct_document(root) if root is not None else None, root, offset)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            problem = " ".join(filter(None, [error.context, error.problem]))
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 + offset if mark else None
        except BudgetError as error:
            raise ConfigError(f"{error}{hint}", where=str(path)) from None
        except (yaml.YAMLError, ValueError, RecursionError):
            pass  # bytes no YAML has, numbers too long for a number, nesting without end
        raise ConfigError(f"is not valid YAML ({problem}){hint}", where=f"{path}:{line}" if line else str(path))

    @classmethod
    def parse_all(cls, text: str, path: Path) -> Iterator[YamlDocument | ConfigError]:
        """Every document of a file of several; one that is not YAML is an error, and those after it still come."""
        start, lines = 0, text.splitlines(keepends=True)
        for place in range(len(lines) + 1):
            if place < len(lines) and not _SEPARATOR.match(lines[place]):
                continue
            part = "".join(lines[start:place])
            if part.strip():
                try:
                    yield cls.parse(part, path, offset=start)
                except ConfigError as error:
                    yield error
            start = place + 1 if place < len(lines) and not lines[place][3:].strip() else place

    def line(self, steps: list[str | int]) -> int | None:
        """The line, from 1, where the key or item at `steps` begins, or the nearest above it."""
        node, found = self._root, None
        for step in steps:
            start, node = _child(node, step)
            if start is None:
                break
            found = start.start_mark.line + 1 + self._offset
        return found

    @property
    def first_line(self) -> int:
        """Where its content begins in the file, from 1."""
        return (self._root.start_mark.line if self._root is not None else 0) + 1 + self._offset

    def error(self, message: str, steps: list[str | int]) -> ConfigError:
        """A ConfigError about the value at `steps`."""
        line = self.line(steps)
        field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
        return ConfigError(message, where=f"{self.path}:{line}" if line else str(self.path), field=field or None)

    def convert(self, shape: type[T]) -> T:
        """The value as `shape`; ConfigError with line and field when it is something else."""
        try:
            return msgspec.convert(self.value, shape)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
        steps = [int(index) if index.isdigit() else name or 0 for name, index in _STEP.findall(path.rstrip("`"))]
        if unknown := _UNKNOWN.fullmatch(text):
            name = unknown[1]
            raise self.error(f"is not a field{did_you_mean(name, _fields(shape, steps))}", [*steps, name]) from None
        raise self.error(text[:1].lower() + text[1:], steps) from None


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The known name that was probably meant, else all of them, in brackets."""
    near = difflib.get_close_matches(name, known, n=1)
    return f' (did you mean "{near[0]}"?)' if near else f" (known: {', '.join(sorted(known))})" if known else ""


def _fields(shape: type, steps: list[str | int]) -> list[str]:
    """The fields there are at `steps` of a shape."""
    places: list[Any] = [msgspec.inspect.type_info(shape)]
    for step in [*steps, None]:
        places = [member for place in places for member in getattr(place, "types", [place])]  # of a union, each
        if step is not None:
            places = [inner for place in places if (inner := _inner(place, step)) is not None]
    return [field.encode_name for place in places for field in getattr(place, "fields", ())]


def _inner(place: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return getattr(place, "item_type", None)
    found = next((field.type for field in getattr(place, "fields", ()) if field.encode_name == step), None)
    return found or getattr(place, "value_type", None)


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Where the child begins, and its value: a key may stand lines above its value."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == step), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        found: yaml.Node = node.value[step]
        return found, found
    return None, None
