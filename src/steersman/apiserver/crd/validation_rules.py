"""The rules of a schema in CEL: `x-kubernetes-validations`, compiled with the definition and evaluated on every write.

`compile_rules` turns a schema into a tree of the nodes that have rules at or below them, and reports what is wrong
with a rule as a cause at that rule. `rule_causes` walks an object along that tree. A rule with `oldSelf` is a
*transition rule*: it is evaluated only where the value can be found in the stored object, which is everywhere except
in lists that are not maps. A rule that does not hold for an unchanged value is not reported again (*ratcheting*).

The work of one write is limited: the interpreter stops a rule whose loops take too many steps, and after
`MAX_EVALUATIONS` no further rule is evaluated. Either is a violation, and the last one that is reported. Not done: an
estimate of the cost when the definition is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steersman.apiserver.cel.expressions import (
    INSTALL,
    LONGEST_MESSAGE,
    CELEnvironment,
    CostLimitExceeded,
    EvaluationError,
    ExpressionError,
    is_installed,
)
from steersman.apiserver.cel.schema_types import SchemaTypes, converter
from steersman.apiserver.validation import field_errors
from steersman.kube.api.errors import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.apiserver.cel.expressions import CompiledExpression, Type

JSON = dict[str, Any]
Reorder = Callable[[Any, Any], Any]

VALIDATIONS: Final = "x-kubernetes-validations"
REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
WHOLE: Final = "<nil>"  # the field of a violation that belongs to the whole object
MAX_EVALUATIONS: Final = 50_000  # of rules for one write: about a third of a second
# Causes after which rules are not evaluated: they could not rely on the schema.
_BLOCKING: Final = frozenset(
    f"FieldValue{name}" for name in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)
_TEXTS: Final = ("rule", "message", "messageExpression", "reason", "fieldPath")
_PATH_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)+)'\]")


class CompiledRule(NamedTuple):
    """One compiled rule."""

    holds: CompiledExpression
    holds_without_old: CompiledExpression | None  # with `optionalOldSelf`, and no stored value
    message: CompiledExpression | None  # the expression that makes the message
    text: str
    reason: str
    field: str  # relative to the node
    uses_old: bool


class RuleNode:
    """A node of a schema with rules, or with rules below it."""

    __slots__ = (
        "additional",
        "convert",
        "environment",
        "is_scalar",
        "items",
        "list_keys",
        "properties",
        "reorder",
        "rules",
    )

    def __init__(self, schema: JSON) -> None:
        self.rules: list[CompiledRule] = []
        self.environment: CELEnvironment | None = None
        self.convert: Callable[[Any], Any] | None = None
        self.reorder: Reorder | None = None
        self.is_scalar = schema.get("type") not in {"object", "array"}
        self.properties: dict[str, RuleNode] = {}
        self.additional: RuleNode | None = None
        self.items: RuleNode | None = None
        is_map = schema.get("x-kubernetes-list-type") == "map"
        self.list_keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if is_map else ()

    def is_empty(self) -> bool:
        """Whether there is nothing to evaluate here or below."""
        return not (self.rules or self.properties or self.additional or self.items)


def compile_rules(schema: JSON, path: str = "") -> tuple[RuleNode | None, list[Cause]]:
    """The rules of a structural schema, and what is wrong with them; `path` is the field that holds the schema."""
    place = next(_places(schema, path), None)
    if place is None:
        return None, []
    if not is_installed():
        return None, [field_errors.forbidden(f"{place}[0].rule", INSTALL)]
    compiler = _Compiler(schema)
    root = compiler.node(schema, path, resource=True)
    if not compiler.causes:
        for node, default, where in compiler.defaults:
            found = list(_violations(node, default, where, default, None))
            compiler.causes += found or _violations(node, default, where, None, None)
    return root, compiler.causes


def _places(schema: JSON, path: str) -> Iterator[str]:
    """The fields of a schema that hold rules."""
    if schema.get(VALIDATIONS):
        yield f"{path}.{VALIDATIONS}"
    for name, child in (schema.get("properties") or {}).items():
        yield from _places(child, f"{path}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(child := schema.get(key), dict):
            yield from _places(child, f"{path}.{key}")


def declaration_causes(schema: JSON, path: str) -> Iterator[Cause]:
    """What is wrong with the rules of one node before any expression is compiled."""
    for at, rule in enumerate(schema.get(VALIDATIONS) or ()):
        here = f"{path}.{VALIDATIONS}[{at}]"
        if not isinstance(rule, dict) or not all(isinstance(rule.get(name) or "", str) for name in _TEXTS):
            yield field_errors.invalid(here, rule, "must be an object with a rule, which is a text")
            continue
        source, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
        if not source:
            yield field_errors.required(f"{here}.rule", "rule is not specified")
        elif message and not message.strip():
            yield field_errors.invalid(f"{here}.message", message, "must be non-empty if specified")
        elif "\n" in message.strip():
            yield field_errors.invalid(f"{here}.message", message, "must not contain line breaks")
        elif "\n" in source and not message.strip():
            yield field_errors.required(f"{here}.message", "must be specified if rule contains line breaks")
        if (expression := rule.get("messageExpression")) and not expression.strip():
            yield field_errors.required(f"{here}.messageExpression", "must be non-empty if specified")
        if (reason := rule.get("reason")) is not None and reason not in REASONS:
            yield field_errors.not_supported(f"{here}.reason", reason, REASONS)
        yield from _field_path_causes(schema, rule.get("fieldPath") or "", f"{here}.fieldPath")


def _field_path_causes(schema: JSON, given: str, field: str) -> Iterator[Cause]:
    if not given:
        return
    if not given.strip():
        yield field_errors.invalid(field, given, "must be non-empty if specified")
    if "\n" in given:
        yield field_errors.invalid(field, given, "must not contain line breaks")
    if _field_path(schema, given) is None:
        yield field_errors.invalid(field, given, "must be a valid path")


def _field_path(schema: JSON, given: str) -> str | None:
    """A `fieldPath` as causes name it; None when it does not lead to a field of the schema."""
    path, position = "", 0
    while position < len(given):
        step = _PATH_STEP.match(given, position)
        if step is None:
            return None
        name = step["name"] or re.sub(r"\\(.)", r"\1", step["quoted"])
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if properties and name in properties:
            schema, path = properties[name], f"{path}.{name}" if path else name
        elif not properties and isinstance(more, dict):
            schema, path = more, f"{path}[{name}]"
        else:
            return None
        position = step.end()
    return path


class _Compiler:
    """Compiles the nodes of one schema, and collects what is wrong."""

    def __init__(self, schema: JSON) -> None:
        self.causes: list[Cause] = []
        self.defaults: list[tuple[RuleNode, Any, str]] = []  # values that the schema fills in
        self._types = SchemaTypes(schema)

    def node(
        self, schema: JSON, path: str, *, resource: bool = False, list_path: str = "", checks_default: bool = True
    ) -> RuleNode | None:
        """`list_path` is the nearest list around the node whose items cannot be told apart."""
        node = RuleNode(schema)
        below = {"list_path": list_path, "checks_default": checks_default}
        for name, child in (schema.get("properties") or {}).items():
            if (made := self._child(child, f"{path}.properties[{name}]", **below)) is not None:
                node.properties[name] = made
        if isinstance(more := schema.get("additionalProperties"), dict):
            node.additional = self._child(
                more, f"{path}.additionalProperties", list_path=list_path, checks_default=False
            )
        if isinstance(items := schema.get("items"), dict):
            below["list_path"] = list_path or ("" if node.list_keys else path)
            node.items = self._child(items, f"{path}.items", **below)
        if schema.get(VALIDATIONS):
            self._compile(node, schema, path, resource=resource, list_path=list_path)
        if node.is_empty():
            return None
        if checks_default and schema.get("default") is not None:
            self.defaults.append((node, schema["default"], f"{path}.default"))
        return node

    def _child(self, schema: JSON, path: str, **options: Any) -> RuleNode | None:
        return self.node(schema, path, resource=bool(schema.get("x-kubernetes-embedded-resource")), **options)

    def _compile(self, node: RuleNode, schema: JSON, path: str, *, resource: bool, list_path: str) -> None:
        kind = self._types.of(schema)
        where = f"{path}.{VALIDATIONS}"
        if kind is None:
            text = "Internal error: rules need a schema with a type"
            self.causes.append(Cause("InternalError", text, where))
            return
        node.environment = CELEnvironment({"self": kind, "oldSelf": kind}, self._types.pool)
        node.convert = converter(schema, resource=resource)
        node.reorder = _reorder(schema)
        for at, rule in enumerate(schema[VALIDATIONS]):
            found = len(self.causes)
            compiled = self._rule(node.environment, kind, schema, rule, f"{where}[{at}]", list_path)
            if len(self.causes) == found and compiled is not None:
                node.rules.append(compiled)

    def _rule(
        self, environment: CELEnvironment, kind: Type, schema: JSON, rule: JSON, where: str, list_path: str
    ) -> CompiledRule | None:
        source, optional = rule["rule"], bool(rule.get("optionalOldSelf"))
        alone = CELEnvironment({"self": kind, "oldSelf": "dyn"}, self._types.pool) if optional else environment
        holds = self._program(alone, source, f"{where}.rule", source)  # it is an expression also without its wrapper
        if optional and holds is not None:
            holds = self._program(environment, _with_optional(source), f"{where}.rule", source)
        uses_old = holds is not None and "oldSelf" in source and not self._compiles_alone(kind, source)
        if uses_old and list_path:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {list_path}"
            self.causes.append(field_errors.invalid(f"{where}.rule", source, text))
        elif not uses_old and rule.get("optionalOldSelf") is not None:
            text = "may not be set if oldSelf is not used in rule"
            self.causes.append(field_errors.invalid(f"{where}.optionalOldSelf", optional, text))
        if holds is None:
            return None
        message = None
        if expression := rule.get("messageExpression"):
            wrapped = f"{_OPTIONAL}.map(oldSelf, {expression}\n)[0]" if optional else expression
            message = self._program(environment, wrapped, f"{where}.messageExpression", expression, returns=("string",))
        given = (rule.get("message") or "").strip()
        return CompiledRule(
            holds=holds,
            holds_without_old=environment.compile(_without_optional(source)) if optional and uses_old else None,
            message=message,
            text=given or f"failed rule: {source.strip()}",
            reason=rule.get("reason") or "FieldValueInvalid",
            field=_field_path(schema, rule.get("fieldPath") or "") or "",
            uses_old=uses_old,
        )

    def _compiles_alone(self, kind: Type, source: str) -> bool:
        """Whether a rule needs only `self`: then the `oldSelf` in it is a field, a text or a variable of its own."""
        try:
            CELEnvironment({"self": kind}, self._types.pool).compile(source)
        except ExpressionError:
            return False
        return True

    def _program(
        self, environment: CELEnvironment, source: str, where: str, shown: str, *, returns: tuple[str, ...] = ("bool",)
    ) -> CompiledExpression | None:
        try:
            return environment.compile(source, returns=returns)
        except ExpressionError as error:
            self.causes.append(field_errors.invalid(where, shown, f"compilation failed: {error}"))
            return None


# Within a rule that says so, `oldSelf` is optional; a macro over one value gives it that type.
_OPTIONAL = "[optional.of(oldSelf)]"


def _with_optional(source: str) -> str:
    return f"{_OPTIONAL}.all(oldSelf, {source}\n)"


def _without_optional(source: str) -> str:
    return f"[optional.none()].all(oldSelf, {source}\n)"


def unchecked_cause(causes: list[Cause]) -> Cause | None:
    """Why rules are not evaluated for an object with these causes; None when they are."""
    if not any(cause.reason in _BLOCKING for cause in causes):
        return None
    text = "some validation rules were not checked because the object was invalid; correct the existing errors first"
    return field_errors.invalid(WHOLE, None, text)


class _BudgetExceeded(Exception):  # noqa: N818  says what happened
    """The rules of an object take too much work; `cause` says where it ended."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


