"""The annotations of a Service, in any of four vocabularies. Pure.

The first vocabulary is the documented one; the others were documented elsewhere, and mean the same. An invalid value is
a problem that names its annotation. A Service with a problem is left out as a whole: what its author wants is unknown,
and a part of it may do harm.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError
from steersman.kube.api.validation import quoted
from steersman.operators.toolset.discovery.endpoints import check_text, check_url

if TYPE_CHECKING:
    from collections.abc import Mapping

RESERVED: Final = "kubernetes"
_ENABLED: Final = frozenset({"true", "enabled"})
_DISABLED: Final = frozenset({"false", "disabled"})
_TYPE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_. ]{0,251}[A-Za-z0-9])?")
_ENV: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LISTED: Final = re.compile(r"\s*([A-Za-z0-9-]+)\s*:\s*(\d{1,5})\s*")


class Spelling(msgspec.Struct, frozen=True):
    """A known annotation, by any of its names."""

    canonical: str
    aliases: tuple[str, ...] = ()


_TOOLSET: Final = Spelling("toolset", ("discoverable",))
_TYPE_NAMES: Final = Spelling("toolset-type", ("tool-type",))
_HEALTH_PATH: Final = Spelling("toolset-health-path", ("health-endpoint", "health-check"))


class ServiceAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations of a Service set; None or empty where they set nothing."""

    opted_out: bool = False
    opted_in: bool = False
    type: str = ""
    name: str = ""
    endpoint: str = ""
    health_path: str = ""
    health_skipped: bool = False
    port: int | str | None = None
    scheme: str = ""
    path: str = ""
    priority: int | None = None
    verify_tls: bool | None = None
    auth_env: str = ""
    tenant: str = ""
    capabilities: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # each names the annotation it is about


class _Reader:
    def __init__(self, annotations: Mapping[str, str], prefix: str) -> None:
        self._annotations = annotations
        self._prefix = prefix
        self.problems: list[str] = []

    def text(self, names: Spelling | str) -> str:
        """The checked text of an annotation; empty when it is absent or invalid."""
        known = (names,) if isinstance(names, str) else (names.canonical, *names.aliases)
        for name in known:
            value = self._annotations.get(f"{self._prefix}{name}")
            if value is not None:
                try:
                    return check_text(value.strip())
                except FormatError as error:
                    self.problem(name, str(error))
                    return ""
        return ""

    def matching(self, names: Spelling | str, pattern: re.Pattern[str], wanted: str) -> str:
        value = self.text(names)
        if value and not pattern.fullmatch(value):
            self.problem(names if isinstance(names, str) else names.canonical, f"{quoted(value[:100])} is not {wanted}")
            return ""
        return value

    def path(self, names: Spelling | str) -> str:
        value = self.text(names)
        if value and (not value.startswith("/") or "#" in value or value.startswith("//") or " " in value):
            name = names if isinstance(names, str) else names.canonical
            self.problem(name, "must be a path that begins with / and has no fragment")
            return ""
        return value

    def flag(self, name: str) -> bool | None:
        value = self.text(name).lower()
        if value and value not in _ENABLED | _DISABLED:
            self.problem(name, f"{quoted(value[:100])} is neither true nor false")
        return None if value not in _ENABLED | _DISABLED else value in _ENABLED

    def problem(self, name: str, message: str) -> None:
        self.problems.append(f"annotation {self._prefix}{name}: {message}")


def read_annotations(annotations: Mapping[str, str], prefix: str) -> ServiceAnnotations:
    """Parse the annotations with this prefix."""
    read = _Reader(annotations, prefix)
    toolset = read.text(_TOOLSET).lower()
    if toolset in _DISABLED:
        return ServiceAnnotations(opted_out=True)
    kind = read.matching(_TYPE_NAMES, _TYPE, "a type: use a-z, 0-9 and -")
    if toolset and toolset not in _ENABLED and not kind:  # the oldest vocabulary: the value is the type
        kind = read.matching("toolset", _TYPE, "true, false or a type")
    if kind == RESERVED:
        read.problem("toolset-type", f"{RESERVED} is always present and never discovered")
    opted_in = bool(toolset)
    if opted_in and not kind and not read.problems:
        read.problem("toolset-type", "is missing; set the type of toolset")
    return ServiceAnnotations(
        opted_in=opted_in,
        type=kind,
        name=read.matching("toolset-name", _NAME, "a name"),
        endpoint=_endpoint(read),
        health_path=read.path(_HEALTH_PATH),
        health_skipped=read.text("toolset-health").lower() == "skip",
        port=_port(read),
        scheme=read.matching("toolset-scheme", re.compile(r"https?"), "http or https"),
        path=read.path("toolset-path"),
        priority=_number(read, "toolset-priority", 0, 1000),
        verify_tls=read.flag("toolset-verify-tls"),
        auth_env=read.matching("toolset-auth-env", _ENV, "the name of an environment variable"),
        tenant=read.matching("toolset-tenant", _NAME, "the name of a tenant"),
        capabilities=tuple(sorted({name.strip() for name in read.text("capabilities").split(",") if name.strip()})),
        problems=tuple(read.problems),
    )


def _endpoint(read: _Reader) -> str:
    value = read.text("toolset-endpoint")
    if not value:
        return ""
    try:
        return check_url(value)
    except FormatError as error:
        read.problem("toolset-endpoint", str(error))
        return ""


def _number(read: _Reader, name: str, least: int, most: int) -> int | None:
    value = read.text(name)
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 9 and least <= int(value) <= most):
        read.problem(name, f"{quoted(value[:100])} is not a number from {least} to {most}")
        return None
    return int(value)


def _port(read: _Reader) -> int | str | None:
    """The port's number or name; the list `endpoints: metrics:8080,logs:3100` means its first."""
    value = read.text("toolset-port")
    if value and not value.isdigit():
        return read.matching("toolset-port", re.compile(r"[a-z0-9]([-a-z0-9]{0,14})"), "a port") or None
    if value:
        return _number(read, "toolset-port", 1, 65535)
    listed = read.text("endpoints")
    if not listed:
        return None
    first = _LISTED.fullmatch(listed.split(",", maxsplit=1)[0])
    if first is None or not 0 < int(first[2]) < 65536:
        read.problem("endpoints", "is not a list such as metrics:8080,logs:3100")
        return None
    return int(first[2])
