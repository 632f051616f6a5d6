"""Comparison rules and canonical forms: another order of JSON keys is not a change. Pure.

    json, yaml      the data, whatever its order, spaces and comments
    properties      the settings, whatever their order, spaces and comments
    certificate     serial number and end of each certificate, whatever the text around them and their order
    ignore          never a change, not even to come or to go
    bytes           byte by byte, which is the default

The rules of a source are those of its annotation, then those of the configuration; for each key the first rule whose
glob matches decides. As text the rules are recorded in the state of the workload with the digest they produced.

A value that is not valid in its form is compared byte by byte: a syntax error never hides a change. So is a value that
costs more to parse than `steersman.bounded_parsing` allows, alone or together with the others of its source. The
canonical form is hashed at once and kept nowhere.
"""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from steersman.bounded_parsing import Budget, BudgetError, Parser, SafeLoader
from steersman.errors import FormatError
from steersman.operators.reload.api.config import FORMS, CompareConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

BYTES: Final = "bytes"
IGNORE: Final = "ignore"
LONGEST_RULES: Final = 1000  # characters: they are recorded on the workload, where room is limited
MOST_MATCHES: Final = 100_000  # of a key of one source with a glob, for one workload: about a tenth of a second
KIB: Final = 1024
AT_DECODE: Final = 64 * KIB  # bytes of JSON per object that are parsed while it is decoded, on the event loop
_VALUES: Final = {  # what one value may cost…
    "json": Budget(size=1024 * KIB, nodes=200_000, expanded=1024 * KIB),
    "yaml": Budget(size=128 * KIB, nodes=50_000, expanded=1024 * KIB),
    "properties": Budget(size=512 * KIB),
    "certificate": Budget(size=512 * KIB),
}
_OBJECTS: Final = {  # …and all values of one source together
    **_VALUES,
    "yaml": Budget(size=256 * KIB, nodes=100_000, expanded=2048 * KIB),
}


class _Loader(SafeLoader):
    """The safe loader, to which `<<` is a key like any other: it is compared as it is written."""

    def flatten_mapping(self, node: Any) -> None:
        """Leave the mapping as it is written."""


_Loader.add_constructor("tag:yaml.org,2002:merge", yaml.constructor.SafeConstructor.construct_yaml_str)


class CompareRule(msgspec.Struct, frozen=True):
    """Keys that match a glob are compared in a canonical form."""

    keys: str
    form: str
    where: str = ""  # "the source" or "the configuration"

    def __str__(self) -> str:
        return f"{self.keys}={self.form}"


@lru_cache(maxsize=1024)
def parse_compare_rules(text: str, where: str = "") -> tuple[CompareRule, ...]:
    """Read `*.json=json,tls.crt=certificate,build-*=ignore`; the first that matches a key counts.

    >>> [str(one) for one in parse_compare_rules("*.json=json, stamp=ignore")]
    ['*.json=json', 'stamp=ignore']
    """
    return tuple(CompareRule(keys, form, where) for keys, form in _pairs(text))


def _pairs(text: str) -> list[tuple[str, str]]:
    found = []
    for part in text.split(","):
        word = part.strip()
        if not word:
            continue
        keys, sign, form = (piece.strip() for piece in word.rpartition("="))
        if not (sign and keys) or form not in FORMS:
            raise FormatError(f"{_short(word)} is not GLOB=FORM (try *.json=json; forms: {', '.join(FORMS)})")
        found.append((keys, form))
    return found


def _short(text: str) -> str:
    return f'"{text if len(text) <= 100 else f"{text[:100]}…"}"'


def comparisons_for(
    rows: Iterable[CompareConfig], kind: str, namespace: str, name: str, where: str = ""
) -> tuple[CompareRule, ...]:
    """The rules of the configuration for one source."""
    return tuple(
        CompareRule(row.keys, row.form, where)
        for row in rows
        if row.namespace in (None, namespace) and (row.source == "*" or fnmatchcase(f"{kind}/{name}", row.source))
    )


