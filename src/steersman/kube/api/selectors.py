"""Selectors: which objects of a kind are meant.

A `Selector` selects by labels (`app=web,tier in (a,b),!old`), a `FieldSelector` by the fields that a server
indexes (`metadata.name=web,status.phase!=Running`). Both are immutable values: equal when they print the same way,
usable as keys, and safe to share. Parsing, printing, matching and complaints are those of the API server, so what
matches here is what a server would have sent. Fields have a simpler grammar, and a module of their own.

    Selector.parse("")              matches every object
    Selector.from_wire({})          matches every object
    Selector.from_wire(None)        matches none: an object that names no selector selects nothing
    "a!=x", "a notin (x)"           also match objects without the label a; no other comparison does

Not here: the wire struct `LabelSelector` that objects hold (`kube.objects`), and which fields a server knows.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.api.field_selectors import FieldRequirement, FieldSelector
from steersman.kube.api.objects import LabelSelector
from steersman.kube.api.validation import label_key_errors, label_value_errors, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Labels = Mapping[str, str] | None
    Predicate = Callable[[Labels], bool]

__all__ = ["FieldRequirement", "FieldSelector", "Requirement", "Selector", "SelectorOperator"]


class SelectorOperator(StrEnum):
    """How a requirement compares; the values are the server's own names."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER_THAN = "gt"
    LESS_THAN = "lt"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


_SETS = (SelectorOperator.IN, SelectorOperator.NOT_IN)
_COMPARISONS = (SelectorOperator.GREATER_THAN, SelectorOperator.LESS_THAN)
_EXISTENCES = (SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST)
_POSITIVE = (SelectorOperator.IN, SelectorOperator.EQUALS, SelectorOperator.DOUBLE_EQUALS)
_BINARY = [operator for operator in SelectorOperator if operator not in _EXISTENCES]

_WIRE_OPERATORS = {
    "In": SelectorOperator.IN,
    "NotIn": SelectorOperator.NOT_IN,
    "Exists": SelectorOperator.EXISTS,
    "DoesNotExist": SelectorOperator.DOES_NOT_EXIST,
}
_TO_WIRE = {
    **{operator: name for name, operator in _WIRE_OPERATORS.items()},
    SelectorOperator.EQUALS: "In",
    SelectorOperator.DOUBLE_EQUALS: "In",
    SelectorOperator.NOT_EQUALS: "NotIn",
}


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label; `values` are sorted."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    @classmethod
    def checked(cls, key: str, operator: str, values: Iterable[str] = ()) -> Requirement:
        """A requirement that a server would accept, or a `FormatError` in the server's words."""
        values = tuple(values)
        complaints = _invalid("key", key, label_key_errors(key)) + _operand_complaints(operator, values)
        for index, value in enumerate(values):
            complaints += _invalid(f"values[{index}][{key}]", value, label_value_errors(value))
        if complaints:
            complaints = list(dict.fromkeys(complaints))
            raise FormatError(complaints[0] if len(complaints) == 1 else f"[{', '.join(complaints)}]")
        return cls(key, SelectorOperator(operator), tuple(sorted(values)))

    def predicate(self) -> Predicate:
        """A function that says whether labels meet this requirement."""
        key, values = self.key, frozenset(self.values)
        if self.operator in _POSITIVE and len(values) == 1:
            (value,) = values
            return lambda labels: labels is not None and labels.get(key) == value
        match self.operator:
            case SelectorOperator.IN | SelectorOperator.EQUALS | SelectorOperator.DOUBLE_EQUALS:
                return lambda labels: labels is not None and labels.get(key) in values
            case SelectorOperator.NOT_IN | SelectorOperator.NOT_EQUALS:
                return lambda labels: labels is None or labels.get(key) not in values
            case SelectorOperator.EXISTS:
                return lambda labels: labels is not None and key in labels
            case SelectorOperator.DOES_NOT_EXIST:
                return lambda labels: labels is None or key not in labels
            case SelectorOperator.GREATER_THAN | SelectorOperator.LESS_THAN:
                return self._comparison()

    def _comparison(self) -> Predicate:
        key, above, limit = self.key, self.operator is SelectorOperator.GREATER_THAN, _integer(self.values[0])

        def compare(labels: Labels) -> bool:
            number = _integer(labels.get(key, "")) if labels else None
            if number is None or limit is None:
                return False
            return number > limit if above else number < limit

        return compare

    def __str__(self) -> str:
        values = ",".join(self.values)
        match self.operator:
            case SelectorOperator.IN | SelectorOperator.NOT_IN:
                return f"{self.key} {self.operator} ({values})"
            case SelectorOperator.EXISTS:
                return self.key
            case SelectorOperator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case SelectorOperator.GREATER_THAN:
                return f"{self.key}>{values}"
            case SelectorOperator.LESS_THAN:
                return f"{self.key}<{values}"
            case _:
                return f"{self.key}{self.operator}{values}"