class _Budget:
    """How many evaluations are left for one object."""

    def __init__(self, evaluations: int) -> None:
        self._left = evaluations

    def spend(self, evaluations: int, path: str) -> None:
        self._left -= evaluations
        if self._left < 0:
            text = "validation failed due to running out of cost budget, no further validation rules will be run"
            raise _BudgetExceeded(_invalid(path or WHOLE, text))


def rule_causes(root: RuleNode, obj: JSON, old: JSON | None, *, limit: int = MAX_EVALUATIONS) -> list[Cause]:
    """The rules that an object breaks. `old` is what it replaces, `limit` how many rules may be evaluated."""
    return list(_violations(root, obj, "", old, None if old is None else (obj, old), limit))


def _violations(
    node: RuleNode,
    value: Any,
    path: str,
    old: Any,
    nearest: tuple[Any, Any] | None,
    limit: int = MAX_EVALUATIONS,
) -> Iterator[Cause]:
    try:
        yield from _walk(node, value, path, old, nearest, _Budget(limit))
    except _BudgetExceeded as error:
        yield error.cause


def _walk(
    node: RuleNode, value: Any, path: str, old: Any, nearest: tuple[Any, Any] | None, budget: _Budget
) -> Iterator[Cause]:
    """`nearest` is the innermost value around here, itself included, whose stored value is known, with that value."""
    if value is None:
        return
    if node.rules:
        budget.spend(len(node.rules), path)
        yield from _evaluate(node, value, path, old, nearest)
    if isinstance(value, list):
        if node.items is not None:
            earlier = _by_keys(node, old)
            for at, item in enumerate(value):
                before = earlier.get(_keys(node, item)) if earlier else None
                pair = nearest if before is None or nearest is None else (item, before)
                yield from _walk(node.items, item, f"{path}[{at}]", before, pair, budget)
    elif isinstance(value, dict):
        stored = old if isinstance(old, dict) else {}
        for key, item in value.items():
            child = node.properties.get(key) or node.additional
            if child is not None:
                before = stored.get(key)
                pair = nearest if before is None or nearest is None else (item, before)
                pair = None if not path and key in {"apiVersion", "kind"} else pair
                yield from _walk(child, item, _child_path(node, path, key), before, pair, budget)


