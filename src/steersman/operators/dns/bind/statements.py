"""Statements of named.conf: text to nested tuples and back, access lists and key statements. Pure.

Reading knows only tokens, braces and semicolons, so two statements are equal when they mean the same. Writing quotes
every name and string: nothing that a user wrote is put between two tokens unquoted, and an entry of an access list is
an address, a network, a key, a list that exists or a keyword of named.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.wire.tsig import key_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.dns.wire.tsig import Key

Statement = tuple["str | tuple[Statement, ...]", ...]


# A string without an end goes on to the end of the text: to try each quote in it again takes time that grows with its
# square.
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)|([{};])|([^\s{};"]+)|(#[^\n]*|//[^\n]*)', re.DOTALL)


def quote(text: str) -> str:
    """A quoted string for named.conf; FormatError when a character in it could end the quotes."""
    if not text.isprintable() or '"' in text or "\\" in text:
        raise FormatError(f"{text!r} cannot be quoted in named.conf: control characters, quotes or backslashes")
    return f'"{text}"'


def read_statements(text: str) -> tuple[Statement, ...]:
    """Configuration text as nested tuples of words.

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
                raise FormatError("a closing brace has no opening one")
            stack.pop()
            stack[-1][1].append(tuple(statements))
    return tuple(stack[0][0])


def statement_text(statements: Iterable[Statement]) -> str:
    """Statements for named on one line; names, and words with special characters, are quoted."""
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


WORDS: Final = frozenset({"any", "none", "localhost", "localnets"})
_KEY: Final = re.compile(r"key\s+\"?([A-Za-z0-9._-]{1,253})\"?\Z")


def acl_statement(entry: str, names: frozenset[str] = frozenset()) -> Statement:
    """One entry of an access list as a statement; FormatError when it is invalid. `names` are the known lists.

    >>> acl_statement('! key "a.b"'), acl_statement("192.0.2.7/24")
    (('!key', 'a.b'), ('192.0.2.0/24',))
    """
    text = entry.strip()
    sign = "!" if text.startswith("!") else ""
    text = text.removeprefix("!").strip()
    if (match := _KEY.match(text)) is not None:
        return (f"{sign}key", match.group(1))
    if text in WORDS or text in names:
        return (f"{sign}{text}",)
    try:
        where = str(ip_network(text, strict=False)) if "/" in text else str(ip_address(text))
    except ValueError:
        known = f" (known lists: {', '.join(sorted(names))})" if names else ""
        raise FormatError(f'"{entry}" is not an address, network, key or known access list{known}') from None
    return (f"{sign}{where}",)


def checked_acl(entries: Iterable[str], field: str, names: frozenset[str] = frozenset()) -> tuple[Statement, ...]:
    """The entries of an access list as statements; PlanError with the field when an entry is invalid."""
    try:
        return tuple(acl_statement(entry, names) for entry in entries)
    except FormatError as error:
        raise PlanError(str(error), reason="ConfigurationInvalid", field=field) from None


def looping(lists: Mapping[str, Iterable[str]]) -> str:
    """The name of an access list that contains itself, directly or through others; empty without one.

    >>> looping({"a": ["b"], "b": ["!a"]}), looping({"a": ["b"], "b": ["any"]})
    ('a', '')
    """
    inside = {name: {entry.strip().lstrip("! ") for entry in rows} & lists.keys() for name, rows in lists.items()}
    for name in sorted(inside):
        seen: set[str] = set()
        ahead = set(inside[name])
        while ahead:
            seen |= ahead
            ahead = {further for member in ahead for further in inside[member]} - seen
        if name in seen:
            return name
    return ""


def acl_text(statement: Statement) -> str:
    """An entry of an access list as text.

    >>> acl_text(("!key", "a.b")), acl_text(("!", "192.0.2.0/24"))
    ('!key a.b', '!192.0.2.0/24')
    """
    return " ".join(part for part in statement if isinstance(part, str)).replace("! ", "!", 1)


def read_keys(text: str) -> dict[str, Key]:
    """The TSIG keys of a file by name, in order; FormatError without a key. Errors contain no secret.

    >>> read_keys('key "a" { algorithm hmac-sha256; secret "c2VjcmV0"; };')
    {'a': Key('a', 'hmac-sha256')}
    """
    found = {}
    for statement in read_statements(text):
        match statement:
            case ("key", str(name), tuple(rows)):
                words = {str(row[0]): str(row[1]) for row in rows if len(row) == 2}
                parts = {"key-name": name, **words}
                found[name] = key_from({field: value.encode() for field, value in parts.items()})
    if not found:
        raise FormatError("contains no key statement")
    return found