class Selector(msgspec.Struct, frozen=True, dict=True):
    """Which labels are meant: all requirements must hold. Requirements are sorted by key.

    >>> web = Selector.parse("tier in (web, edge), app=shop")
    >>> str(web), web.matches({"app": "shop", "tier": "web"})
    ('app=shop,tier in (edge,web)', True)
    """

    EVERYTHING: ClassVar[Selector]
    NOTHING: ClassVar[Selector]

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False  # matches no object at all, whatever the requirements say

    @classmethod
    def parse(cls, text: str | None) -> Selector:
        """The selector that `text` spells, as in `kubectl get -l`; empty or None means everything."""
        return cls.of(_Parser(text).requirements()) if text else cls.EVERYTHING

    @classmethod
    def of(cls, requirements: Iterable[Requirement]) -> Selector:
        """A selector of requirements in any order."""
        return cls(tuple(sorted(requirements, key=lambda requirement: requirement.key)))

    @classmethod
    def from_labels(cls, labels: Labels) -> Selector:
        """A selector of objects that have at least these labels, as in a Service. Labels are taken as valid."""
        return cls.of(Requirement(key, SelectorOperator.EQUALS, (value,)) for key, value in (labels or {}).items())

    @classmethod
    def from_wire(cls, selector: LabelSelector | Mapping[str, Any] | None) -> Selector:
        """The meaning of a `LabelSelector`, struct or plain JSON. None selects nothing, an empty one everything."""
        if selector is None:
            return cls.NOTHING
        if not isinstance(selector, LabelSelector):
            try:
                selector = msgspec.convert(selector, LabelSelector)
            except msgspec.ValidationError as error:
                raise FormatError(f"not a label selector: {error}") from error
        requirements = [
            Requirement.checked(key, SelectorOperator.EQUALS, (value,))
            for key, value in sorted((selector.match_labels or {}).items())
        ]
        for expression in selector.match_expressions or ():
            operator = _WIRE_OPERATORS.get(expression.operator)
            if operator is None:
                raise FormatError(f"{quoted(expression.operator)} is not a valid label selector operator")
            requirements.append(Requirement.checked(expression.key, operator, expression.values or ()))
        return cls.of(requirements)

    def to_wire(self) -> dict[str, Any]:
        """The same as a `LabelSelector` that objects hold; `FormatError` for `<` and `>`, which have no form there."""
        expressions = []
        for requirement in self.requirements:
            operator = _TO_WIRE.get(requirement.operator)
            if operator is None:
                raise FormatError(f"{quoted(str(requirement))} cannot be part of an object (use in, notin, = or !=)")
            values = {"values": list(requirement.values)} if requirement.values else {}
            expressions.append({"key": requirement.key, "operator": operator, **values})
        return {"matchExpressions": expressions} if expressions else {}

    @cached_property
    def matches(self) -> Predicate:
        """Whether labels (None is the same as empty) meet every requirement. Compiled on first use."""
        if self.nothing:
            return lambda _labels: False
        if not self.requirements:
            return lambda _labels: True
        predicates = tuple(requirement.predicate() for requirement in self.requirements)
        if len(predicates) == 1:
            return predicates[0]

        def every(labels: Labels) -> bool:
            for holds in predicates:  # noqa: SIM110 - all() over a generator costs twice as much
                if not holds(labels):
                    return False
            return True

        return every

    @property
    def empty(self) -> bool:
        """Whether the selector leaves nothing out."""
        return not self.requirements and not self.nothing

    def exact(self, key: str) -> str | None:
        """The one value that `key` must have, if the selector says so."""
        for requirement in self.requirements:
            if requirement.key == key:
                single = requirement.operator in _POSITIVE and len(requirement.values) == 1
                return requirement.values[0] if single else None
        return None

    def __and__(self, other: Selector) -> Selector:
        if self.nothing or other.nothing:
            return self.NOTHING
        return self.of((*self.requirements, *other.requirements))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


Selector.EVERYTHING = Selector()
Selector.NOTHING = Selector(nothing=True)