def _child_path(node: RuleNode, path: str, key: str) -> str:
    if key not in node.properties:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _keys(node: RuleNode, item: Any) -> tuple[Any, ...] | None:
    return tuple(item.get(key) for key in node.list_keys) if isinstance(item, dict) else None


def _by_keys(node: RuleNode, old: Any) -> dict[Any, Any]:
    """The items of the stored list by their keys; empty where items cannot be told apart."""
    if not node.list_keys or not isinstance(old, list):
        return {}
    return {_keys(node, item): item for item in reversed(old)}


def _evaluate(node: RuleNode, value: Any, path: str, old: Any, nearest: tuple[Any, Any] | None) -> Iterator[Cause]:
    assert node.environment is not None
    convert = node.convert or _same
    try:
        values = {"self": convert(value)}
        if old is not None and any(rule.uses_old for rule in node.rules):
            values["oldSelf"] = convert(old if node.reorder is None else node.reorder(old, value))
    except EvaluationError as error:
        yield field_errors.invalid(path or WHOLE, value, str(error))
        return
    activation = node.environment.bind(values)
    for rule in node.rules:
        holds: CompiledExpression | None = rule.holds
        if rule.uses_old and old is None:
            holds = rule.holds_without_old
        if holds is None:
            continue
        try:
            if holds.evaluate(activation):
                continue
        except CostLimitExceeded as error:
            text = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: "
            raise _BudgetExceeded(_invalid(path or WHOLE, text + rule.text.removeprefix("failed rule: "))) from None
        except EvaluationError as error:
            yield _invalid(path or WHOLE, f"{error} evaluating rule: {rule.text.removeprefix('failed rule: ')}")
            continue
        if rule.uses_old or nearest is None or not _unchanged(*nearest):
            field = ".".join(part for part in (path, rule.field) if part)
            yield _cause(rule, node, value, field or WHOLE, _message(rule, activation))


