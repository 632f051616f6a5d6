"""By which means pods get a new configuration: a restart, nothing, a call to each pod, or eviction. Pure.

restart                                   new pods by a rollout; the default
none                                      the app reloads by itself: changes are only written down
http port=8080 path=/-/reload             each pod is called once its kubelet has brought the change
     method=POST after=90s timeout=5s tries=3 scheme=http
evict                                     pods are evicted one by one, as disruption budgets allow
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.durations import format_duration, parse_duration
from steersman.operators.reload.features import ACTIONS

__all__ = ["RESTART", "Means", "parse_means"]

_METHODS: Final = ("POST", "GET", "PUT")
_SCHEMES: Final = ("http", "https")
_LONGEST_TIMEOUT: Final = timedelta(seconds=30)
_MOST_TRIES: Final = 10


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What is done when sources have changed."""

    kind: str = "restart"
    port: int = 0
    path: str = "/"
    method: str = "POST"
    scheme: str = "http"
    after: timedelta = timedelta(seconds=90)  # a kubelet looks every minute, and its cache is a little older
    timeout: timedelta = timedelta(seconds=5)
    tries: int = 3
    off: bool = False  # the configuration does not switch it on

    def __str__(self) -> str:
        if self.kind != "http":
            return self.kind
        return f"{self.method} :{self.port}{self.path} {format_duration(self.after)} after a change"


RESTART: Final = Means()


def parse_means(text: str) -> Means:
    """Read the annotation.

    >>> str(parse_means("http port=9090 path=/-/reload"))
    'POST :9090/-/reload 1m30s after a change'
    """
    kind, *words = text.split() or [""]
    if kind not in ACTIONS:
        raise FormatError(f'"{kind[:100]}" is no action (try {", ".join(ACTIONS)})')
    if kind != "http":
        if words:
            raise FormatError(f"{kind} takes no options")
        return Means(kind=kind)
    given: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or name not in _READERS:
            raise FormatError(f'"{word[:100]}" is no option of http (try {", ".join(f"{one}=…" for one in _READERS)})')
        given[name] = value
    if "port" not in given:
        raise FormatError("http needs a port (try http port=8080 path=/-/reload)")
    return Means(kind=kind, **{name: _READERS[name](value) for name, value in given.items()})  # type: ignore[arg-type]


def _port(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65536):
        raise FormatError(f'port: "{text[:20]}" is not a port (try 8080)')
    return int(text)


def _path(text: str) -> str:
    if not text.startswith("/") or not text.isprintable():
        raise FormatError(f'path: "{text[:100]}" is not a path (try /-/reload)')
    return text


def _tries(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 2 and 1 <= int(text) <= _MOST_TRIES):
        raise FormatError(f'tries: "{text[:20]}" is not a number from 1 to {_MOST_TRIES}')
    return int(text)


def _timeout(text: str) -> timedelta:
    found = parse_duration(text)
    if not timedelta(0) < found <= _LONGEST_TIMEOUT:
        raise FormatError(f"timeout: must be between 0 and {format_duration(_LONGEST_TIMEOUT)}")
    return found


def _word(known: tuple[str, ...], name: str, text: str) -> str:
    if text not in known:
        raise FormatError(f'{name}: "{text[:20]}" is not one of {", ".join(known)}')
    return text


_READERS: Final = {
    "port": _port,
    "path": _path,
    "method": lambda text: _word(_METHODS, "method", text.upper()),
    "scheme": lambda text: _word(_SCHEMES, "scheme", text.lower()),
    "after": parse_duration,
    "timeout": _timeout,
    "tries": _tries,
}
