"""Zone files and configuration statements as text, and configuration read back.

Every name is escaped, every string quoted; nothing that a person wrote is ever put between two tokens as it is. Reading
back knows only what it must: tokens, braces and semicolons, so two statements are the same when they say the same.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from steersman.errors import FormatError
from steersman.operators.dns.names import text_of
from steersman.operators.dns.rrsets import SOA, type_name, value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.dns.rrsets import Key, RRset, Soa

__all__ = ["Statement", "file_name", "quote", "read_statements", "statement_text", "zone_file"]

Statement = tuple["str | tuple[Statement, ...]", ...]

LONGEST: Final = 200  # characters of a file's name; named adds some for journals and half-written files
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([{};])|([^\s{};"]+)|(#[^\n]*|//[^\n]*)', re.DOTALL)
_SAFE: Final = re.compile(r"[^a-z0-9._-]")


def quote(text: str) -> str:
    """A string for named.conf; FormatError when it could end early."""
    if not text.isprintable() or '"' in text or "\\" in text:
        raise FormatError(f"{text!r} cannot be a string in named.conf")
    return f'"{text}"'


def file_name(zone: bytes) -> str:
    """The file of a zone: one name per zone, and no way out of the directory.

    >>> file_name(b"\\x040/25\\x03org\\x00"), file_name(b"\\x03org\\x00")
    ('0%2f25.org.zone', 'org.zone')
    """
    text = text_of(zone).removesuffix(".") or "root"
    stem = _SAFE.sub(lambda sign: f"%{ord(sign.group()):02x}", text.lower())
    if len(stem) > LONGEST:
        stem = f"{stem[: LONGEST - 41]}%{hashlib.sha256(zone).hexdigest()[:40]}"
    return f"{stem}.zone"


def zone_file(zone: bytes, soa: Soa, rrsets: Mapping[Key, RRset], ttl: int) -> str:
    """A whole zone, complete from its first moment."""
    lines = [f"$ORIGIN {text_of(zone)}", f"$TTL {ttl}", f"@ {ttl} IN SOA {value_text(SOA, soa.value())}"]
    for (owner, kind), rrset in sorted(rrsets.items(), key=lambda item: item[0]):
        name = text_of(owner)
        lines += [
            f"{name} {rrset.ttl} IN {type_name(kind)} {value_text(kind, value)}" for value in sorted(rrset.values)
        ]
    return "\n".join(lines) + "\n"


def read_statements(text: str) -> tuple[Statement, ...]:
    """Configuration as nested tuples of words, in a form that can be compared.

    >>> read_statements('type primary; allow-transfer { key "t"; };')
    (('type', 'primary'), ('allow-transfer', (('key', 't'),)))
    """
    stack: list[tuple[list[Statement], list[object]]] = [([], [])]
    for match in _TOKEN.finditer(text):
        quoted, sign, word, _comment = match.groups()
        statements, current = stack[-1]
        if quoted is not None or word is not None:
            current.append(quoted if quoted is not None else word)
        elif sign == "{":
            stack.append(([], []))
        elif sign == ";":
            if current:
                statements.append(tuple(current))  # type: ignore[arg-type]  # words and blocks
                current.clear()
        elif sign == "}":
            if len(stack) == 1:
                raise FormatError("a closing brace without an opening one")
            stack.pop()
            stack[-1][1].append(tuple(statements))
    return tuple(stack[0][0])


def statement_text(statements: Iterable[Statement]) -> str:
    """Statements for named, on one line; names and whatever is not plain are quoted."""
    return " ".join(f"{' '.join(_parts(statement))};" for statement in statements)


_PLAIN: Final = re.compile(r"!?[A-Za-z0-9_./:-]+\Z")
_NAMING: Final = frozenset(
    {"file", "key", "!key", "grant", "dnssec-policy", "directory", "key-directory", "session-keyfile", "zone"}
)  # before a string


def _parts(statement: Statement) -> Iterable[str]:
    before = ""
    for part in statement:
        if isinstance(part, tuple):
            yield f"{{ {statement_text(part)} }}" if part else "{ }"
            continue
        yield part if _PLAIN.match(part) and before not in _NAMING else quote(part)
        before = part
