"""Arguments and variables of other programs, as Go's flag packages and the originals read them. Pure.

    --name=VALUE   --name VALUE   --name (booleans)   -name (Go's own package)   -c VALUE   -cVALUE

A flag wins over its variable, and only the variable that it declares stands in for it: one that merely has the name of
a flag (`version=1.2.3`, which build systems set) says nothing. A name that the original does not know is an error that
says which one was perhaps meant; a value it would not take is an error that names the flag or variable it came from.
"""

from __future__ import annotations

import csv
import difflib
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.durations import parse_go_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag of an original."""

    name: str
    short: str = ""
    variable: str = ""  # the environment variable that stands in for it
    boolean: bool = False  # takes no value unless one follows `=`
    separator: str = ","  # between the values of a variable or flag that is a list


class Arguments:
    """The values that were given, by the names of flags, and variables that have no flag, by their own names."""

    def __init__(self, values: Mapping[str, list[str]], origins: Mapping[str, str], environ: Mapping[str, str]) -> None:
        """`environ`: the variables that have no flag; one that is named like a flag is not among them."""
        self._values = values
        self._origins = origins
        self._environ = environ

    def given(self, name: str) -> bool:
        """Whether it was given."""
        return name in self._values or name in self._environ

    def text(self, name: str, default: str = "") -> str:
        """The last value given."""
        if name in self._values:
            return self._values[name][-1]
        return self._environ.get(name, default)

    def words(self, name: str, separator: str = ",") -> tuple[str, ...]:
        """All values given, as a list without empty entries; quotes hold together what they enclose, as in Go."""
        said = self._values.get(name) or ([self._environ[name]] if name in self._environ else [])
        lists = [next(csv.reader([text]), []) if separator == "," else text.split(separator) for text in said]
        return tuple(word for parts in lists for part in parts if (word := part.strip()))

    def truth(self, name: str, *, default: bool = False) -> bool:
        """A boolean, as Go reads it."""
        text = self.text(name, "true" if default else "false")
        if text not in _TRUE | _FALSE:
            raise self.wrong(name, f'"{text}" is neither true nor false')
        return text in _TRUE

    def integer(self, name: str, default: int, *, least: int | None = None, most: int | None = None) -> int:
        """A whole number."""
        if not self.given(name):
            return default
        text = self.text(name)
        try:
            number = int(text)
        except ValueError:
            raise self.wrong(name, f'must be an integer, got: "{text}" (try {default})') from None
        if least is not None and number < least:
            raise self.wrong(name, f"must be >= {least}, got: {number}")
        if most is not None and number > most:
            raise self.wrong(name, f"must be <= {most}, got: {number}")
        return number

    def seconds(self, name: str, default: float) -> float:
        """A duration as Go writes it, in seconds."""
        if not self.given(name):
            return default
        try:
            return parse_go_duration(self.text(name)).total_seconds()
        except FormatError as error:
            raise self.wrong(name, str(error)) from None

    def wrong(self, name: str, message: str) -> ConfigError:
        """An error that names where the value came from."""
        return ConfigError(message, field=self._origins.get(name, name))


def read_arguments(program: str, flags: Sequence[Flag], argv: Sequence[str], environ: Mapping[str, str]) -> Arguments:
    """What the arguments and variables say."""
    names = {f"--{flag.name}": flag for flag in flags} | {f"-{flag.name}": flag for flag in flags}
    names |= {f"-{flag.short}": flag for flag in flags if flag.short}
    values: dict[str, list[str]] = {}
    origins: dict[str, str] = {}
    words = list(argv)
    while words:
        flag, value = _next(program, names, words)
        values.setdefault(flag.name, []).append(value)
        origins[flag.name] = f"--{flag.name}"
    for flag in flags:
        if flag.name not in values and flag.variable and flag.variable in environ:
            values[flag.name] = [environ[flag.variable]]
            origins[flag.name] = flag.variable
    known = {flag.name for flag in flags}
    return Arguments(values, origins, {name: value for name, value in environ.items() if name not in known})


def _next(program: str, names: Mapping[str, Flag], words: list[str]) -> tuple[Flag, str]:
    """Take one flag and its value from the front."""
    word = words.pop(0)
    name, equals, value = word.partition("=")
    flag = names.get(name)
    if flag is None and len(word) > 2 and word[1] != "-" and (short := names.get(word[:2])) is not None:
        flag, equals, value = short, "=", word[2:].removeprefix("=")  # -c500
    if flag is None:
        raise ConfigError(f"{program} has no such flag{_hint(name, names)}", field=word)
    if flag.boolean and not equals:
        return flag, "true"
    if not equals:
        if not words:
            raise ConfigError("needs a value", field=name)
        value = words.pop(0)
    return flag, value


def _hint(name: str, names: Mapping[str, Flag]) -> str:
    if not name.startswith("-"):
        return " (flags begin with --)"
    long = sorted({f"--{flag.name}" for flag in names.values()})
    near = difflib.get_close_matches(f"--{name.lstrip('-')}", long, n=1)
    if near:
        return f" (did you mean {near[0]}?)"
    return f" (known: {', '.join(long)})" if long else " (it is configured by variables only)"
