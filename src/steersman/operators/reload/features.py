"""The parts of `reload:` about actions, comparison, notifications, audit and hooks. Pure data.

Each is off until it is written down, and asks for no rights while it is off.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.durations import parse_duration
from steersman.kube.names import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ACTIONS", "FORMATS", "FORMS", "CompareConfig", "Features", "HookConfig", "NotifyConfig", "features"]

ACTIONS: Final = ("restart", "none", "http", "evict")
FORMS: Final = ("json", "yaml", "properties", "certificate", "ignore", "bytes")
_GLOB: Final = re.compile(r"[-._a-zA-Z0-9*?\[\]!]+")  # what keys are made of, and what makes a glob of them
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_GLOB: Final = 253
_SHOWN: Final = 100  # characters of a bad value that a message repeats
FORMATS: Final = ("cloudevents", "slack", "teams", "googlechat", "text")


class NotifyConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.notify`."""

    name: str = ""  # by which workloads and policies choose who is told of them
    url: str = ""  # where to send it…
    url_from: str = ""  # …or the environment variable that holds the address, since it is often a secret
    format: str = "cloudevents"
    template: str | None = None  # of the text, with $workloads, $sources, $outcome, …
    only: tuple[str, ...] = ()  # outcomes worth a message; none: all
    timeout: str = "10s"
    attempts: int = 5
    proxy: str = ""  # through which it is sent, http://HOST:PORT; none: straight


class CompareConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.compare`: how keys of some sources are compared."""

    source: str = "*"  # configmap/NAME, secret/NAME or *; NAME may be a glob
    namespace: str | None = None  # None: in every one
    keys: str  # a glob
    form: str = msgspec.field(name="as")

    def complaint(self) -> tuple[str, str] | None:
        """The field that makes no sense, and why."""
        if self.form not in FORMS:
            return "as", f'"{self.form[:_SHOWN]}" is not one of {", ".join(FORMS)}'
        kind, slash, name = self.source.partition("/")
        if self.source != "*" and not (slash and name and "/" not in name and kind in ("configmap", "secret")):
            return "source", f'"{self.source[:_SHOWN]}" is not a source (try configmap/NAME, secret/NAME or *)'
        if not self.keys or len(self.keys) > _LONGEST_GLOB or not _GLOB.fullmatch(self.keys):
            return "keys", f'"{self.keys[:_SHOWN]}" is not a glob of keys (try *.json)'
        return None


class HookConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.hook`: the Python function that has the last word on a restart."""

    name: str = ""  # of the entry point in the group steersman.reload.hooks; empty: none
    timeout: str = "2s"
    on_error: str = "allow"  # or hold: what an exception or a hang means


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What is switched on, checked."""

    actions: frozenset[str] = frozenset({"restart", "none"})
    compare: tuple[CompareConfig, ...] = ()
    notify: tuple[NotifyConfig, ...] = ()
    hook: HookConfig = HookConfig()
    hook_timeout: timedelta = timedelta(seconds=2)
    audit: timedelta | None = None  # how often stale pods are counted; None: never

    def strangers(self, names: Sequence[str]) -> list[tuple[int, str]]:
        """Those of the names that no receiver of messages has: the place of each, and what to do about it."""
        known = {sink.name for sink in self.notify if sink.name}
        return [
            (place, f"no receiver is called {quoted(name[:_SHOWN])} (configuration: reload.notify[].name)")
            for place, name in enumerate(names)
            if name not in known
        ]


def features(
    actions: tuple[str, ...],
    compare: tuple[CompareConfig, ...],
    notify: tuple[NotifyConfig, ...],
    hook: HookConfig,
    audit_period: str,
) -> Features:
    """What was written, checked; ConfigError names the field that is wrong."""
    for place, action in enumerate(actions):
        _one_of(action, ACTIONS, f"reload.actions[{place}]")
    for place, row in enumerate(compare):
        if complaint := row.complaint():
            raise ConfigError(complaint[1], field=f"reload.compare[{place}].{complaint[0]}")
    for place, sink in enumerate(notify):
        field = f"reload.notify[{place}]"
        _one_of(sink.format, FORMATS, f"{field}.format")
        if sink.name and (sink.name == "none" or not _NAME.fullmatch(sink.name)):
            raise ConfigError(f'"{sink.name[:_SHOWN]}" is not a name (try ops)', field=f"{field}.name")
        if bool(sink.url) == bool(sink.url_from):
            raise ConfigError("needs either url or urlFrom", field=field)
        if sink.url and not sink.url.startswith(("http://", "https://")):
            raise ConfigError("must begin with https:// or http://", field=f"{field}.url")
        if sink.proxy and not sink.proxy.startswith(("http://", "https://")):
            raise ConfigError("must begin with http:// or https://", field=f"{field}.proxy")
        if sink.attempts < 1:
            raise ConfigError("must be 1 or more", field=f"{field}.attempts")
        _duration(sink.timeout, f"{field}.timeout")
    _one_of(hook.on_error, ("allow", "hold"), "reload.hook.onError")
    period = _duration(audit_period, "reload.auditPeriod") if audit_period else None
    if period is not None and period < timedelta(seconds=1):
        raise ConfigError("must be 1s or longer (try 5m)", field="reload.auditPeriod")
    return Features(
        actions=frozenset({"restart", "none", *actions}),
        compare=compare,
        notify=notify,
        hook=hook,
        hook_timeout=_duration(hook.timeout, "reload.hook.timeout"),
        audit=period,
    )


def _one_of(value: str, known: tuple[str, ...], field: str) -> None:
    if value not in known:
        raise ConfigError(f'"{value}" is not one of {", ".join(known)}', field=field)


def _duration(text: str, field: str) -> timedelta:
    try:
        return parse_duration(text)
    except FormatError as error:
        raise ConfigError(str(error), field=field) from None
