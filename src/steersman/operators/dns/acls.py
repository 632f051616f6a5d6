"""Access lists of named: one entry as text, checked, and as a statement. Pure.

Whatever passes here is an address, a network, a key or one of named's words, in a form in which nothing can hide.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from steersman.errors import FormatError, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.operators.dns.zonetext import Statement

__all__ = ["WORDS", "acl_statement", "acl_text", "checked_acl", "looping"]

WORDS: Final = frozenset({"any", "none", "localhost", "localnets"})
_KEY: Final = re.compile(r"key\s+\"?([A-Za-z0-9._-]{1,253})\"?\Z")


def acl_statement(entry: str, names: frozenset[str] = frozenset()) -> Statement:
    """One entry as a statement; FormatError when it is none. `names` are lists that exist.

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
        known = f" (lists are {', '.join(sorted(names))})" if names else ""
        raise FormatError(f'"{entry}" is no address, network, key or list{known}') from None
    return (f"{sign}{where}",)


def checked_acl(entries: Iterable[str], field: str, names: frozenset[str] = frozenset()) -> tuple[Statement, ...]:
    """The entries of a list; PlanError names the field when one of them is none."""
    try:
        return tuple(acl_statement(entry, names) for entry in entries)
    except FormatError as error:
        raise PlanError(str(error), reason="ConfigurationInvalid", field=field) from None


def looping(lists: Mapping[str, Iterable[str]]) -> str:
    """A list that is in itself, at whatever depth; empty when there is none.

    >>> looping({"a": ["b"], "b": ["!a"]}), looping({"a": ["b"], "b": ["any"]})
    ('a', '')
    """
    inside = {name: {entry.strip().lstrip("! ") for entry in rows} & lists.keys() for name, rows in lists.items()}
    for name in sorted(inside):
        seen: set[str] = set()
        ahead = set(inside[name])
        while ahead:
            seen |= ahead
            ahead = {further for one in ahead for further in inside[one]} - seen
        if name in seen:
            return name
    return ""


def acl_text(statement: Statement) -> str:
    """An entry as people write it.

    >>> acl_text(("!key", "a.b")), acl_text(("!", "192.0.2.0/24"))
    ('!key a.b', '!192.0.2.0/24')
    """
    return " ".join(part for part in statement if isinstance(part, str)).replace("! ", "!", 1)
