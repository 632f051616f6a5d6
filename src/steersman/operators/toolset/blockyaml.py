"""YAML, written one way and read with care.

Written: the same value gives the same bytes on every machine: block style, fields in the order given, two spaces, no
folded lines, LF, one newline at the end. Text is quoted unless it is a plain word that no reader takes for anything
else. Read: bounded in size, depth and what aliases expand to; one key twice is an error; keys are text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from steersman.errors import FormatError
from steersman.kube.document import PlainLoader, check_nesting

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GENERATED", "MAX_BYTES", "dump", "load"]

GENERATED: Final = "# Auto-generated, do not edit; use overrides.yaml\n"
MAX_BYTES: Final = 256 * 1024
_MAX_DEPTH: Final = 32
_MAX_NODES: Final = 20_000  # with every alias written out
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS: Final = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"])


def dump(value: dict[str, Any]) -> str:
    """The value as YAML."""
    return "\n".join(_mapping(value, "")) + "\n" if value else "{}\n"


def _mapping(value: dict[str, Any], indent: str) -> Iterator[str]:
    for key, item in value.items():
        yield from _entry(f"{indent}{_text(key)}:", item, f"{indent}  ")


def _entry(head: str, item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, dict) and item:
        yield head
        yield from _mapping(item, indent)
    elif isinstance(item, (list, tuple)) and item:
        yield head
        yield from _sequence(item, indent[:-2])
    else:
        yield f"{head} {_scalar(item)}"


def _sequence(value: list[Any] | tuple[Any, ...], indent: str) -> Iterator[str]:
    for item in value:
        if isinstance(item, dict) and item:
            lines = list(_mapping(item, f"{indent}  "))
            yield f"{indent}- {lines[0].lstrip()}"
            yield from lines[1:]
        elif isinstance(item, (list, tuple)) and item:
            yield f"{indent}-"
            yield from _sequence(item, f"{indent}  ")
        else:
            yield f"{indent}- {_scalar(item)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return json.dumps(value)
    if isinstance(value, dict):
        return "{}"
    return "[]"


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in quoted)


def load(text: str, *, max_bytes: int = MAX_BYTES) -> Any:
    """The value of a YAML text; FormatError says what is wrong and never repeats the content."""
    size = len(text.encode())
    if size > max_bytes:
        raise FormatError(f"is {size} bytes long; at most {max_bytes} are read")
    try:
        check_nesting(text, deepest=_MAX_DEPTH, most=2 * _MAX_NODES)  # keys count here
        loader = PlainLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _weigh(root, 0, {})
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}" if mark else ""
        raise FormatError(f"is not valid YAML{where} ({error.problem or error.context})") from None
    except FormatError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        raise FormatError("is not valid YAML") from None


def _weigh(node: yaml.Node, depth: int, known: dict[int, int]) -> int:
    """How many nodes there are with all aliases written out; FormatError when there are too many."""
    if depth > _MAX_DEPTH:
        raise FormatError(f"is nested deeper than {_MAX_DEPTH} levels in line {node.start_mark.line + 1}")
    if id(node) in known:
        if known[id(node)] < 0:
            raise FormatError(f"refers to itself in line {node.start_mark.line + 1}")
        return known[id(node)]
    known[id(node)] = -1
    total = 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _KEY_TAGS:
                raise FormatError(f"has a key that is not text in line {key.start_mark.line + 1}")
            if key.value in seen:
                raise FormatError(
                    f"has the key {key.value[:100]!r} twice, the second time in line {key.start_mark.line + 1}"
                )
            seen.add(key.value)
            total += 1 + _weigh(value, depth + 1, known)
    elif isinstance(node, yaml.SequenceNode):
        total += sum(_weigh(item, depth + 1, known) for item in node.value)
    if total > _MAX_NODES:
        raise FormatError(f"stands for more than {_MAX_NODES} values; aliases multiply them")
    known[id(node)] = total
    return total


_KEY_TAGS: Final = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"})
