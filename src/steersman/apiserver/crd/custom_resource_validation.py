"""Whether a custom resource satisfies the schema of its definition; every violation is a cause.

The rules are JSON Schema as kube-apiserver reads it, plus three that no keyword expresses: lists that are sets or maps
hold nothing twice, embedded resources are resources, and what the scale subresource shows can be shown. Of several
alternatives (anyOf, oneOf) the one that fits best explains itself. On an update, a part that did not change is not
reported again (*ratcheting*). Fields are visited in the order of the schema; the real server visits them in no order,
so only the set of causes is comparable.

Rules in CEL are evaluated afterwards (`validate_rules`), unless they could not rely on the schema.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from steersman.apiserver.crd.compiled_schema import PatternError
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.metadata_rules import metadata_causes
from steersman.apiserver.validation.names import is_dns1035_label, is_path_segment
from steersman.kube.api.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.crd.compiled_schema import SchemaNode, Structural
    from steersman.apiserver.resources.kinds import ResourceInfo, ScalePaths

JSON = dict[str, Any]

INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)
MAX_FLOAT32: Final = 3.4028234663852886e38
NIL: Final = "<nil>"  # how the API server names the field of a violation that belongs to the whole object
_sorted_json = msgspec.json.Encoder(order="deterministic").encode


class _Absent:
    """No earlier value to compare with. Unlike None, which is a value."""


_ABSENT: Final = _Absent()


class _Violation(NamedTuple):
    """A broken rule; its path is relative to the value that is validated."""

    cause: Cause
    whole: bool = False  # it is reported for the validated value as a whole

    def at(self, prefix: str) -> Cause:
        path = "" if self.whole else self.cause.field.removeprefix(".")
        field = ".".join(part for part in (prefix, path) if part)
        return Cause(self.cause.reason, self.cause.message, field or NIL)


Outcome = tuple[list[_Violation], int]  # the broken rules, and how many checks fitted


def validate(info: ResourceInfo, obj: JSON, old: JSON | None = None) -> list[Cause]:
    """Why a custom resource cannot be stored; empty when it can. `old` is what an update replaces."""
    structural: Structural = info.structural
    violations, _ = _check(structural.root, obj, "", _ABSENT if old is None else old)
    found = _causes(violations, "")
    found += _scale_causes(info.scale, obj)
    return found + _list_causes(structural.root, obj, old)


def validate_status(info: ResourceInfo, obj: JSON, old: JSON) -> list[Cause]:
    """Why the status of a custom resource cannot be stored."""
    structural: Structural = info.structural
    found: list[Cause] = []
    if structural.status is not None and "status" in obj:
        violations, _ = _check(structural.status, obj["status"], "", old.get("status"))
        found = _causes(violations, "status")
    found += _scale_causes(info.scale, obj, spec=False)
    return found + _list_causes(structural.root, obj, old)


def validate_rules(info: ResourceInfo, obj: JSON, old: JSON | None, found: list[Cause]) -> list[Cause]:
    """The rules in CEL that a custom resource breaks; `found` is everything else that is wrong with it."""
    structural: Structural = info.structural
    if structural.rules is None:
        return []
    from steersman.apiserver.crd.validation_rules import rule_causes, unchecked_cause

    unchecked = unchecked_cause(found)
    return rule_causes(structural.rules, obj, old) if unchecked is None else [unchecked]


def value_causes(node: SchemaNode, value: Any, path: str) -> list[Cause]:
    """Why a value does not satisfy `node`; `path` is the field that holds it."""
    violations, _ = _check(node, value, "", _ABSENT)
    return _causes(violations, path)


def _causes(violations: list[_Violation], prefix: str) -> list[Cause]:
    return [violation.at(prefix) for violation in dict.fromkeys(violations)]


def _invalid(path: str, value: Any, detail: str) -> _Violation:
    return _Violation(field_errors.invalid(path, value, detail))


def _check(node: SchemaNode, value: Any, path: str, old: Any) -> Outcome:
    """The broken rules of a value, and how many checks fitted (to find the best of several alternatives)."""
    if value is None:
        violations = _check_type(node, None, path)
        fitted = 0 if violations else 1
        violations = [*violations, *_check_enum(node, value, path)]
    else:
        violations, fitted = _check_present(node, value, path, old)
    if violations and value == old and type(value) is type(old):
        return [], fitted
    return violations, fitted


def _check_present(node: SchemaNode, value: Any, path: str, old: Any) -> Outcome:
    violations: list[_Violation] = []
    fitted = 1
    if node.types or node.format:
        wrong = _check_type(node, value, path)
        violations += wrong
        fitted += 1 if wrong else 2
    if node.any_of or node.one_of or node.all_of or node.negation:
        found, count = _check_combined(node, value, path, old)
        violations += found
        fitted += count
    fitted += 2  # the combinations fit as a whole, and so does the enumeration
    if isinstance(value, str):
        violations += _check_text(node, value, path)
        fitted += 1
        if node.format_check is not None:
            fitted += 1
            if not node.format_check(value):
                violations.append(_wrong_type(path, node.format, value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        violations += _check_number(node, value, path)
        fitted += 2
    elif isinstance(value, list):
        found, count = _check_list(node, value, path, old)
        violations += found
        fitted += 2 + count
    violations += _check_enum(node, value, path)
    fitted += 1
    if isinstance(value, dict):
        found, count = _check_map(node, value, path, old)
        violations += found
        fitted += 1 + count
    return violations, fitted


def _wrong_type(path: str, expected: str, actual: str) -> _Violation:
    return _Violation(field_errors.type_invalid(path, actual, f"must be of type {expected}"))


def _json_type(value: Any) -> tuple[str, str]:
    """The JSON type of a value, and the format of its number."""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, str):
        return "string", ""
    if isinstance(value, int):
        return ("integer", "int64") if value in INT64 else ("number", "float64")
    if isinstance(value, float):
        return "number", "float64"
    return ("array", "") if isinstance(value, list) else ("object", "")


def _check_type(node: SchemaNode, value: Any, path: str) -> list[_Violation]:
    types = node.types
    if value is None:
        return [] if not types or node.nullable else [_wrong_type(path, ",".join(types), "null")]
    actual, actual_format = _json_type(value)
    if actual in types:
        return []
    fits = ("integer" in types and actual == "number" and _integral(value)) or (
        "number" in types and actual == "integer"
    )
    textual = isinstance(value, str | list)
    numeric = "number" in types or "integer" in types
    if node.format and not textual and not fits and actual_format != node.format:
        return [_wrong_type(path, node.format, actual_format)]
    if fits or (node.format and textual and not numeric):
        return []
    return [_wrong_type(path, ",".join(types), actual)]


def _integral(value: float) -> bool:
    if math.isinf(value) or math.isnan(value) or abs(value) > 2**53 - 1:
        return False
    return abs(value - round(value)) < 1e-9


def _check_enum(node: SchemaNode, value: Any, path: str) -> list[_Violation]:
    if not node.enum or any(_same(value, allowed) for allowed in node.enum):
        return []
    return [_Violation(field_errors.not_supported(path, value, node.enum))]


def _same(value: Any, allowed: Any) -> bool:
    if value is None or allowed is None or isinstance(value, bool) != isinstance(allowed, bool):
        return False
    return bool(value == allowed)


def _check_text(node: SchemaNode, value: str, path: str) -> list[_Violation]:
    """Only the first broken rule of a text is reported."""
    if node.max_length is not None and len(value) > node.max_length:
        return [_Violation(field_errors.too_long(path, node.max_length))]
    if node.min_length is not None and len(value) < node.min_length:
        return [_invalid(path, value, f"must be at least {node.min_length} characters long")]
    if isinstance(node.pattern, PatternError):
        return [_invalid(path, value, f"pattern '{node.pattern_text}' of the schema is not valid: {node.pattern}")]
    if node.pattern is not None and not node.pattern.search(value):
        return [_invalid(path, value, f"must match '{node.pattern_text}'")]
    return []


def _check_number(node: SchemaNode, value: float, path: str) -> list[_Violation]:
    violations = _range_violations(node, value, "value", path)
    whole = isinstance(value, int) and value in INT64
    if node.multiple_of is not None:
        unusable = _range_violations(node, node.multiple_of, "multipleOf", path)
        violations += unusable
        violations += _check_multiple(node.multiple_of, value, path, whole=whole and not unusable)
    for limit, exclusive, sign, words in (
        (node.minimum, node.x_minimum, -1, "greater than"),
        (node.maximum, node.x_maximum, 1, "less than"),
    ):
        if limit is None:
            continue
        unusable = _range_violations(node, limit, "minimum" if sign < 0 else "maximum", path)
        violations += unusable
        bound = int(limit) if whole and not unusable else limit
        if sign * (value - bound) > 0 or (exclusive and value == bound):
            violations.append(_invalid(path, value, f"must be {words} {'' if exclusive else 'or equal to '}{bound}"))
    return violations


def _range_violations(node: SchemaNode, value: float, what: str, path: str) -> list[_Violation]:
    """Whether a number fits the numeric type of the node."""
    kind = node.types[0] if len(node.types) == 1 else ""
    format_name = node.format if kind in {"integer", "number"} else ""
    if kind == "integer":
        fits = float(value).is_integer() and int(value) in (INT32 if format_name == "int32" else INT64)
    else:
        fits = format_name != "float" or abs(value) <= MAX_FLOAT32
    return [] if fits else [_general(path, f"{what} must be of type {kind} {format_name}".rstrip())]


def _check_multiple(factor: float, value: float, path: str, *, whole: bool) -> list[_Violation]:
    if whole:
        factor = int(factor)
    if factor <= 0:
        return [_invalid(path, factor, "multipleOf of the schema must be positive")]
    ratio = 1 / factor * value if factor < 1 else value / factor
    if value % factor == 0 if whole else _integral(ratio):
        return []
    return [_invalid(path, value, f"must be a multiple of {factor}")]


def _check_list(node: SchemaNode, value: list[Any], path: str, old: Any) -> Outcome:
    violations: list[_Violation] = []
    fitted = 0
    if node.items is not None:
        earlier = _earlier_items(node, old)
        for at, item in enumerate(value):
            before = earlier.get(_item_key(node, item), _ABSENT) if earlier else _ABSENT
            found, count = _check(node.items, item, f"{path}[{at}]", before)
            violations += found
            fitted += count
    return violations + _size_violations(path, len(value), node.min_items, node.max_items, "items"), fitted


def _size_violations(path: str, size: int, least: int | None, most: int | None, noun: str) -> list[_Violation]:
    if least is not None and size < least:
        return [_invalid(path, size, f"must have at least {least} {noun}")]
    if most is not None and size > most:
        return [_Violation(field_errors.too_many(path, size, most))]
    return []


def _item_key(node: SchemaNode, item: Any) -> tuple[bytes, ...] | None:
    if not isinstance(item, dict):
        return None
    return tuple(_sorted_json(item.get(key)) for key in node.list_keys)


def _earlier_items(node: SchemaNode, old: Any) -> dict[Any, Any]:
    """The items of the earlier list by their keys; only items of lists that are maps can be told apart."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    return {key: item for item in old if (key := _item_key(node, item)) is not None}


