"""How values are compared where bytes say too much: another order of JSON keys is no change. Pure.

    json, yaml      the data, whatever its order, spaces and comments
    properties      the settings, whatever their order, spaces and comments
    certificate     serial number and end of each certificate, whatever the text around them and their order
    ignore          never a change
    bytes           byte by byte, which is the default

A value that is not what it should be is compared byte by byte: a mistake in a file never hides a change. The canonical
form goes into the digest at once and nowhere else.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from steersman.errors import FormatError
from steersman.kube.document import check_nesting
from steersman.operators.reload.features import FORMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.reload.features import CompareConfig

__all__ = ["BYTES", "Comparison", "canonical", "comparisons_for", "form_of", "parse_comparisons"]

BYTES: Final = "bytes"
_MOST_NODES: Final = 200_000  # of a YAML document, aliases counted each time: a small one can stand for an endless one
_LONGEST: Final = 128 * 1024  # bytes of a YAML document: reading more of them would hold up everybody else
_DEEPEST: Final = 100  # collections inside each other


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # which one is known at run time
    """The safe loader, to which `<<` is a key like any other: merging can make endless mappings of a short text."""

    def flatten_mapping(self, node: Any) -> None:
        """Leave the mapping as it is written."""


_Loader.add_constructor("tag:yaml.org,2002:merge", yaml.constructor.SafeConstructor.construct_yaml_str)


class Comparison(msgspec.Struct, frozen=True):
    """Keys that match a glob are compared in a form."""

    keys: str
    form: str

    def __str__(self) -> str:
        return f"{self.keys}={self.form}"


def parse_comparisons(text: str) -> tuple[Comparison, ...]:
    """Read `*.json=json,tls.crt=certificate,build-*=ignore`; the first that matches a key counts.

    >>> parse_comparisons("*.json=json, stamp=ignore")
    (Comparison(keys='*.json', form='json'), Comparison(keys='stamp', form='ignore'))
    """
    found = []
    for part in text.split(","):
        word = part.strip()
        if not word:
            continue
        keys, sign, form = (piece.strip() for piece in word.rpartition("="))
        if not (sign and keys) or form not in FORMS:
            shown = word if len(word) <= 100 else f"{word[:100]}…"
            raise FormatError(f'"{shown}" is not GLOB=FORM (try *.json=json; forms: {", ".join(FORMS)})')
        found.append(Comparison(keys, form))
    return tuple(found)


def comparisons_for(rows: Iterable[CompareConfig], kind: str, namespace: str, name: str) -> tuple[Comparison, ...]:
    """What the configuration says about one source."""
    return tuple(
        Comparison(row.keys, row.form)
        for row in rows
        if row.namespace in (None, namespace) and (row.source == "*" or fnmatchcase(f"{kind}/{name}", row.source))
    )


def form_of(key: str, comparisons: Iterable[Comparison]) -> str:
    """How a key is compared."""
    return next((one.form for one in comparisons if fnmatchcase(key, one.keys)), BYTES)


def canonical(form: str, value: bytes) -> bytes:
    """The same bytes for the same content; the value itself when it is not what `form` says."""
    try:
        if form == "ignore":
            return b""
        if form == "json":
            return _encoded(msgspec.json.decode(value))
        if form == "yaml":
            return _encoded(_bounded(_documents(value)))
        if form == "properties":
            return _encoded(_properties(value.decode()))
        if form == "certificate":
            return _encoded(_certificates(value))
    except (ValueError, TypeError, RecursionError, yaml.YAMLError, msgspec.MsgspecError):
        return value  # TypeError: keys that are no text, as in `on: push`, have no order
    return value


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _documents(value: bytes) -> list[Any]:
    """The documents of a YAML text; ValueError when it is longer or deeper than can be read safely."""
    if len(value) > _LONGEST:
        raise ValueError("too long")
    check_nesting(value, deepest=_DEEPEST)
    return list(yaml.load_all(value, Loader=_Loader))  # a safe one


def _bounded(value: Any) -> Any:
    """The value, if it is of a size that can be written down; ValueError otherwise."""
    left = _MOST_NODES
    stack = [value]
    while stack:
        left -= 1
        if left < 0:
            raise ValueError("too many nodes")
        one = stack.pop()
        if isinstance(one, dict):
            stack.extend(one.keys())
            stack.extend(one.values())
        elif isinstance(one, (list, tuple, set)):
            stack.extend(one)
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
        (one.issuer.rfc4514_string(), f"{one.serial_number:x}", one.not_valid_after_utc.isoformat()) for one in found
    )
