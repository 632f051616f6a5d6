"""The settings of another reload program, carried over one by one. Pure.

They are read by the same code that runs in the other program's place (`steersman reload --profile`). A flag or variable
that this code rejects is left out and named, with what to do; it costs no other setting. Values that are secrets go
into a Secret and come back as a variable of our process, so no values file or report holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from steersman.operators.reload.compat.profiles import Profile

SECRET_NAME: Final = "steersman-notify"  # noqa: S105  the name of one
HOME: Final = "steersman"  # the namespace that the steps install into
URL: Final = "ALERT_WEBHOOK_URL"
CALLED: Final = "RELOADER_WEBHOOK_URL"  # the variable for `--webhook-url`, which has none of its own
_SECRET_FLAGS: Final = frozenset({"alert-webhook-url", "alert-proxy", "webhook-url"})
_SECRET_VARIABLES: Final = frozenset({URL, "ALERT_WEBHOOK_PROXY"})
_ELSEWHERE: Final = "https://address.invalid"  # stands for an address that a Secret or ConfigMap holds
_NOT_IN_CHART: Final = (
    ("dialects", "changes what its annotations mean: keep to its own Deployment (see below)"),
    ("listens", "the chart serves metrics and health at its own port: set service.port"),
    ("by_namespace", "this metric is counted in its own Deployment only (see below)"),
)


class CarriedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What our chart gets, and what it does not."""

    section: dict[str, Any] = {}  # `reload:`, without defaults
    log_level: str = "info"
    env: tuple[dict[str, Any], ...] = ()  # variables of our process, from Secrets and ConfigMaps
    secret: dict[str, Any] | None = None  # the manifest of the Secret that `env` names
    left: tuple[str, ...] = ()  # settings that are not carried over, each with what to do
    notes: tuple[str, ...] = ()  # settings that have nothing to do here, and why


def carry_over(
    name: str, arguments: Sequence[str], environ: Mapping[str, str], references: Mapping[str, Mapping[str, Any]]
) -> CarriedSettings:
    """The settings of the original `name`. `references`: variables that a Secret or ConfigMap holds, and which."""
    groups = _groups(arguments)
    known = {**environ, **{variable: _ELSEWHERE for variable in references if variable == URL}}
    profile, left = _read(name, groups, known)
    left += [
        f"{variable}: comes from {_place(reference)}, which is not read here: set what it says by hand"
        for variable, reference in references.items()
        if variable != URL
    ]
    left += _not_in_chart(name, profile, groups, known)
    section, moved = _without_secrets(_section(profile), left)
    env, secret = _secret_for(moved, references.get(URL))
    if URL in moved and URL in references:
        left.append(f"{_place(references[URL])}: copy it into namespace {HOME} before the installation")
    return CarriedSettings(
        section=section,
        log_level=profile.logs.level,
        env=env,
        secret=secret,
        left=tuple(dict.fromkeys(left)),
        notes=profile.notes,
    )


def printable_arguments(arguments: Sequence[str]) -> list[str]:
    """The arguments without those whose value may be a secret."""
    return [word for group in _groups(arguments) if _flag(group) not in _SECRET_FLAGS for word in group]


# -- reading ---------------------------------------------------------------------------------------------------------


def _groups(arguments: Iterable[str]) -> list[tuple[str, ...]]:
    """Each flag with the words that follow it and are not flags."""
    found: list[tuple[str, ...]] = []
    for word in arguments:
        if found and not word.startswith("-"):
            found[-1] = (*found[-1], word)
        else:
            found.append((word,))
    return found


def _flag(group: tuple[str, ...]) -> str:
    return group[0].partition("=")[0].lstrip("-")


def _attempt(name: str, groups: Sequence[tuple[str, ...]], environ: Mapping[str, str]) -> Profile:
    from steersman.operators.reload.compat.profiles import read_profile

    profile = read_profile(name, [word for group in groups for word in group], environ)
    profile.config.options()  # what our own schema rejects is not carried over either
    return profile


def _read(name: str, groups: list[tuple[str, ...]], environ: dict[str, str]) -> tuple[Profile, list[str]]:
    """The profile of all settings that can be read; the others are taken out of the lists, and described."""
    left: list[str] = []
    while True:
        try:
            return _attempt(name, groups, environ), left
        except ConfigError as error:
            culprit = _culprit(name, error, groups, environ)
            if culprit is None:  # no single setting is to blame: nothing but the defaults is certain
                left += [f"{label}: not carried over: {error}" for label in (*map(_label, groups), *environ)]
                groups.clear()
                environ.clear()
                continue
            left.append(_described(culprit, error))
            if isinstance(culprit, tuple):
                groups.remove(culprit)
            else:
                del environ[culprit]


