"""Why a text is not JSON, in the words of Go's decoder.

Clients and people know these sentences (`invalid character 'b' looking for beginning of object key string`), so the
server says them too. Only texts that already failed to decode come here; nothing is decoded.
"""

from __future__ import annotations

import re

__all__ = ["explain"]

_NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SPACE = b" \t\r\n"
_LITERALS = {b"t": b"true", b"f": b"false", b"n": b"null"}
_END = "unexpected end of JSON input"


class _WrongError(Exception):
    """Found it."""


def explain(text: bytes) -> str:
    """What is wrong with `text`; a text without fault gives an empty string."""
    try:
        position = _value(text, _skip(text, 0), "looking for beginning of value", 0)
        position = _skip(text, position)
        if position < len(text):
            _fail(text, position, "after top-level value")
    except _WrongError as wrong:
        return str(wrong)
    return ""


def _skip(text: bytes, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _fail(text: bytes, position: int, context: str) -> None:
    if position >= len(text):
        raise _WrongError(_END)
    char = chr(text[position])
    quoted = {"'": r"'\''", '"': "'\"'"}.get(char) or f"'{_go_char(char)}'"
    raise _WrongError(f"invalid character {quoted} {context}")


def _go_char(char: str) -> str:
    known = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "\0": r"\x00"}
    if char in known:
        return known[char]
    return char if char.isprintable() else f"\\x{ord(char):02x}"


def _value(text: bytes, position: int, context: str, depth: int) -> int:
    if depth > 10_000:
        raise _WrongError("exceeded max depth")
    first = text[position : position + 1]
    if first == b"{":
        return _object(text, position + 1, depth)
    if first == b"[":
        return _array(text, position + 1, depth)
    if first == b'"':
        return _string(text, position + 1)
    if first in _LITERALS and first:
        return _literal(text, position, _LITERALS[first])
    if first == b"-" or first.isdigit():
        return _number(text, position)
    _fail(text, position, context)
    return position


def _object(text: bytes, position: int, depth: int) -> int:
    position = _skip(text, position)
    if text[position : position + 1] == b"}":
        return position + 1
    while True:
        if text[position : position + 1] != b'"':
            _fail(text, position, "looking for beginning of object key string")
        position = _skip(text, _string(text, position + 1))
        if text[position : position + 1] != b":":
            _fail(text, position, "after object key")
        position = _skip(text, position + 1)
        position = _skip(text, _value(text, position, "looking for beginning of value", depth + 1))
        match text[position : position + 1]:
            case b"}":
                return position + 1
            case b",":
                position = _skip(text, position + 1)
            case _:
                _fail(text, position, "after object key:value pair")


def _array(text: bytes, position: int, depth: int) -> int:
    position = _skip(text, position)
    if text[position : position + 1] == b"]":
        return position + 1
    while True:
        position = _skip(text, _value(text, position, "looking for beginning of value", depth + 1))
        match text[position : position + 1]:
            case b"]":
                return position + 1
            case b",":
                position = _skip(text, position + 1)
            case _:
                _fail(text, position, "after array element")


def _string(text: bytes, position: int) -> int:
    while True:
        char = text[position : position + 1]
        if char == b'"':
            return position + 1
        if char == b"\\":
            escape = text[position + 1 : position + 2]
            if escape == b"u":
                for offset in range(2, 6):
                    if text[position + offset : position + offset + 1] not in _HEX:
                        _fail(text, position + offset, "in \\u hexadecimal character escape")
                position += 6
                continue
            if not escape or escape not in b'"\\/bfnrt':
                _fail(text, position + 1, "in string escape code")
            position += 2
            continue
        if not char or char[0] < 0x20:
            _fail(text, position, "in string literal")
        position += 1


_HEX = {bytes([char]) for char in b"0123456789abcdefABCDEF"}


def _literal(text: bytes, position: int, word: bytes) -> int:
    for offset, expected in enumerate(word):
        if text[position + offset : position + offset + 1] != bytes([expected]):
            _fail(text, position + offset, f"in literal {word.decode()} (expecting '{chr(expected)}')")
    return position + len(word)


def _number(text: bytes, position: int) -> int:
    found = _NUMBER.match(text, position)
    if found is None:
        _fail(text, position + 1, "in numeric literal")
        return position
    end = found.end()
    rest = text[end : end + 1]
    if rest == b".":
        _fail(text, end + 1, "after decimal point in numeric literal")
    if rest in {b"e", b"E"}:
        sign = text[end + 1 : end + 2] in {b"+", b"-"}
        _fail(text, end + 1 + sign, "in exponent of numeric literal")
    return end