def _check_map(node: SchemaNode, value: JSON, path: str, old: Any) -> Outcome:
    violations = _size_violations(path, len(value), node.min_properties, node.max_properties, "properties")
    fitted = 0
    before = old if isinstance(old, dict) else {}
    for key, item in value.items():
        child = node.properties.get(key)
        here = f"{path}.{key}"
        if child is not None:
            here = here if path else key
        elif node.closed:
            violations.append(_invalid(path, key, "must not have additional properties"))
            continue
        else:
            child = node.additional
        if child is None:
            continue
        earlier = _ABSENT if not path and key in {"kind", "apiVersion"} else before.get(key, _ABSENT)
        found, count = _check(child, item, here, earlier)
        violations += found
        fitted += count
    violations += [_Violation(field_errors.required(f"{path}.{key}")) for key in node.required if key not in value]
    return violations, fitted


def _check_combined(node: SchemaNode, value: Any, path: str, old: Any) -> Outcome:
    violations: list[_Violation] = []
    fitted = 0
    for alternatives, exactly_one in ((node.any_of, False), (node.one_of, True)):
        if alternatives:
            found, count = _check_alternatives(alternatives, value, path, old, exactly_one=exactly_one)
            violations += found
            fitted += count
    if node.all_of:
        outcomes = [_check_rules(part, value, path, old) for part in node.all_of]
        broken = [violation for found, _ in outcomes for violation in found]
        fitted += sum(count for _, count in outcomes)
        violations += [*broken, *([_general(path, "must satisfy all schemas of allOf")] if broken else [])]
    if node.negation is not None and not _check_rules(node.negation, value, path, old)[0]:
        violations.append(_general(path, "must not satisfy the schema of not"))
    return violations, fitted