def _culprit(
    name: str, error: ConfigError, groups: Sequence[tuple[str, ...]], environ: Mapping[str, str]
) -> tuple[str, ...] | str | None:
    """The flag or variable that an error is about: the one it names, else the one without which all is well."""
    field = error.field or ""
    if field in environ:
        return field
    named = field.partition("=")[0].lstrip("-")
    for group in groups:
        if field in group or (named and _flag(group) == named):
            return group
    candidates: list[tuple[str, ...] | str] = [*groups, *environ]
    for candidate in candidates:
        try:
            _attempt(name, [group for group in groups if group != candidate], _without(environ, candidate))
        except ConfigError:
            continue
        return candidate
    return None


def _without(environ: Mapping[str, str], left: object) -> dict[str, str]:
    return {variable: value for variable, value in environ.items() if variable != left}


def _label(group: tuple[str, ...]) -> str:
    return group[0].partition("=")[0]


def _described(culprit: tuple[str, ...] | str, error: ConfigError) -> str:
    label = _label(culprit) if isinstance(culprit, tuple) else culprit
    if label.lstrip("-") in _SECRET_FLAGS or label in _SECRET_VARIABLES:
        return f"{label}: not carried over: its value is not valid; set it by hand"  # which may be a secret
    if "no such flag" in error.message:
        message = error.message.partition(" (known:")[0]
        return f"{label}: not carried over: {message}; find out what it does before you move"
    return f"{label}: not carried over: {error.message}"


def _not_in_chart(
    name: str, profile: Profile, groups: Sequence[tuple[str, ...]], environ: Mapping[str, str]
) -> list[str]:
    """The settings that make a difference which our chart has no place for."""
    found = []
    for candidate in (*groups, *environ):
        label = _label(candidate) if isinstance(candidate, tuple) else candidate
        try:
            other = _attempt(name, [group for group in groups if group != candidate], _without(environ, candidate))
        except ConfigError:  # needed by another setting
            continue
        here, there = _beyond_the_section(profile), _beyond_the_section(other)
        found += [f"{label}: {advice}" for field, advice in _NOT_IN_CHART if here[field] != there[field]]
    return found


def _beyond_the_section(profile: Profile) -> dict[str, Any]:
    """What of a profile the section `reload:` does not say. The Lease is not among it: the chart has one of its own."""
    from steersman.operators.reload.compat.dialects import dialects_for

    usual = [vars(dialect) for dialect in dialects_for(profile.config.options())]
    dialects = [
        {field: value for field, value in vars(dialect).items() if value != before.get(field)}
        for dialect, before in zip(profile.dialects, usual, strict=True)
    ]
    return {
        "dialects": dialects,
        "listens": (profile.listen, profile.further_listens),
        "by_namespace": profile.by_namespace,
    }


# -- writing ---------------------------------------------------------------------------------------------------------


def _section(profile: Profile) -> dict[str, Any]:
    """The section `reload:` without what is the default anyway."""
    from steersman.operators.reload.api.config import ReloadConfig

    written, defaults = (msgspec.to_builtins(config) for config in (profile.config, ReloadConfig()))
    changed = {field: _without_empty(value) for field, value in written.items() if value != defaults.get(field)}
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(changed))  # as YAML holds it: lists, no tuples
    return decoded


def _without_empty(value: Any) -> Any:
    """The same without empty fields of the objects in it."""
    if isinstance(value, list | tuple):
        return [_without_empty(part) for part in value]
    if isinstance(value, dict):
        return {name: _without_empty(part) for name, part in value.items() if part not in ("", None, [], ())}
    return value


def _without_secrets(section: dict[str, Any], left: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The section with variables in the place of addresses, and these; what cannot move is added to `left`."""
    receivers = section.get("notify", [])
    alerts: str = next((receiver["url"] for receiver in receivers if receiver.get("url")), "")
    moved = {URL: alerts} if alerts else {}
    if url := section.get("webhook", {}).get("url"):
        moved[CALLED] = url
        section["webhook"] = {"urlFrom": CALLED}
    for receiver in receivers:  # `section` is a copy of our own
        if receiver.pop("url", ""):
            receiver["urlFrom"] = URL
        if urlsplit(receiver.get("proxy") or "").password is not None:
            left.append("ALERT_WEBHOOK_PROXY: holds a password, for which there is no Secret: use a proxy without one")
            del receiver["proxy"]
    return section, moved


def _secret_for(
    moved: Mapping[str, str], reference: Mapping[str, Any] | None
) -> tuple[tuple[dict[str, Any], ...], dict[str, Any] | None]:
    """The variables that hold addresses, and the Secret they come from; `reference`: where one is already."""
    env: list[dict[str, Any]] = []
    data = {}
    for variable, url in moved.items():
        if variable == URL and reference is not None:
            env.append({"name": variable, "valueFrom": dict(reference)})
            continue
        data[variable] = url
        env.append({"name": variable, "valueFrom": {"secretKeyRef": {"name": SECRET_NAME, "key": variable}}})
    if not data:
        return tuple(env), None
    meta = {"name": SECRET_NAME, "namespace": HOME}
    return tuple(env), {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": data}


def _place(reference: Mapping[str, Any]) -> str:
    for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if (named := reference.get(field)) is not None:
            return f"{kind} {named.get('name')}, key {named.get('key')}"
    return "elsewhere"