class _Parser:
    """Label selector text to requirements; the words of its complaints are the server's.

    selector     = [ requirement { "," requirement } ]
    requirement  = "!" key | key [ ("=" | "==" | "!=" | ">" | "<") value | ("in" | "notin") "(" values ")" ]
    """

    _tokens: Final = re.compile(r"==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+")
    _operators: Final = {
        "in": SelectorOperator.IN,
        "notin": SelectorOperator.NOT_IN,
        "=": SelectorOperator.EQUALS,
        "==": SelectorOperator.DOUBLE_EQUALS,
        "!=": SelectorOperator.NOT_EQUALS,
        ">": SelectorOperator.GREATER_THAN,
        "<": SelectorOperator.LESS_THAN,
    }

    def __init__(self, text: str) -> None:
        self._rest = self._tokens.findall(text)
        self._rest.reverse()

    def _peek(self) -> str:
        return self._rest[-1] if self._rest else ""

    def _next(self) -> str:
        return self._rest.pop() if self._rest else ""

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self._peek():
            return found
        if not self._starts_requirement():
            raise FormatError(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
        while True:
            try:
                found.append(self._requirement())
            except FormatError as error:
                raise FormatError(f"unable to parse requirement: {error}") from None
            separator = self._next()
            if not separator:
                return found
            if separator != ",":
                raise FormatError(f"found '{separator}', expected: ',' or 'end of string'")
            if not self._starts_requirement():
                raise FormatError(f"found '{self._peek()}', expected: identifier after ','")

    def _starts_requirement(self) -> bool:
        return self._peek() == "!" or _is_identifier(self._peek())

    def _requirement(self) -> Requirement:
        word = self._next()
        negated = word == "!"
        key = self._next() if negated else word
        if not _is_identifier(key):
            raise FormatError(f"found '{key}', expected: identifier")
        for complaint in _invalid("<nil>", key, label_key_errors(key)):
            raise FormatError(complaint)
        if negated:
            return Requirement(key, SelectorOperator.DOES_NOT_EXIST)
        if self._peek() in ("", ","):
            return Requirement(key, SelectorOperator.EXISTS)
        return self._comparison(key)

    def _comparison(self, key: str) -> Requirement:
        operator = self._operators.get(word := self._next())
        if operator is None:
            raise FormatError(f"found '{word}', expected: {', '.join(_BINARY)}")
        if operator in _SETS:
            return Requirement.checked(key, operator, sorted(self._values()))
        if self._peek() in ("", ","):
            return Requirement.checked(key, operator, [""])
        if not _is_identifier(value := self._next()):
            raise FormatError(f"found '{value}', expected: identifier")
        return Requirement.checked(key, operator, [value])

    def _values(self) -> set[str]:
        """What is between the parentheses; a place left empty stands for the empty value."""
        if (opening := self._next()) != "(":
            raise FormatError(f"found '{opening}' expected: '('")
        first = self._peek()
        if first not in (",", ")") and not _is_identifier(first):
            raise FormatError(f"found '{first}', expected: ',', ')' or identifier")
        values: set[str] = set()
        place = ""  # what stands before the next comma or parenthesis
        while (word := self._next()) != ")":
            if word == ",":
                values.add(place)
                place = ""
            elif not _is_identifier(word):
                raise FormatError(f"found '{word}', expected: ',', or identifier")
            else:
                place = word
                if self._peek() not in (",", ")"):
                    raise FormatError(f"found '{self._peek()}', expected: ',' or ')'")
        values.add(place)
        return values


def _is_identifier(word: str) -> bool:
    return word != "" and word[0] not in "=!(),<>"


def _invalid(field: str, value: str, errors: list[str]) -> list[str]:
    return [f"{field}: Invalid value: {quoted(value)}: {'; '.join(errors)}"] if errors else []


def _operand_complaints(operator: str, values: tuple[str, ...]) -> list[str]:
    """What is wrong with the number or kind of values for this operator."""
    expected: str | None = None
    if operator in _SETS:
        expected = None if values else "for 'in', 'notin' operators, values set can't be empty"
    elif operator in _EXISTENCES:
        expected = "values set must be empty for exists and does not exist" if values else None
    elif operator in _COMPARISONS:
        expected = None if len(values) == 1 else "for 'Gt', 'Lt' operators, exactly one value is required"
    elif operator in _BINARY:
        expected = None if len(values) == 1 else "exact-match compatibility requires one single value"
    else:
        supported = ", ".join(map(quoted, (*_BINARY, *_EXISTENCES)))
        return [f"operator: Unsupported value: {quoted(operator)}: supported values: {supported}"]
    complaints = [f"values: Invalid value: {_listed(values)}: {expected}"] if expected else []
    if operator in _COMPARISONS:
        rule = "for 'Gt', 'Lt' operators, the value must be an integer"
        complaints += [
            f"values[{index}]: Invalid value: {quoted(value)}: {rule}"
            for index, value in enumerate(values)
            if _integer(value) is None
        ]
    return complaints


def _listed(values: tuple[str, ...]) -> str:
    return msgspec.json.encode(values).decode() if values else "null"


def _integer(text: str) -> int | None:
    """A 64-bit integer, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
