"""The rules that the loader of a stock HolmesGPT applies to a file, checked without it. Pure.

Tests compare it with the real loader: a file without a problem here has no FAILED entry there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError
from steersman.operators.toolset.render.overrides import ENTRY_FIELDS
from steersman.operators.toolset.render.yaml import load

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECTIONS: Final = frozenset({"toolsets", "mcp_servers"})
_TYPES: Final = frozenset({"http", "mcp", "database", "mongodb"})


def check_holmes(text: str, *, max_bytes: int = 1_048_576) -> tuple[str, ...]:
    """The problems of a file; none when it loads."""
    try:
        value = load(text, max_bytes=max_bytes)
    except FormatError as error:
        return (str(error),)
    if not isinstance(value, dict) or not _SECTIONS.intersection(value):
        return ("has neither toolsets nor mcp_servers",)
    return tuple(_problems(value))


def _problems(value: dict[str, Any]) -> Iterable[str]:
    for path in _dotted(value, ""):
        yield f"{path}: a key with a dot rejects the whole file"
    for section, entries in value.items():
        if section not in _SECTIONS:
            yield f"{section}: is not a section"
        elif not isinstance(entries, dict) or not entries:
            yield f"{section}: must be a map that is not empty"
        else:
            for name, entry in entries.items():
                yield from (f"{section}.{name}: {problem}" for problem in _entry(section, name, entry))


def _entry(section: str, name: str, entry: Any) -> Iterable[str]:
    if not isinstance(entry, dict):
        yield "must be a map"
        return
    for field in sorted(entry.keys() - ENTRY_FIELDS):
        yield f"{field} is not a field of a toolset"
    if not isinstance(entry.get("enabled"), bool):
        yield "enabled must be true or false"
    config = entry.get("config") or {}
    if not isinstance(config, dict):
        yield "config must be a map"
        return
    if section == "mcp_servers" and not config.get("url"):
        yield "has no config.url"
    if section == "toolsets" and "/" not in name and name != "victorialogs":
        described = {"description", "tools"} <= entry.keys()
        if entry.get("type") not in _TYPES and not described and name not in _PLAIN_BUILT_INS:
            yield "is not a built-in toolset; set its type or its tools"
    names = [instance.get("name") for instance in config.get("instances") or () if isinstance(instance, dict)]
    if len(names) != len(set(names)):
        yield "has two instances of the same name"


def _dotted(value: Any, path: str) -> Iterable[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if "." in key:
                yield f"{path}[{key!r}]"
            yield from _dotted(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _dotted(item, f"{path}[{number}]")


_PLAIN_BUILT_INS: Final = frozenset({"internet", "bash", "skills", "runbook", "helm", "docker", "confluence", "notion"})
