"""Keys in a file of named's own form: `key "name" { algorithm hmac-sha256; secret "…"; };`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.errors import FormatError
from steersman.operators.dns.tsig import key_from
from steersman.operators.dns.zonetext import read_statements

if TYPE_CHECKING:
    from steersman.operators.dns.tsig import Key

__all__ = ["keys_in"]


def keys_in(text: str) -> dict[str, Key]:
    """The keys of a file by their names, in its order; FormatError when there is none, without any secret.

    >>> keys_in('key "a" { algorithm hmac-sha256; secret "c2VjcmV0"; };')
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
        raise FormatError("holds no key statement")
    return found