def _check_rules(node: SchemaNode, value: Any, path: str, old: Any) -> Outcome:
    """Like `_check`, but an unchanged value excuses only its parts, not the rules of this node."""
    if value is None:
        return _check(node, None, path, _ABSENT)
    return _check_present(node, value, path, old)


def _general(path: str, text: str) -> _Violation:
    return _Violation(field_errors.invalid(path, "", f"{path.removeprefix('.')} {text}".lstrip()), whole=True)


def _check_alternatives(
    alternatives: tuple[SchemaNode, ...], value: Any, path: str, old: Any, *, exactly_one: bool
) -> Outcome:
    best: Outcome | None = None
    first: Outcome | None = None
    valid = 0
    for alternative in alternatives:
        outcome = _check_rules(alternative, value, path, old)
        if not outcome[0]:
            valid += 1
            first = first or outcome
            if not exactly_one:
                break
        elif not valid and (best is None or outcome[1] > best[1]):
            best = outcome
    if first is not None and (valid == 1 or not exactly_one):
        return first
    if valid:
        return [_general(path, f"must satisfy exactly one schema of oneOf, and satisfies {valid}")], 0
    wanted = "exactly one schema of oneOf, and satisfies none" if exactly_one else "at least one schema of anyOf"
    violations, fitted = best or ([], 0)
    return [_general(path, f"must satisfy {wanted}"), *violations], fitted


