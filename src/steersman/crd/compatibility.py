"""Which changes of a definition break what worked with its last release.

Compatible means: every object that the last release accepted is still accepted and keeps its fields, and every program
that reads one finds them where they were, with the same type. So versions and fields stay, types stay, nothing new is
required, and validation only gets wider. A version that the last release had deprecated may go.

Rules in CEL are compared as text: a rule that was not there before may reject what was accepted. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from steersman.crd.findings import DefinitionFinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["incompatible_changes"]

JSON = dict[str, Any]
Problem = tuple[str, str, str]  # field, problem, solution

NEW_VERSION: Final = "make the change in a new version of the kind, and keep this one as it was"
WIDER: Final = "accept what the last release accepted, or make the change in a new version of the kind"
LOWER: Final = ("maximum", "maxLength", "maxItems", "maxProperties")  # a lower number accepts less
HIGHER: Final = ("minimum", "minLength", "minItems", "minProperties")
COMBINED: Final = ("allOf", "anyOf", "oneOf", "not")
WIDENED_FORMATS: Final = frozenset({("int32", "int64"), ("float", "double")})


def incompatible_changes(earlier: Iterable[JSON], now: Iterable[JSON]) -> list[DefinitionFinding]:
    """What breaks users of the `earlier` definitions; a kind that is new cannot."""
    current = {manifest["metadata"]["name"]: manifest for manifest in now}
    found: list[DefinitionFinding] = []
    for old in earlier:
        name = old["spec"]["names"]["kind"]
        new = current.get(old["metadata"]["name"])
        if new is None:
            way_out = "keep the definition until no cluster has objects of the kind"
            found.append(DefinitionFinding(kind=name, field="", problem="the kind was removed", solution=way_out))
        else:
            found += _definition(name, old["spec"], new["spec"])
    return found


def _definition(kind: str, old: JSON, new: JSON) -> Iterator[DefinitionFinding]:
    for field, was, is_now in (
        ("scope", old["scope"], new["scope"]),
        ("names.kind", old["names"]["kind"], new["names"]["kind"]),
    ):
        if was != is_now:
            problem = f"{field} changed from {was} to {is_now}, which API servers refuse"
            yield DefinitionFinding(kind=kind, field="", problem=problem, solution="define another kind")
    versions = {version["name"]: version for version in new["versions"]}
    for before in old["versions"]:
        name = f"{kind} {before['name']}"
        after = versions.get(before["name"])
        for field, problem, solution in _version(before, after):
            yield DefinitionFinding(kind=name, field=field, problem=problem, solution=solution)


def _version(old: JSON, new: JSON | None) -> Iterator[Problem]:
    if new is None and old.get("storage"):
        yield (
            "",
            "the version was removed, and objects may be stored in it",
            "keep it, and migrate stored objects first",
        )
    elif old.get("served") and not old.get("deprecated") and (new is None or not new.get("served")):
        yield "", "the version is no longer served", "serve it with deprecated=True for a release before it goes"
    if new is None:
        return
    for name in sorted((old.get("subresources") or {}).keys() - (new.get("subresources") or {}).keys()):
        yield "", f"the subresource {name} was removed", NEW_VERSION
    selectable = {row["jsonPath"] for row in new.get("selectableFields") or ()}
    for row in old.get("selectableFields") or ():
        if row["jsonPath"] not in selectable:
            yield (
                row["jsonPath"].removeprefix("."),
                "can no longer be used in field selectors",
                "add Selectable() again",
            )
    yield from _schema(_root(old), _root(new), "")


def _root(version: JSON) -> JSON:
    schema: JSON = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _schema(old: JSON, new: JSON, path: str) -> Iterator[Problem]:
    if (was := _type(old)) != (is_now := _type(new)):
        yield path, f"the type changed from {was} to {is_now}", NEW_VERSION
        return
    for problem in _narrower(old, new):
        yield path, problem, WIDER
    if "default" in old and old["default"] != new.get("default"):
        problem = f"the default changed from {old['default']!r} to {new.get('default')!r}"
        yield path, problem, "keep the default: objects that leave the field out would change their meaning"
    yield from _properties(old, new, path)
    for key, step in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
            yield from _schema(old[key], new[key], path + step)


def _properties(old: JSON, new: JSON, path: str) -> Iterator[Problem]:
    fields = new.get("properties") or {}
    for name, before in (old.get("properties") or {}).items():
        below = f"{path}.{name}" if path else name
        if name in fields:
            yield from _schema(before, fields[name], below)
        elif not new.get("x-kubernetes-preserve-unknown-fields"):
            yield below, "the field was removed", "keep the field, and say in its description that it has no effect"
    for name in new.get("required") or ():
        if name not in (old.get("required") or ()) and "default" not in fields.get(name, {}):
            yield f"{path}.{name}" if path else name, "the field is now required", "give it a default, or None"


def _type(node: JSON) -> str:
    """The type as people call it, with what a map or a list holds."""
    if node.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    kind = str(node.get("type") or "any")
    if kind != "object":
        return kind
    if isinstance(node.get("additionalProperties"), dict):
        return "map"
    return "object"


def _narrower(old: JSON, new: JSON) -> Iterator[str]:
    """What the new node rejects, or drops, although the old one took it."""
    yield from _bounds(old, new)
    for key in ("pattern", "multipleOf"):
        if new.get(key) is not None and new[key] != old.get(key):
            yield f"{key} is now {new[key]}"
    was, is_now = old.get("format"), new.get("format")
    if is_now and is_now != was and (was, is_now) not in WIDENED_FORMATS:
        yield f"the format is now {is_now}"
    if gone := [value for value in old.get("enum") or () if value not in (new.get("enum") or old["enum"])]:
        yield f"no longer accepts {', '.join(map(str, gone))}"
    if new.get("enum") and not old.get("enum"):
        yield f"accepts only {', '.join(map(str, new['enum']))}"
    if old.get("nullable") and not new.get("nullable"):
        yield "no longer accepts null"
    if old.get("x-kubernetes-preserve-unknown-fields") and not new.get("x-kubernetes-preserve-unknown-fields"):
        yield "drops fields that the schema does not name"
    for key in COMBINED:
        if new.get(key) is not None and new[key] != old.get(key):
            yield f"{key} has changed"
    known = {rule["rule"] for rule in old.get("x-kubernetes-validations") or ()}
    for rule in new.get("x-kubernetes-validations") or ():
        if rule["rule"] not in known:
            yield f"has a new rule: {rule.get('message') or rule['rule']}"
    yield from _list_type(old, new)


def _bounds(old: JSON, new: JSON) -> Iterator[str]:
    sides: list[tuple[tuple[str, ...], Callable[[float, float], bool]]] = [
        (LOWER, lambda new_bound, old_bound: new_bound < old_bound),
        (HIGHER, lambda new_bound, old_bound: new_bound > old_bound),
    ]
    for keys, is_narrower in sides:
        for key in keys:
            if (bound := new.get(key)) is None or (key.startswith("min") and key != "minimum" and bound == 0):
                continue
            if old.get(key) is None or is_narrower(bound, old[key]):
                yield f"{key} is now {bound}"
            exclusive = f"exclusive{key[0].upper()}{key[1:]}"
            if new.get(exclusive) and not old.get(exclusive) and bound == old.get(key):
                yield f"{key} no longer includes {bound}"


def _list_type(old: JSON, new: JSON) -> Iterator[str]:
    was, is_now = (node.get("x-kubernetes-list-type", "atomic") for node in (old, new))
    keys = [node.get("x-kubernetes-list-map-keys") for node in (old, new)]
    if was != is_now:
        yield f"the list type changed from {was} to {is_now}"
    elif keys[0] != keys[1]:
        yield f"the list is now identified by {', '.join(keys[1] or ())}"
    if new.get("x-kubernetes-map-type", "granular") != old.get("x-kubernetes-map-type", "granular"):
        yield f"the map type changed to {new.get('x-kubernetes-map-type', 'granular')}"
