"""Access lists of named: one entry as text, checked, and as a statement. Pure.

Whatever passes here is an address, a network, a key or one of named's words, in a form in which nothing can hide.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from steersman.errors import FormatError

if TYPE_CHECKING:
    from steersman.operators.dns.zonetext import Statement

__all__ = ["WORDS", "acl_statement", "acl_text"]

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
        raise FormatError(f'"{entry}" is no address, network, key or list') from None
    return (f"{sign}{where}",)


def acl_text(statement: Statement) -> str:
    """An entry as people write it.

    >>> acl_text(("!key", "a.b")), acl_text(("!", "192.0.2.0/24"))
    ('!key a.b', '!192.0.2.0/24')
    """
    return " ".join(part for part in statement if isinstance(part, str)).replace("! ", "!", 1)
