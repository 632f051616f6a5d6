"""Is the definition in the cluster the one the code expects?

A server adds defaults to a definition it stores; those are not drift. What the code wants and the server does not have
is, and so is a schema that says something else.
"""

from __future__ import annotations

from typing import Any

__all__ = ["drift"]


def drift(live: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Where `live` differs from `wanted`, as one sentence per place; empty when it will do."""
    found: list[str] = []
    have = {version["name"]: version for version in live["spec"]["versions"]}
    for field in ("group", "scope"):
        _compare(live["spec"].get(field), wanted["spec"][field], f"spec.{field}", found)
    for name in ("kind", "plural"):
        _compare(live["spec"]["names"].get(name), wanted["spec"]["names"][name], f"spec.names.{name}", found)
    for version in wanted["spec"]["versions"]:
        where = f"version {version['name']}"
        if version["name"] not in have:
            found.append(f"{where} is missing")
            continue
        served = have[version["name"]]
        if not served.get("served"):
            found.append(f"{where} is not served")
        for part in ("schema", "subresources"):
            _compare(served.get(part, {}), version.get(part, {}), f"{where}: {part}", found)
    return found


def _compare(live: Any, wanted: Any, where: str, found: list[str]) -> None:
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key, value in wanted.items():
            if key == "description":
                continue
            if key not in live:
                found.append(f"{where}.{key} is missing")
            else:
                _compare(live[key], value, f"{where}.{key}", found)
        if where.endswith(".properties"):
            found.extend(f"{where}.{key} is not expected" for key in sorted(live.keys() - wanted.keys()))
    elif isinstance(wanted, list) and isinstance(live, list) and len(live) == len(wanted):
        for number, (actual, expected) in enumerate(zip(live, wanted, strict=True)):
            _compare(actual, expected, f"{where}[{number}]", found)
    elif live != wanted:
        found.append(f"{where} is {live!r}, not {wanted!r}")
