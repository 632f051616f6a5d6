"""Warnings of the API server: `Warning:` headers of answers that are otherwise fine.

A deprecated API version, an unknown field that was dropped, a warning of an admission policy. Each text is
logged once for each kind of request (`POST configmaps`), because a controller repeats its requests. Code that wants
them all collects them:

    with collect_warnings() as warnings:
        await client.create(obj)
    [warning.text for warning in warnings]

Only warnings with the code 299 count, as in client-go: others are those of HTTP caches.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple

from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["ServerWarning", "WarningLog", "collect_warnings", "parse_warnings"]

REMEMBERED: Final = 1024  # texts that were logged; the oldest are forgotten, and may be logged once more
_WARNING: Final = re.compile(r'\s*(\d{3}) (\S+) "((?:[^"\\]|\\.)*)"(?: "[^"]*")?\s*(?:,|$)')
_ESCAPED: Final = re.compile(r"\\(.)")

log = Logger(__name__)


class ServerWarning(NamedTuple):
    """What the API server says about a request that it accepted."""

    text: str
    request: str  # its method and resource


_COLLECTED: ContextVar[list[ServerWarning] | None] = ContextVar("server_warnings", default=None)


@contextmanager
def collect_warnings() -> Iterator[list[ServerWarning]]:
    """The warnings of all requests made within, by this task and those that it starts there."""
    collected: list[ServerWarning] = []
    token = _COLLECTED.set(collected)
    try:
        yield collected
    finally:
        _COLLECTED.reset(token)


def parse_warnings(headers: Iterable[str]) -> list[str]:
    r"""The texts of `Warning:` headers.

    >>> parse_warnings(['299 - "v1 is \\"old\\"", 299 - "unknown field"', '110 - "Response is Stale"', "nonsense"])
    ['v1 is "old"', 'unknown field']
    """
    found = [match.groups() for header in headers for match in _WARNING.finditer(header)]
    return [_ESCAPED.sub(r"\1", text) for code, _, text in found if code == "299"]


class WarningLog:
    """Logs each warning once for each kind of request; belongs to one transport."""

    def __init__(self) -> None:
        self._logged: OrderedDict[ServerWarning, None] = OrderedDict()

    def note(self, headers: Iterable[str], method: str, path: str) -> None:
        """The `Warning:` headers of one answer."""
        collected = _COLLECTED.get()
        for text in parse_warnings(headers):
            warning = ServerWarning(text, f"{method} {_resource(path)}")
            if collected is not None:
                collected.append(warning)
            if warning not in self._logged:
                self._logged[warning] = None
                if len(self._logged) > REMEMBERED:
                    self._logged.popitem(last=False)
                log.warning("the API server warns", warning=text, request=warning.request)


def _resource(path: str) -> str:
    """The resource of a path, without names: `deployments.apps`, `pods/status`."""
    parts = path.partition("?")[0].strip("/").split("/")
    group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
    if len(rest) > 2 and rest[0] == "namespaces":  # an object in a namespace, not a namespace or its status
        rest = rest[2:] if rest[2] not in ("status", "finalize") else rest
    if not rest:
        return path
    name = f"{rest[0]}.{group}" if group else rest[0]
    return f"{name}/{rest[2]}" if len(rest) > 2 else name