def effective_compare_rules(said: Iterable[CompareRule]) -> tuple[tuple[CompareRule, ...], int]:
    """The rules that apply, the first to decide first, and the number of globs.

    Each glob applies once, and no more of them than can be recorded.
    """
    by_glob: dict[str, CompareRule] = {}
    for rule in said:
        by_glob.setdefault(rule.keys, rule)
    found: list[CompareRule] = []
    length = 0
    for rule in by_glob.values():
        length += len(str(rule)) + 1
        if length > LONGEST_RULES:
            break
        found.append(rule)
    return tuple(found), len(by_glob)


def format_compare_rules(rules: Iterable[CompareRule]) -> str:
    """The rules as they are recorded."""
    return ",".join(map(str, rules))


def forms_by_key(keys: Collection[str], comparisons: Collection[CompareRule]) -> dict[str, str]:
    """How keys are compared that are not compared byte by byte.

    None of them is compared otherwise when there are too many keys and globs to match each with each.
    """
    if not comparisons or len(keys) * len(comparisons) > MOST_MATCHES:
        return {}
    return {key: form for key in keys if (form := form_for_key(key, comparisons)) != BYTES}


def form_for_key(key: str, comparisons: Iterable[CompareRule]) -> str:
    """How a key is compared."""
    rule = deciding_rule(key, comparisons)
    return BYTES if rule is None else rule.form


def deciding_rule(key: str, comparisons: Iterable[CompareRule]) -> CompareRule | None:
    """The rule that decides how a key is compared; None: there is no rule, so byte by byte."""
    return next((rule for rule in comparisons if fnmatchcase(key, rule.keys)), None)


class Canonical:
    """Puts the values of one source into canonical form, as long as that costs no more than it may."""

    def __init__(self) -> None:
        self._parsers = {form: Parser(budget, _OBJECTS[form]) for form, budget in _VALUES.items()}

    def __call__(self, form: str, value: bytes) -> bytes:
        """The same bytes for the same content; the value itself when it is not what `form` says.

        BudgetError when it would cost more than it may to find out.
        """
        if form == IGNORE:
            return b""
        if form not in self._parsers:
            return value
        try:
            return _encoded(_READERS[form](self._parsers[form], value))
        except BudgetError:
            raise
        except (ValueError, TypeError, ArithmeticError, RecursionError, yaml.YAMLError, msgspec.MsgspecError):
            return value  # TypeError: keys that are not text, as in `on: push`, have no order


def canonical(form: str, value: bytes) -> bytes:
    """The canonical form of one value alone; the value itself when it has none, or when it costs too much."""
    try:
        return Canonical()(form, value)
    except BudgetError:
        return value


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _distinguished(value: Any) -> Any:
    """The value with what JSON cannot express under a name of its own."""
    if isinstance(value, dict):
        return {name: _distinguished(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_distinguished(item) for item in value]
    if isinstance(value, bytes):
        return {"!!binary": value}
    if isinstance(value, float) and not math.isfinite(value):
        return {"!!float": str(value)}
    return value


_PAIR: Final = re.compile(r"((?:\\.|[^\\:=\s])*)\s*[:=\s]?\s*(.*)", re.DOTALL)


def _properties(text: str) -> dict[str, str]:
    """The settings of a Java properties file."""
    found: dict[str, str] = {}
    pieces: list[str] = []  # of a logical line that goes on
    for line in text.splitlines():
        piece = line.lstrip()
        if not pieces and (not piece or piece[0] in "#!"):
            continue
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            pieces.append(piece[:-1])
            continue
        match = _PAIR.fullmatch("".join((*pieces, piece)))
        pieces.clear()
        if match is not None:
            found[match[1]] = match[2].rstrip()
    if pieces:
        found["".join(pieces).strip()] = ""
    return found


def _certificates(value: bytes) -> list[tuple[str, str, str]]:
    from cryptography import x509

    found = x509.load_pem_x509_certificates(value)
    return sorted(
        (
            certificate.issuer.rfc4514_string(),
            f"{certificate.serial_number:x}",
            certificate.not_valid_after_utc.isoformat(),
        )
        for certificate in found
    )


_READERS: Final[Mapping[str, Callable[[Parser, bytes], Any]]] = {
    "json": lambda parser, value: parser.json(value),
    "yaml": lambda parser, value: _distinguished(parser.yaml(value, loader=_Loader)),
    "properties": lambda parser, value: _properties(parser.text(value).decode()),
    "certificate": lambda parser, value: _certificates(parser.text(value)),
}
