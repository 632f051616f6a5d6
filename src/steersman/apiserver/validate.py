"""Whether a custom resource keeps the rules of its schema, and if not, why, in the server's own words.

The rules are JSON Schema as kube-apiserver reads it: every rule of a node is checked, every broken one is a cause, and
of several alternatives the best fitting one explains itself. On an update, a part that did not change is not held
against the writer (*ratcheting*). Fields are visited in the order of the schema; the real server visits them in no
order at all, so only the set of causes is comparable.

Rules in CEL (`x-kubernetes-validations`) are not evaluated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from steersman.apiserver import causes
from steersman.apiserver.causes import Cause, go_float, go_json, go_quote
from steersman.apiserver.listtypes import list_causes
from steersman.apiserver.regexps import RegexpError
from steersman.apiserver.scalepaths import scale_causes

if TYPE_CHECKING:
    from steersman.apiserver.kinds import ResourceInfo
    from steersman.apiserver.structural import Node, Structural

__all__ = ["validate", "validate_status", "value_causes"]

MAX_INT32: Final = 2**31 - 1
MIN_INT32: Final = -(2**31)
MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)
MAX_FLOAT32: Final = 3.4028234663852886e38
NIL: Final = "<nil>"  # how the server names the field of an error that belongs to the whole object


class _Absent:
    """No earlier value to compare with. Unlike None, which is a value."""


_ABSENT: Final = _Absent()


class _Problem:
    """A broken rule before it is worded as a cause. `text` is also its identity: said once is enough."""

    __slots__ = ("kind", "limit", "name", "text", "value", "values")

    def __init__(
        self,
        kind: str,
        name: str,
        text: str,
        *,
        value: Any = None,
        limit: int = -1,
        values: list[Any] | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.text = text
        self.value = value
        self.limit = limit
        self.values = values

    def cause(self, prefix: str) -> Cause:
        name = self.name.removeprefix(".")
        field = ".".join(part for part in (prefix, name) if part) or NIL
        if self.kind == "general":
            return causes.invalid(prefix or NIL, "", self.text)
        if self.kind == "required":
            return causes.required(field)
        if self.kind == "enum":
            allowed = [item if isinstance(item, str) else go_json(item) for item in self.values or ()]
            return causes.not_supported(field, self.value, allowed)
        if self.kind == "long":
            return causes.too_long(field, self.limit)
        if self.kind == "many":
            return causes.too_many(field, self.value, self.limit)
        value = "" if self.value is None else self.value
        if self.kind == "type":
            return causes.type_invalid(field, value, self.text)
        return causes.invalid(field, value, self.text)


def validate(info: ResourceInfo, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[Cause]:
    """Why a custom resource cannot be stored; empty when it can. `old` is what an update replaces."""
    structural: Structural = info.structural
    problems, _ = _check(structural.root, obj, "", _ABSENT if old is None else old)
    found = _worded(problems, "")
    found += scale_causes(info.scale, obj)
    found += list_causes(structural.root, obj, old)
    return found


def validate_status(info: ResourceInfo, obj: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Why the status of a custom resource cannot be stored."""
    structural: Structural = info.structural
    found: list[Cause] = []
    if structural.status is not None and "status" in obj:
        problems, _ = _check(structural.status, obj["status"], "", old.get("status"))
        found = _worded(problems, "status")
    found += scale_causes(info.scale, obj, spec=False)
    found += list_causes(structural.root, obj, old)
    return found


def value_causes(node: Node, value: Any, path: str) -> list[Cause]:
    """Why a value cannot stand where `node` is; `path` is the field that holds it."""
    problems, _ = _check(node, value, "", _ABSENT)
    return _worded(problems, path)


def _worded(problems: list[_Problem], prefix: str) -> list[Cause]:
    unique = {problem.text: problem for problem in reversed(problems)}
    return [problem.cause(prefix) for problem in reversed(unique.values())]


