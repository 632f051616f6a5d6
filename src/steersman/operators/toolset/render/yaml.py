"""YAML, written in one way and parsed within bounds.

Written: the same value always gives the same bytes: block style, fields in the given order, no folded lines, no
aliases. Text is quoted unless it is a plain word that every parser reads as text. Parsed: bounded in size, depth and
what aliases expand to; a duplicate key is an error; keys are text.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from msgspec.structs import replace

from steersman.bounded_parsing import Budget, PlainLoader, check_yaml
from steersman.errors import FormatError

GENERATED: Final = "# Auto-generated, do not edit; use overrides.yaml\n"
MAX_BYTES: Final = 256 * 1024
_BUDGET: Final = Budget(size=MAX_BYTES, nodes=20_000, expanded=4 * MAX_BYTES, depth=32)
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_NO_FOLDING: Final = 1 << 30  # columns
_WORDS: Final = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"])


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # chosen at run time
    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> yaml.Node:
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    node: yaml.Node = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')
    return node


_Dumper.add_representer(str, _represent_text)


def dump(value: dict[str, Any]) -> str:
    """Encode a value as YAML."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=_NO_FOLDING
    )
    return text


def load(text: str, *, max_bytes: int = MAX_BYTES) -> Any:
    """Parse a YAML text; FormatError names the problem and never repeats the content."""
    try:
        check_yaml(text, replace(_BUDGET, size=max_bytes, expanded=max(_BUDGET.expanded, max_bytes)))
        loader = PlainLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None
            _check_keys(root)
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


def _check_keys(root: yaml.Node) -> None:
    """Reject keys that are not text and duplicate keys; a node that several aliases name is checked once."""
    known, stack = set[int](), [root]
    while stack:
        node = stack.pop()
        if id(node) in known:
            continue
        known.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode) or key.tag not in _KEY_TAGS:
                    raise FormatError(f"has a key that is not text in line {line}")
                if key.value in seen:
                    raise FormatError(f"has the key {key.value[:100]!r} twice, the second time in line {line}")
                seen.add(key.value)
                stack.append(value)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)


_KEY_TAGS: Final = frozenset({"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"})
