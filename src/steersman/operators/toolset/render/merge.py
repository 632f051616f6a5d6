"""Parts joined into one loadable file, for a consumer that reads one file. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.errors import FormatError
from steersman.operators.toolset.render.yaml import GENERATED, dump, load

if TYPE_CHECKING:
    from collections.abc import Iterable

_LIMIT = 64 * 1024 * 1024


def join_files(texts: Iterable[str]) -> str:
    """The files as one: entries of different names side by side, instances of one name in one list."""
    merged: dict[str, dict[str, Any]] = {}
    for text in texts:
        value = load(text, max_bytes=_LIMIT)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise FormatError("is not a file of toolsets")
        for section, entries in value.items():
            for name, entry in (entries or {}).items():
                known = merged.setdefault(section, {}).get(name)
                merged[section][name] = entry if known is None else _both(known, entry)
    ordered = {
        section: dict(sorted(merged[section].items())) for section in ("toolsets", "mcp_servers") if merged.get(section)
    }
    return GENERATED + dump(ordered)


def _both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One toolset from two parts: its instances in one list, ordered by name."""
    if first == second:
        return first
    instances = {item["name"]: item for entry in (first, second) for item in _instances(entry)}
    head = {key: value for key, value in first.items() if key != "config"}
    return {**head, "config": {"instances": [instances[name] for name in sorted(instances)]}}


def _instances(entry: dict[str, Any]) -> list[dict[str, Any]]:
    config = entry.get("config") or {}
    if "instances" in config:
        return list(config["instances"])
    url = next((str(config[field]) for field in ("prometheus_url", "api_url", "url") if field in config), "default")
    host = url.partition("://")[2].partition(":")[0].split(".")
    name = f"{host[1]}-{host[0]}" if len(host) > 1 else host[0]
    return [{"name": name, **config}]
