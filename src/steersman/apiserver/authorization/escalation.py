"""Privilege escalation: a user grants only rights that they hold. Pure.

Rules are broken down into single rights (one verb on one resource, one name or one path), and each must be covered by a
rule of the user who grants it. Patterns are compared as patterns: only `*` covers `*`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from steersman.kube.api.types.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FULL_AUTHORITY = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), non_resource_urls=("*",)),
)


def uncovered(held: Sequence[PolicyRule], granted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """What is granted and not held, with the verbs of one resource together."""
    missing: dict[str, PolicyRule] = {}
    for rule in granted:
        for single in _single_rights(rule):
            if not any(_covers(row, single) for row in held):
                key = describe_rule(msgspec.structs.replace(single, verbs=()))
                known = missing.setdefault(key, single)
                verbs = dict.fromkeys([*(known.verbs or ()), *(single.verbs or ())])
                missing[key] = msgspec.structs.replace(known, verbs=tuple(verbs))
    return list(missing.values())


def describe_rule(rule: PolicyRule) -> str:
    """The rule in one line, without what is empty."""
    fields = {
        "APIGroups": rule.api_groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.non_resource_urls,
        "ResourceNames": rule.resource_names,
        "Verbs": rule.verbs,
    }
    shown = (f"{name}:[{_quoted(values)}]" for name, values in fields.items() if values)
    return f"{{{', '.join(shown)}}}"


def _quoted(values: Sequence[str]) -> str:
    return " ".join(f'"{value}"' for value in values)


def _single_rights(rule: PolicyRule) -> Iterator[PolicyRule]:
    for verb in rule.verbs or ():
        for url in rule.non_resource_urls:
            yield PolicyRule(verbs=(verb,), non_resource_urls=(url,))
        for group in rule.api_groups:
            for resource in rule.resources:
                single = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
                if not rule.resource_names:
                    yield single
                for name in rule.resource_names:
                    yield msgspec.structs.replace(single, resource_names=(name,))


def _covers(held: PolicyRule, single: PolicyRule) -> bool:
    return (
        _has(held.verbs or (), single.verbs or ())
        and _has(held.api_groups, single.api_groups)
        and all(_covers_resource(held.resources, resource) for resource in single.resources)
        and (not held.resource_names or any(name in held.resource_names for name in single.resource_names))
        and all(_covers_url(held.non_resource_urls, url) for url in single.non_resource_urls)
    )


def _has(held: Sequence[str], wanted: Sequence[str]) -> bool:
    return "*" in held or all(value in held for value in wanted)


def _covers_resource(held: Sequence[str], resource: str) -> bool:
    if "*" in held or resource in held:
        return True
    _, _, subresource = resource.partition("/")
    return bool(subresource) and f"*/{subresource}" in held


def _covers_url(held: Sequence[str], url: str) -> bool:
    return any(row == url or (row.endswith("*") and url.startswith(row.rstrip("*"))) for row in held)
