"""How pods get a new configuration: by a restart, by themselves, by an HTTP call to each pod, or by eviction. Pure.

restart                                   new pods by a rollout; the default
none                                      the application reloads by itself: changes are only recorded
http port=8080 path=/-/reload             each pod is called once its kubelet has updated mounted files
     method=POST after=90s timeout=5s tries=3 scheme=http
evict                                     pods are evicted one by one, as disruption budgets allow
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.api.durations import format_duration, parse_duration
from steersman.operators.reload.api.config import ACTIONS

_METHODS: Final = ("POST", "GET", "PUT")
_SCHEMES: Final = ("http", "https")
_LONGEST_TIMEOUT: Final = timedelta(seconds=30)
_MOST_TRIES: Final = 10
_OF_PODS: Final = ("http", "evict")  # done with each pod of a workload


class ReloadAction(msgspec.Struct, frozen=True, kw_only=True):
    """What is done when sources have changed."""

    kind: str = "restart"
    port: int = 0
    path: str = "/"
    method: str = "POST"
    scheme: str = "http"
    after: timedelta = timedelta(seconds=90)  # a kubelet syncs every minute, and its cache is a little older
    timeout: timedelta = timedelta(seconds=5)
    tries: int = 3
    off: str = ""  # why it cannot be done: the configuration does not switch it on, or its pods cannot be found

    def __str__(self) -> str:
        if self.kind != "http":
            return self.kind
        return f"{self.method} :{self.port}{self.path} {format_duration(self.after)} after a change"

    def found_by(self, selector: str) -> ReloadAction:
        """The same for a workload whose pods this selector finds; those of one without a selector cannot be found."""
        if self.off or selector or self.kind not in _OF_PODS:
            return self
        return msgspec.structs.replace(
            self, off="needs the pods of the workload, which has no selector that finds them (try restart or none)"
        )


RESTART: Final = ReloadAction()


def parse_action(text: str) -> ReloadAction:
    """Read the annotation.

    >>> str(parse_action("http port=9090 path=/-/reload"))
    'POST :9090/-/reload 1m30s after a change'
    """
    kind, *words = text.split() or [""]
    if kind not in ACTIONS:
        raise FormatError(f'unknown action "{kind[:100]}" (known: {", ".join(ACTIONS)})')
    if kind != "http":
        if words:
            raise FormatError(f"{kind} takes no options")
        return ReloadAction(kind=kind)
    given: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or name not in _READERS:
            raise FormatError(
                f'unknown option "{word[:100]}" of http (known: {", ".join(f"{name}=…" for name in _READERS)})'
            )
        given[name] = value
    if "port" not in given:
        raise FormatError("http needs a port (try http port=8080 path=/-/reload)")
    return ReloadAction(kind=kind, **{name: _READERS[name](value) for name, value in given.items()})  # type: ignore[arg-type]


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
