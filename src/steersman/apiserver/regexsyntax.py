r"""The grammar of Go's regular expressions: text in, tree out, or the error that Go's parser gives.

The tree has five kinds of node. Groups leave no trace, because nobody asks what they captured. What Go refuses is
refused: look-around, back-references, possessive repetition. Case folding is done while parsing.
"""

from __future__ import annotations

import string
import unicodedata
from typing import NamedTuple

from steersman.errors import SteersmanError

__all__ = ["Alternatives", "Assertion", "Chars", "Node", "RegexpError", "Repeat", "Sequence", "parse"]

MAX_REPEAT = 1000
MAX_DEPTH = 100  # of groups; Go allows 1000, which is more than this recursive parser should go


class RegexpError(SteersmanError):
    """A pattern that is not one.

    >>> str(RegexpError("missing closing ]", "[a"))
    'error parsing regexp: missing closing ]: `[a`'
    """

    def __init__(self, problem: str, piece: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{piece}`")


class Chars(NamedTuple):
    """A set of characters: ranges, Unicode properties (negated ones with a leading ^), other sets; or all the rest."""

    ranges: tuple[tuple[str, str], ...] = ()
    properties: tuple[str, ...] = ()
    sets: tuple[Chars, ...] = ()
    negated: bool = False
    fold: bool = False

    def matches(self, char: str) -> bool:
        """Whether `char` is in the set."""
        found = self._has(char)
        if not found and self.fold:
            found = any(self._has(other) for other in {char.lower(), char.upper(), char.swapcase()} - {char})
        return found != self.negated

    def _has(self, char: str) -> bool:
        return (
            any(low <= char <= high for low, high in self.ranges)
            or any(_has_property(char, name) for name in self.properties)
            or any(inner.matches(char) for inner in self.sets)
        )


class Assertion(NamedTuple):
    """Consumes nothing: `^`, `$`, `m^` and `m$` (at lines), `\\b`, `\\B`."""

    kind: str


class Sequence(NamedTuple):
    """One after another; empty matches nothing at all, everywhere."""

    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    """One of several."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """At least `least` and at most `most` times; `most` None is without end."""

    part: Node
    least: int
    most: int | None


Node = Chars | Assertion | Sequence | Alternatives | Repeat

_DIGIT = (("0", "9"),)
_SPACE = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_WORD = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": _DIGIT,
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": _WORD,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CATEGORY_NAMES = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
_CATEGORIES = frozenset(_CATEGORY_NAMES.split())
# Scripts are recognised by the official names of their characters, which begin with the script's name.
_SCRIPT_NAMES = (
    "Arabic Armenian Bengali Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Hangul Hebrew Hiragana Katakana "
    "Khmer Lao Latin Mongolian Tamil Thai Tibetan"
)
_SCRIPTS = {script: script.upper() for script in _SCRIPT_NAMES.split()} | {"Han": "CJK"}


def _has_property(char: str, name: str) -> bool:
    negated = name.startswith("^")
    plain = name.removeprefix("^")
    if plain == "Any":
        found = True
    elif plain in _SCRIPTS:
        found = unicodedata.name(char, "").startswith(f"{_SCRIPTS[plain]} ")
    else:
        found = unicodedata.category(char).startswith(plain)
    return found != negated


class _Flags(NamedTuple):
    """Flags that change what the text after them means."""

    i: bool = False
    m: bool = False
    s: bool = False


def parse(pattern: str) -> Node:
    """The tree of a pattern."""
    parser = _Parser(pattern)
    node = parser.alternatives(_Flags(), depth=0)
    if parser.at < len(pattern):
        raise RegexpError("unexpected )", pattern)
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def _peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def alternatives(self, flags: _Flags, *, depth: int) -> Node:
        """Everything up to the closing parenthesis of the group we are in, or to the end."""
        if depth > MAX_DEPTH:
            raise RegexpError("expression nests too deeply", self.text)
        branches: list[Node] = []
        parts: list[Node] = []
        repeated = self.at  # where the operator of the item before began; it cannot be repeated again
        while self.at < len(self.text) and self._peek() != ")":
            start = self.at
            if self._peek() == "|":
                self.at += 1
                branches.append(Sequence(tuple(parts)))
                parts = []
            elif self._peek(2) == "(?" and (changed := self._flags_only(flags)) is not None:
                flags = changed
            elif (repeat := self._repeat_ahead()) is not None:
                least, most, self.at = repeat
                self.at += self._peek() == "?"
                if not parts:
                    raise RegexpError("missing argument to repetition operator", self.text[start : self.at])
                if repeated < start:
                    raise RegexpError("invalid nested repetition operator", self.text[repeated : self.at])
                parts[-1] = Repeat(parts[-1], least, most)
                repeated = start
                continue
            else:
                parts.extend(self._one(flags, depth))
            repeated = self.at
        branches.append(Sequence(tuple(parts)))
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _repeat_ahead(self) -> tuple[int, int | None, int] | None:
        """(least, most, where it ends) of the repetition operator at the current place."""
        char = self._peek()
        if char and char in "*+?":
            return ({"*": 0, "+": 1, "?": 0}[char], 1 if char == "?" else None, self.at + 1)
        if char != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _number(low) or (high and not _number(high)):
            return None  # an ordinary brace
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise RegexpError("invalid repeat count", self.text[self.at : end + 1])
        return least, most, end + 1

    def _one(self, flags: _Flags, depth: int) -> list[Node]:
        """The next item; a literal run quoted by \\Q…\\E is several."""
        char = self._peek()
        if char == "(":
            return [self._group(flags, depth)]
        if char == "[":
            return [self._class(flags)]
        if char == "\\":
            return self._escape(flags)
        self.at += 1
        if char == ".":
            return [Chars(negated=True) if flags.s else Chars(ranges=(("\n", "\n"),), negated=True)]
        if char in "^$":
            return [Assertion(f"m{char}" if flags.m else char)]
        return [_literal(char, flags)]

    def _flags_only(self, flags: _Flags) -> _Flags | None:
        """The new flags when a `(?flags)` item is next; it holds to the end of the enclosing group."""
        close = self.text.find(")", self.at)
        inside = self.text[self.at + 2 : close]
        if close < 0 or inside.strip("imsU-"):
            return None
        changed = self._changed(flags, inside, self.text[self.at : close + 1])
        self.at = close + 1
        return changed

    @staticmethod
    def _changed(flags: _Flags, text: str, piece: str) -> _Flags:
        on, minus, off = text.partition("-")
        if "-" in off or (minus and not off) or (on + off).strip("imsU"):
            raise RegexpError("invalid or unsupported Perl syntax", piece)
        changes = {name: True for name in on if name != "U"} | {name: False for name in off if name != "U"}
        return flags._replace(**changes)

    def _group(self, flags: _Flags, depth: int) -> Node:
        start = self.at
        self.at += 1
        if self._peek() == "?":
            flags = self._group_head(flags, start)
        node = self.alternatives(flags, depth=depth + 1)
        if self._peek() != ")":
            raise RegexpError("missing closing )", self.text)
        self.at += 1
        return node

    def _group_head(self, flags: _Flags, start: int) -> _Flags:
        rest = self.text[self.at + 1 :]
        for opening in ("P<", "<"):
            if rest.startswith(opening) and not rest.startswith(("<=", "<!")):
                name, close, _ = rest[len(opening) :].partition(">")
                if not close or not name or not all(c.isascii() and (c.isalnum() or c == "_") for c in name):
                    raise RegexpError("invalid named capture", f"(?{opening}{name}{close}")
                self.at += 1 + len(opening) + len(name) + 1
                return flags
        head, colon, _ = rest.partition(":")
        if colon and not head.strip("imsU-"):
            self.at += 1 + len(head) + 1
            return self._changed(flags, head, self.text[start : self.at]) if head else flags
        known = len(rest) - len(rest.lstrip("imsU-"))
        raise RegexpError("invalid or unsupported Perl syntax", self.text[start : self.at + 2 + known])

    def _escape(self, flags: _Flags) -> list[Node]:
        char = self.text[self.at + 1 : self.at + 2]
        if char == "Q":
            end = self.text.find("\\E", self.at + 2)
            quoted = self.text[self.at + 2 : end if end >= 0 else len(self.text)]
            self.at = end + 2 if end >= 0 else len(self.text)
            return [_literal(item, flags) for item in quoted] or [Sequence(())]
        assertions = {"A": "^", "z": "$", "b": "\\b", "B": "\\B"}
        if char in assertions and char:
            self.at += 2
            return [Assertion(assertions[char])]
        if (known := self._shorthand(flags)) is not None:
            return [known]
        return [_literal(self._escaped_char(), flags)]

    def _shorthand(self, flags: _Flags) -> Chars | None:
        """`\\d`, `\\W`, `\\pL`, `\\p{Greek}`, `\\P{^L}` and the like, when one is next."""
        char = self.text[self.at + 1 : self.at + 2]
        if char and char.lower() in _PERL:
            self.at += 2
            return Chars(ranges=_PERL[char.lower()], negated=char.isupper())
        if char not in {"p", "P"}:
            return None
        start = self.at
        name = self.text[self.at + 2 : self.at + 3]
        self.at += 3
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise RegexpError("invalid character class range", self.text[start:])
            name = self.text[self.at : end]
            self.at = end + 1
        if name.removeprefix("^") not in _CATEGORIES | _SCRIPTS.keys() | {"Any"}:
            raise RegexpError("invalid character class range", self.text[start : self.at])
        return Chars(properties=(name,), negated=char == "P", fold=flags.i)

    def _escaped_char(self) -> str:
        start = self.at
        char = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if not char:
            raise RegexpError("trailing backslash at end of expression", "")
        if char in _CONTROL:
            return _CONTROL[char]
        if char in "01234567" and (char == "0" or self._peek() in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._peek()
                self.at += 1
            return chr(int(digits, 8))
        if char == "x":
            return self._hexadecimal(start)
        if char.isascii() and not char.isalnum():
            return char
        raise RegexpError("invalid escape sequence", self.text[start : self.at])

    def _hexadecimal(self, start: int) -> str:
        if self._peek() == "{":
            end = self.text.find("}", self.at)
            digits = self.text[self.at + 1 : max(end, 0)]
            self.at = end + 1
        else:
            digits = self._peek(2)
            self.at += 2
        if not digits or digits.strip(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise RegexpError("invalid escape sequence", self.text[start : start + 2])
        return chr(int(digits, 16))

    def _class(self, flags: _Flags) -> Chars:
        start = self.at
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        ranges: list[tuple[str, str]] = []
        sets: list[Chars] = []
        first = True
        while first or self._peek() != "]":
            if not self._peek():
                raise RegexpError("missing closing ]", self.text[start:])
            first = False
            item = self._class_item(flags, start)
            sets.append(item) if isinstance(item, Chars) else ranges.append(item)
        self.at += 1
        return Chars(ranges=tuple(ranges), sets=tuple(sets), negated=negated, fold=flags.i)

    def _class_item(self, flags: _Flags, class_start: int) -> Chars | tuple[str, str]:
        if self._peek(2) == "[:":
            end = self.text.find(":]", self.at)
            if end >= 0:
                name = self.text[self.at + 2 : end]
                if name.removeprefix("^") not in _POSIX:
                    raise RegexpError("invalid character class range", self.text[self.at : end + 2])
                self.at = end + 2
                return Chars(ranges=_POSIX[name.removeprefix("^")], negated=name.startswith("^"))
        if self._peek() == "\\" and (known := self._shorthand(flags)) is not None:
            return known
        start = self.at
        low = self._class_char(class_start)
        if self._peek() != "-" or self._peek(2) == "-]":
            return (low, low)
        self.at += 1
        high = self._class_char(class_start)
        if high < low:
            raise RegexpError("invalid character class range", self.text[start : self.at])
        return (low, high)

    def _class_char(self, class_start: int) -> str:
        if not self._peek():
            raise RegexpError("missing closing ]", self.text[class_start:])
        if self._peek() == "\\":
            return self._escaped_char()
        char = self._peek()
        self.at += 1
        return char


def _literal(char: str, flags: _Flags) -> Chars:
    return Chars(ranges=((char, char),), fold=flags.i)


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0"))