def _same(value: Any) -> Any:
    return value


def _reorder(schema: JSON) -> Reorder | None:
    """Gives the lists of a stored value the order of another value, where order means nothing: in sets and maps.

    So both are equal in CEL exactly when they are for the API server. None when there is no such list.
    """
    if isinstance(items := schema.get("items"), dict):
        keys, inner = _item_keys(schema), _reorder(items)
        return None if keys is None else lambda old, new: _reorder_list(old, new, keys, inner)
    properties = {name: found for name, child in (schema.get("properties") or {}).items() if (found := _reorder(child))}
    more = schema.get("additionalProperties")
    others = _reorder(more) if isinstance(more, dict) else None
    if not properties and others is None:
        return None

    def reorder_map(old: Any, new: Any) -> Any:
        if not isinstance(old, dict) or not isinstance(new, dict):
            return old
        found = {key: properties.get(key, others) for key in old}
        return {key: by(item, new.get(key)) if (by := found[key]) is not None else item for key, item in old.items()}

    return reorder_map


def _item_keys(schema: JSON) -> Callable[[Any], str] | None:
    """What tells the items of a list apart, as text; None when their order does."""
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return repr
    if list_type == "map":
        names = schema.get("x-kubernetes-list-map-keys") or ()
        return lambda item: repr([item.get(name) for name in names]) if isinstance(item, dict) else repr(item)
    return None


def _reorder_list(old: Any, new: Any, keys: Callable[[Any], str], inner: Reorder | None) -> Any:
    if not isinstance(old, list) or not isinstance(new, list):
        return old
    wanted = {keys(item): (at, item) for at, item in enumerate(new)}
    last = (len(new), None)
    ordered = sorted(old, key=lambda item: wanted.get(keys(item), last)[0])
    return ordered if inner is None else [inner(item, wanted.get(keys(item), last)[1]) for item in ordered]


def _unchanged(value: Any, old: Any) -> bool:
    return bool(value == old) and type(value) is type(old)


def _message(rule: CompiledRule, activation: Any) -> str:
    """The message of a broken rule; its expression counts only if it makes one line of text."""
    if rule.message is None:
        return rule.text
    try:
        text = str(rule.message.evaluate(activation)).strip()
    except EvaluationError:
        return rule.text
    fits = text and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE
    return text if fits else rule.text


def _invalid(field: str, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", field)


def _cause(rule: CompiledRule, node: RuleNode, value: Any, field: str, detail: str) -> Cause:
    if rule.reason == "FieldValueRequired":
        return field_errors.required(field, detail)
    if rule.reason == "FieldValueForbidden":
        return field_errors.forbidden(field, detail)
    if rule.reason == "FieldValueDuplicate":
        return Cause(rule.reason, f"Duplicate value: {detail}", field)
    return field_errors.invalid(field, value, detail) if node.is_scalar else _invalid(field, detail)
