"""YAML (or JSON) files whose values know their line, so that an error can point at it.

Only the plain types of JSON come out: what YAML would make a date stays text. An error quotes the position and the
field, never the content, because the content may be a password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
import yaml

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Document"]

T = TypeVar("T")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class _PlainLoader(_Loader):  # type: ignore[misc]  # the C loader has no types
    """Safe, and without YAML's dates."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }


class Document:
    """One parsed file."""

    def __init__(self, path: Path, value: Any, root: yaml.Node | None) -> None:
        self.path = path
        self.value = value
        self._root = root

    @classmethod
    def read(cls, path: Path) -> Document:
        """Parse `path`; FileNotFoundError when it is not there, ConfigError when it is not YAML."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
        except UnicodeDecodeError:
            raise ConfigError("is not a text file in UTF-8", where=str(path)) from None
        problem, line = "not YAML", None
        try:
            loader = _PlainLoader(text)
            try:
                root = loader.get_single_node()
                return cls(path, loader.construct_document(root) if root is not None else None, root)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            problem = " ".join(filter(None, [error.context, error.problem]))
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
        except (yaml.YAMLError, ValueError, RecursionError):
            pass  # bytes no YAML has, numbers too long for a number, nesting without end
        raise ConfigError(
            f"is not valid YAML ({problem}); correct it or take it out of $KUBECONFIG",
            where=f"{path}:{line}" if line else str(path),
        )

    def line(self, steps: list[str | int]) -> int | None:
        """The line, from 1, of the value at `steps`, or of the nearest value above it."""
        node, found = self._root, None
        for step in steps:
            node = _child(node, step)
            if node is None:
                break
            found = node.start_mark.line + 1
        return found

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
        raise self.error(text[:1].lower() + text[1:], steps) from None


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        found: yaml.Node = node.value[step]
        return found
    return None