def _check(node: Node, value: Any, path: str, old: Any) -> tuple[list[_Problem], int]:
    """The broken rules of a value, and how many checks fitted (to tell the best of several alternatives)."""
    if value is None:
        problems = _check_type(node, None, path)
        fitted = 0 if problems else 1
        problems = [*problems, *_check_enum(node, value, path)]
    else:
        problems, fitted = _check_present(node, value, path, old)
    if problems and value == old and type(value) is type(old):
        return [], fitted
    return problems, fitted


def _check_present(node: Node, value: Any, path: str, old: Any) -> tuple[list[_Problem], int]:
    problems: list[_Problem] = []
    fitted = 1
    if node.types or node.format:
        wrong = _check_type(node, value, path)
        problems += wrong
        fitted += 1 if wrong else 2
    if node.any_of or node.one_of or node.all_of or node.negation:
        found, count = _check_combined(node, value, path, old)
        problems += found
        fitted += count
    fitted += 2  # the combinations fit as a whole, and so does the enumeration
    if isinstance(value, str):
        problems += _check_text(node, value, path)
        fitted += 1
        if node.format_check is not None:
            fitted += 1
            if not node.format_check(value):
                problems.append(_type_problem(path, node.format, value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        problems += _check_number(node, value, path)
        fitted += 2
    elif isinstance(value, list):
        found, count = _check_list(node, value, path, old)
        problems += found
        fitted += 2 + count
    problems += _check_enum(node, value, path)
    fitted += 1
    if isinstance(value, dict):
        found, count = _check_map(node, value, path, old)
        problems += found
        fitted += 1 + count
    return problems, fitted


def _type_problem(path: str, expected: str, actual: str) -> _Problem:
    return _Problem("type", path, f"{path} in body must be of type {expected}: {go_quote(actual)}", value=actual)


def _json_type(value: Any) -> tuple[str, str]:
    """The JSON type of a value and the format of its Go type."""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, str):
        return "string", ""
    if isinstance(value, int):
        return ("integer", "int64") if MIN_INT64 <= value <= MAX_INT64 else ("number", "float64")
    if isinstance(value, float):
        return "number", "float64"
    return ("array", "") if isinstance(value, list) else ("object", "")


def _check_type(node: Node, value: Any, path: str) -> list[_Problem]:
    types = node.types
    if value is None:
        return [] if not types or node.nullable else [_type_problem(path, ",".join(types), "null")]
    actual, actual_format = _json_type(value)
    if actual in types:
        return []
    fits = ("integer" in types and actual == "number" and _integral(value)) or (
        "number" in types and actual == "integer"
    )
    textual = isinstance(value, str | list)
    numeric = "number" in types or "integer" in types
    if node.format and not textual and not fits and actual_format != node.format:
        return [_type_problem(path, node.format, actual_format)]
    if fits or (node.format and textual and not numeric):
        return []
    return [_type_problem(path, ",".join(types), actual)]


def _integral(value: float) -> bool:
    if math.isinf(value) or math.isnan(value) or abs(value) > 2**53 - 1:
        return False
    return abs(value - round(value)) < 1e-9


def _check_enum(node: Node, value: Any, path: str) -> list[_Problem]:
    if not node.enum or any(_same(value, allowed) for allowed in node.enum):
        return []
    return [_Problem("enum", path, f"{path} in body should be one of {node.enum}", value=value, values=node.enum)]


def _same(value: Any, allowed: Any) -> bool:
    if value is None or allowed is None or isinstance(value, bool) != isinstance(allowed, bool):
        return False
    return bool(value == allowed)


def _check_text(node: Node, value: str, path: str) -> list[_Problem]:
    """Only the first broken rule of a text is reported."""
    if node.max_length is not None and len(value) > node.max_length:
        text = f"{path} in body should be at most {node.max_length} chars long"
        return [_Problem("long", path, text, limit=node.max_length)]
    if node.min_length is not None and len(value) < node.min_length:
        text = f"{path} in body should be at least {node.min_length} chars long"
        return [_Problem("invalid", path, text, value=value)]
    if isinstance(node.pattern, RegexpError):
        text = f"{path} in body should match '{node.pattern_text}, but pattern is invalid: {node.pattern}'"
        return [_Problem("invalid", path, text, value=value)]
    if node.pattern is not None and not node.pattern.search(value):
        return [_Problem("invalid", path, f"{path} in body should match '{node.pattern_text}'", value=value)]
    return []


def _check_number(node: Node, value: float, path: str) -> list[_Problem]:
    problems = _range_problems(node, value, "Checked", path)
    whole = isinstance(value, int) and MIN_INT64 <= value <= MAX_INT64
    if node.multiple_of is not None:
        unusable = _range_problems(node, node.multiple_of, "MultipleOf", path)
        problems += unusable
        problems += _check_multiple(node.multiple_of, value, path, whole=whole and not unusable)
    for limit, exclusive, sign, words in (
        (node.minimum, node.x_minimum, -1, "greater than"),
        (node.maximum, node.x_maximum, 1, "less than"),
    ):
        if limit is None:
            continue
        name = "Minimum boundary" if sign < 0 else "Maximum boundary"
        unusable = _range_problems(node, limit, name, path)
        problems += unusable
        bound = int(limit) if whole and not unusable else limit
        if sign * (value - bound) > 0 or (exclusive and value == bound):
            shown = str(bound) if isinstance(bound, int) else go_float(bound)
            text = f"{path} in body should be {words} {'' if exclusive else 'or equal to '}{shown}"
            problems.append(_Problem("invalid", path, text, value=value if whole else float(value)))
    return problems


def _range_problems(node: Node, value: float, what: str, path: str) -> list[_Problem]:
    """Whether a number fits the numeric type of the node."""
    kind = node.types[0] if len(node.types) == 1 else ""
    format_name = node.format if kind in {"integer", "number"} else ""
    if kind == "integer":
        low, high = (MIN_INT32, MAX_INT32) if format_name == "int32" else (MIN_INT64, MAX_INT64)
        fits = float(value).is_integer() and low <= value <= high
    else:
        fits = format_name != "float" or abs(value) <= MAX_FLOAT32
    if fits:
        return []
    how = f"with format {format_name}" if format_name else "(default format)"
    return [_Problem("general", path, f"{what} value must be of type {kind} {how} in {path}")]


def _check_multiple(factor: float, value: float, path: str, *, whole: bool) -> list[_Problem]:
    if whole:
        factor = int(factor)
    shown = str(factor) if isinstance(factor, int) else go_float(factor)
    if factor <= 0:
        text = f"factor MultipleOf declared for {path} must be positive: {shown}"
        return [_Problem("invalid", path, text, value=factor)]
    ratio = 1 / factor * value if factor < 1 else value / factor
    if value % factor == 0 if whole else _integral(ratio):
        return []
    text = f"{path} in body should be a multiple of {shown}"
    return [_Problem("invalid", path, text, value=value if whole else float(value))]


def _check_list(node: Node, value: list[Any], path: str, old: Any) -> tuple[list[_Problem], int]:
    problems: list[_Problem] = []
    fitted = 0
    if node.items is not None:
        earlier = _earlier_items(node, old)
        for at, item in enumerate(value):
            before = earlier.get(_item_key(node, item), _ABSENT) if earlier else _ABSENT
            found, count = _check(node.items, item, f"{path}[{at}]", before)
            problems += found
            fitted += count
    size = len(value)
    if node.min_items is not None and size < node.min_items:
        text = f"{path} in body should have at least {node.min_items} items"
        problems.append(_Problem("invalid", path, text, value=size))
    if node.max_items is not None and size > node.max_items:
        text = f"{path} in body should have at most {node.max_items} items"
        problems.append(_Problem("many", path, text, value=size, limit=node.max_items))
    return problems, fitted


def _item_key(node: Node, item: Any) -> tuple[Any, ...] | None:
    if not isinstance(item, dict):
        return None
    return tuple(go_json(item.get(key)) for key in node.list_keys)


def _earlier_items(node: Node, old: Any) -> dict[Any, Any]:
    """The items of the earlier list by their keys; only lists that are maps have items one can tell apart."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    return {key: item for item in old if (key := _item_key(node, item)) is not None}


def _check_map(node: Node, value: dict[str, Any], path: str, old: Any) -> tuple[list[_Problem], int]:
    problems: list[_Problem] = []
    fitted = 0
    size = len(value)
    if node.min_properties is not None and size < node.min_properties:
        text = f"{path} in body should have at least {node.min_properties} properties"
        problems.append(_Problem("invalid", path, text, value=size))
    if node.max_properties is not None and size > node.max_properties:
        text = f"{path} in body should have at most {node.max_properties} properties"
        problems.append(_Problem("many", path, text, value=size, limit=node.max_properties))
    before = old if isinstance(old, dict) else {}
    for key, item in value.items():
        child = node.properties.get(key)
        here = f"{path}.{key}"
        if child is not None:
            here = here if path else key
        elif node.closed:
            problems.append(_Problem("invalid", path, f"{here} in body is a forbidden property", value=key))
            continue
        else:
            child = node.additional
        if child is None:
            continue
        earlier = _ABSENT if not path and key in {"kind", "apiVersion"} else before.get(key, _ABSENT)
        found, count = _check(child, item, here, earlier)
        problems += found
        fitted += count
    for key in node.required:
        if key not in value:
            problems.append(_Problem("required", f"{path}.{key}", f"{path}.{key} in body is required"))
    return problems, fitted


def _check_combined(node: Node, value: Any, path: str, old: Any) -> tuple[list[_Problem], int]:
    problems: list[_Problem] = []
    fitted = 0
    for alternatives, exactly_one in ((node.any_of, False), (node.one_of, True)):
        if alternatives:
            found, count = _check_alternatives(alternatives, value, path, old, exactly_one=exactly_one)
            problems += found
            fitted += count
    if node.all_of:
        outcomes = [_check_rules(part, value, path, old) for part in node.all_of]
        broken = [found for found, _ in outcomes if found]
        fitted += sum(count for _, count in outcomes)
        problems += [problem for found in broken for problem in found]
        if broken:
            none = ". None validated" if len(broken) == len(outcomes) else ""
            problems.append(_general(path, f"must validate all the schemas (allOf){none}"))
    if node.negation is not None and not _check_rules(node.negation, value, path, old)[0]:
        problems.append(_general(path, "must not validate the schema (not)"))
    return problems, fitted


def _check_rules(node: Node, value: Any, path: str, old: Any) -> tuple[list[_Problem], int]:
    """Like `_check`, but an unchanged value excuses only its parts, not the rules of this node."""
    if value is None:
        return _check(node, None, path, _ABSENT)
    return _check_present(node, value, path, old)


def _general(path: str, text: str) -> _Problem:
    return _Problem("general", path, f"{go_quote(path)} {text}")


def _check_alternatives(
    alternatives: tuple[Node, ...], value: Any, path: str, old: Any, *, exactly_one: bool
) -> tuple[list[_Problem], int]:
    best: tuple[list[_Problem], int] | None = None
    first: tuple[list[_Problem], int] | None = None
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
        text = f"must validate one and only one schema (oneOf). Found {valid} valid alternatives"
        return [_general(path, text)], 0
    words = "one and only one schema (oneOf). Found none valid" if exactly_one else "at least one schema (anyOf)"
    problems, fitted = best or ([], 0)
    return [_general(path, f"must validate {words}"), *problems], fitted
