"""How values are compared where bytes say too much: another order of JSON keys is no change. Pure.

    json, yaml      the data, whatever its order, spaces and comments
    properties      the settings, whatever their order, spaces and comments
    certificate     serial number and end of each certificate, whatever the text around them and their order
    ignore          never a change, not even to come or to go
    bytes           byte by byte, which is the default

Several may say how the keys of a source are compared: the source itself, the workload, its namespace, policies and the
configuration. What holds for one workload and one source are its *ways*, in the order in which they decide; as text
they are part of what is written on the workload, so that later nobody has to guess how a digest came about.

A value that is not what it should be is compared byte by byte: a mistake in a file never hides a change. The canonical
form goes into the digest at once and nowhere else.
"""

from __future__ import annotations

import math
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from steersman.errors import FormatError
from steersman.kube.document import check_nesting
from steersman.operators.reload.features import FORMS, CompareConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BYTES",
    "IGNORE",
    "LONGEST_WAYS",
    "Comparison",
    "canonical",
    "comparisons_for",
    "form_of",
    "parse_compare_rows",
    "parse_comparisons",
    "read_ways",
    "way_of",
    "ways_of",
    "ways_text",
]

BYTES: Final = "bytes"
IGNORE: Final = "ignore"
LONGEST_WAYS: Final = 1000  # characters: they are written on the workload, which has room for so much and no more
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
    where: str = ""  # who said so: "the source", "reloadpolicy/night"

    def __str__(self) -> str:
        return f"{self.keys}={self.form}"


def parse_comparisons(text: str, where: str = "") -> tuple[Comparison, ...]:
    """Read `*.json=json,tls.crt=certificate,build-*=ignore`; the first that matches a key counts.

    >>> [str(one) for one in parse_comparisons("*.json=json, stamp=ignore")]
    ['*.json=json', 'stamp=ignore']
    """
    return tuple(Comparison(keys, form, where) for keys, form in _pairs(text))


def parse_compare_rows(text: str) -> tuple[CompareConfig, ...]:
    """Read what a workload or a namespace says: the same, and before a glob perhaps the source it is about.

    >>> [(row.source, row.keys, row.form) for row in parse_compare_rows("configmap/app#*.json=json,stamp=ignore")]
    [('configmap/app', '*.json', 'json'), ('*', 'stamp', 'ignore')]
    """
    found = []
    for keys, form in _pairs(text):
        source, sign, glob = keys.rpartition("#")
        row = CompareConfig(source=source if sign else "*", keys=glob, form=form)
        if complaint := row.complaint():
            raise FormatError(f"{_short(keys)}: {complaint[1]}")
        found.append(row)
    return tuple(found)


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
) -> tuple[Comparison, ...]:
    """What rows say about one source."""
    return tuple(
        Comparison(row.keys, row.form, where)
        for row in rows
        if row.namespace in (None, namespace) and (row.source == "*" or fnmatchcase(f"{kind}/{name}", row.source))
    )


def ways_of(said: Iterable[Comparison]) -> tuple[tuple[Comparison, ...], int]:
    """What counts of all that was said, the first to decide first, and of how many globs.

    Each glob counts once, and no more of them than can be noted.
    """
    by_glob: dict[str, Comparison] = {}
    for one in said:
        by_glob.setdefault(one.keys, one)
    found: list[Comparison] = []
    length = 0
    for one in by_glob.values():
        length += len(str(one)) + 1
        if length > LONGEST_WAYS:
            break
        found.append(one)
    return tuple(found), len(by_glob)


def ways_text(ways: Iterable[Comparison]) -> str:
    """Ways as they are written down."""
    return ",".join(map(str, ways))


@lru_cache(maxsize=1024)
def read_ways(text: str) -> tuple[Comparison, ...]:
    """Ways that were written down; FormatError when they are none."""
    return parse_comparisons(text)


def form_of(key: str, comparisons: Iterable[Comparison]) -> str:
    """How a key is compared."""
    way = way_of(key, comparisons)
    return BYTES if way is None else way.form


def way_of(key: str, comparisons: Iterable[Comparison]) -> Comparison | None:
    """The one that decides how a key is compared; None: nobody says anything."""
    return next((one for one in comparisons if fnmatchcase(key, one.keys)), None)


def canonical(form: str, value: bytes) -> bytes:
    """The same bytes for the same content; the value itself when it is not what `form` says."""
    try:
        if form == IGNORE:
            return b""
        if form == "json":
            return _encoded(msgspec.json.decode(value))
        if form == "yaml":
            return _encoded(_told_apart(_bounded(_documents(value))))
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


def _told_apart(value: Any) -> Any:
    """The value with what JSON has no word for, each with a name of its own."""
    if isinstance(value, dict):
        return {name: _told_apart(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_told_apart(one) for one in value]
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
        (one.issuer.rfc4514_string(), f"{one.serial_number:x}", one.not_valid_after_utc.isoformat()) for one in found
    )
