r"""Field selectors: which objects are meant, by the few fields that a server indexes.

    metadata.name=web,status.phase!=Running      `==` is the same as `=`; `\` escapes a comma, an equals sign or itself

Public as part of `steersman.kube.api.selectors`. Which fields exist is for the server (or the caller) to say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import msgspec

from steersman.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FieldRequirement", "FieldSelector"]


class FieldRequirement(msgspec.Struct, frozen=True):
    """One condition on one field: `value`, or anything else when `negated`. A field that is not there is empty."""

    field: str
    value: str
    negated: bool = False

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether `fields` meet this requirement."""
        return (fields.get(self.field, "") == self.value) is not self.negated

    def __str__(self) -> str:
        return f"{self.field}{'!=' if self.negated else '='}{_escape(self.value)}"


class FieldSelector(msgspec.Struct, frozen=True):
    r"""Which field values are meant: all requirements must hold.

    >>> str(FieldSelector.parse(r"status.phase!=Running,metadata.name==a\,b"))
    'metadata.name=a\\,b,status.phase!=Running'
    """

    EVERYTHING: ClassVar[FieldSelector]

    requirements: tuple[FieldRequirement, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> FieldSelector:
        """The selector that `text` spells; a backslash escapes a comma, an equals sign or itself in a value."""
        terms = (_requirement(text or "", term) for term in sorted(_TERM.findall(text or "")) if term)
        return cls(tuple(term for term in terms if term.field or term.value))

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether `fields` meet every requirement."""
        return all(requirement.matches(fields) for requirement in self.requirements)

    @property
    def empty(self) -> bool:
        """Whether the selector leaves nothing out."""
        return not self.requirements

    def exact(self, field: str) -> str | None:
        """The one value that `field` must have, if the selector says so."""
        return next((r.value for r in self.requirements if r.field == field and not r.negated), None)

    def __and__(self, other: FieldSelector) -> FieldSelector:
        return FieldSelector((*self.requirements, *other.requirements))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


FieldSelector.EVERYTHING = FieldSelector()


def _requirement(selector: str, term: str) -> FieldRequirement:
    parts = _FIELD_OPERATOR.split(term, maxsplit=1)
    if len(parts) == 1:
        raise FormatError(f"invalid selector: '{selector}'; can't understand '{term}'")
    field, operator, value = parts
    return FieldRequirement(field, _unescape(value), operator == "!=")


def _escape(value: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", value)


def _unescape(value: str) -> str:
    def literal(found: re.Match[str]) -> str:
        text = found[0]
        if text in (",", "="):
            raise FormatError(f"invalid field selector: unescaped character in value: {ord(text)}")
        if text[1:] not in ("\\", ",", "="):
            raise FormatError(f"invalid field selector: invalid escape sequence: {text}")
        return text[1:]

    return _ESCAPE_OR_SPECIAL.sub(literal, value)


_TERM = re.compile(r"((?:[^\\,]|\\.?)*)(?:,|$)", re.DOTALL)
_FIELD_OPERATOR = re.compile("(!=|==|=)")
_SPECIAL = re.compile(r"[\\,=]")
_ESCAPE_OR_SPECIAL = re.compile(r"\\.?|[,=]", re.DOTALL)