def _list_causes(root: SchemaNode, obj: JSON, old: JSON | None) -> list[Cause]:
    """Broken embedded resources, then duplicates in sets and maps.

    Duplicates are not reported when the stored object already has some, as on the real server.
    """
    if not root.holds_embedded and not root.holds_keyed:
        return []
    found = list(_embedded(root, obj, ""))
    repeated = list(_repeated(root, obj, ""))
    if repeated and (old is None or not any(True for _ in _repeated(root, old, ""))):
        found += repeated
    return found


def _child(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _children(node: SchemaNode, value: Any, path: str) -> Iterator[tuple[SchemaNode | None, Any, str]]:
    """The parts of a value, each with its schema and path."""
    if isinstance(value, list):
        yield from ((node.items, item, f"{path}[{at}]") for at, item in enumerate(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            if (below := node.properties.get(key)) is not None:
                yield below, item, _child(path, key)
            elif node.additional is not None:
                yield node.additional, item, f"{path}[{key}]"


def _repeated(node: SchemaNode | None, value: Any, path: str) -> Iterator[Cause]:
    if node is None or not node.holds_keyed:
        return
    if isinstance(value, list) and node.list_type == "set":
        yield from (field_errors.duplicate(f"{path}[{at}]", value[at]) for at in _second_occurrences(value))
    elif isinstance(value, list) and node.list_type == "map":
        yield from _repeated_keys(node, value, path)
    for below, item, where in _children(node, value, path):
        yield from _repeated(below, item, where)


def _repeated_keys(node: SchemaNode, value: list[Any], path: str) -> Iterator[Cause]:
    for at, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            yield field_errors.invalid(f"{path}[{at}]", item, "must be an object: the list is a map")
            return
    keys = [{key: item[key] for key in node.list_keys if key in item} if item else {} for item in value]
    for at in _second_occurrences(keys):
        yield field_errors.duplicate(f"{path}[{at}]", keys[at])


def _second_occurrences(items: list[Any]) -> list[int]:
    """Where a value appears for the second time; a third time says nothing new."""
    seen: dict[bytes, int] = {}
    found: list[int] = []
    for at, item in enumerate(items):
        key = _sorted_json(item)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            found.append(at)
    return found


def _embedded(node: SchemaNode | None, value: Any, path: str) -> Iterator[Cause]:
    if node is None or not node.holds_embedded:
        return
    if isinstance(value, dict) and node.embedded:
        yield from _resource_causes(value, path)
    for below, item, where in _children(node, value, path):
        yield from _embedded(below, item, where)


def _resource_causes(value: JSON, path: str) -> Iterator[Cause]:
    """Why an embedded object is not a Kubernetes resource."""
    for key in ("apiVersion", "kind"):
        field, given = _child(path, key), value.get(key)
        if key not in value:
            yield field_errors.required(field)
        elif not isinstance(given, str):
            yield field_errors.invalid(field, given, "must be a string")
        elif not given:
            yield field_errors.invalid(field, given, "must not be empty")
        elif key == "apiVersion" and given.count("/") > 1:
            yield field_errors.invalid(field, given, "must be VERSION or GROUP/VERSION")
        elif key == "kind" and (problems := is_dns1035_label(given.lower())):
            yield field_errors.invalid(field, given, f"in lower case: {', '.join(problems)}")
    if isinstance(metadata := value.get("metadata"), dict):
        named = metadata if metadata.get("name") else {**metadata, "name": "fakename"}
        yield from metadata_causes(
            named,
            namespaced=bool(named.get("namespace")),
            name_rule=is_path_segment,
            path=_child(path, "metadata"),
        )


def _scale_causes(scale: ScalePaths | None, obj: JSON, *, spec: bool = True) -> list[Cause]:
    """Whether the scale subresource can show the replicas and the selector of the object."""
    if scale is None:
        return []
    found: list[Cause] = []
    for path in (scale.spec_replicas, scale.status_replicas) if spec else (scale.status_replicas,):
        count = _at(obj, path)
        if not isinstance(count, int) or isinstance(count, bool) or count not in INT64:
            found += [] if count is None else [field_errors.invalid(path, 0, "must be an integer")]
        elif count < 0:
            found.append(field_errors.invalid(path, count, "must be a non-negative integer"))
        elif count not in INT32:
            found.append(field_errors.invalid(path, count, f"must be less than or equal to {INT32[-1]}"))
    if scale.selector and not isinstance(_at(obj, scale.selector) or "", str):
        found.append(field_errors.invalid(scale.selector, "", "must be a string"))
    return found


def _at(obj: JSON, path: str) -> Any:
    """The value at a dotted path: None when it is not there, the last value met when the path leads through it."""
    value: Any = obj
    for part in path.removeprefix(".").split("."):
        if not isinstance(value, dict):
            return value
        if part not in value:
            return None
        value = value[part]
    return [] if value is None else value  # an explicit null is not a number
