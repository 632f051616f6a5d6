"""How a zone is served, as far as the sidecar's interface can say it, between JSON and named's statements. Pure.

    Settings ── statements ──► named          what is read back is the same Settings again, so the two can be compared
    Settings ◄── read_settings ── named       whatever else the zone's configuration holds is left as it is

Everything that comes from outside becomes an address, a port, a key name or an entry of an access list here, or fails.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError
from steersman.operators.dns.acls import acl_statement, acl_text
from steersman.operators.dns.bindcar.wire import WholeSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.bindcar.wire import CreateZone, ModifyZone
    from steersman.operators.dns.zonetext import Statement

__all__ = [
    "Settings",
    "Target",
    "created_settings",
    "modified_settings",
    "overlay",
    "plain_acl",
    "plain_targets",
    "projected",
    "read_settings",
    "statements",
    "whole",
]

PORT: Final = 53
_KEY: Final = re.compile(r"[A-Za-z0-9._-]{1,253}\Z")
_POLICY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_TARGET: Final = re.compile(r"(?:\[([^\]]+)\]|([^\[\]]+?))(?::(\d{1,5}))?(?:\s+key\s+\"?([^\s\"]+)\"?)?\Z")
OURS: Final = frozenset(
    {
        "type", "primaries", "masters", "also-notify", "notify", "notify-delay", "allow-notify", "allow-transfer",
        "allow-update", "update-policy", "dnssec-policy", "inline-signing", "max-records-per-type", "check-names",
        "check-integrity",
    }
)  # fmt: skip


class Target(msgspec.Struct, frozen=True):
    """A server that is called, and the key that signs what it is told."""

    address: str
    port: int = PORT
    key: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; None leaves it to the server's options."""

    kind: str  # primary or secondary
    primaries: tuple[Target, ...] = ()
    also_notify: tuple[Target, ...] | None = None
    allow_transfer: tuple[str, ...] | None = None
    allow_update: tuple[str, ...] | None = None
    dnssec_policy: str = ""
    inline_signing: bool | None = None
    max_records: int | None = None


# -- named ------------------------------------------------------------------------------------------------------------


def statements(settings: Settings) -> tuple[Statement, ...]:
    """The statements of a zone, without its file."""
    made: list[Statement] = [("type", settings.kind)]
    if settings.kind == "secondary":
        made.append(("primaries", tuple(_called(one) for one in settings.primaries)))
        keys = dict.fromkeys(one.key for one in settings.primaries if one.key)
        if keys:
            made.append(("allow-notify", tuple(("key", key) for key in keys)))
    if settings.allow_update is not None:
        made.append(("allow-update", _acl(settings.allow_update)))
    if settings.allow_transfer is not None:
        made.append(("allow-transfer", _acl(settings.allow_transfer)))
    if settings.also_notify is not None:
        made += [
            ("also-notify", tuple(_called(one) for one in settings.also_notify)),
            ("notify", "explicit"),
            ("notify-delay", "0"),
        ]
    elif settings.kind == "secondary":
        made.append(("notify", "no"))
    if settings.kind == "primary":
        made += [("check-names", "ignore"), ("check-integrity", "no")]
    if settings.dnssec_policy:
        made.append(("dnssec-policy", settings.dnssec_policy))
    if settings.inline_signing is not None:
        made.append(("inline-signing", "yes" if settings.inline_signing else "no"))
    if settings.max_records is not None:
        made.append(("max-records-per-type", str(settings.max_records)))
    return tuple(made)


def read_settings(config: Iterable[Statement]) -> Settings:
    """What statements say, however they say it."""
    found: dict[str, tuple[object, ...]] = {str(row[0]): row[1:] for row in config}
    kind = {"master": "primary", "slave": "secondary"}.get(word := _word(found.get("type")), word)
    primaries = found.get("primaries", found.get("masters"))
    policy = _word(found.get("dnssec-policy"))
    inline = _word(found.get("inline-signing"))
    most = _word(found.get("max-records-per-type"))
    return Settings(
        kind=kind,
        primaries=_targets(primaries) or (),
        also_notify=_targets(found.get("also-notify")),
        allow_transfer=_entries(found.get("allow-transfer")),
        allow_update=_updaters(found),
        dnssec_policy="" if policy == "none" else policy,
        inline_signing=None if not inline else inline == "yes",
        max_records=int(most) if most.isdecimal() else None,
    )


def projected(config: Iterable[Statement]) -> tuple[Statement, ...]:
    """A configuration as far as the interface can say it, and as a sidecar makes it."""
    return statements(read_settings(config))


def overlay(config: Iterable[Statement], settings: Settings) -> tuple[Statement, ...]:
    """A configuration with new settings; what settings cannot say stays."""
    return (*statements(settings), *(row for row in config if str(row[0]) not in OURS))


def _called(target: Target) -> Statement:
    return (target.address, "port", str(target.port), *(("key", target.key) if target.key else ()))


def _acl(entries: Sequence[str]) -> tuple[Statement, ...]:
    return tuple(acl_statement(entry) for entry in entries) or (("none",),)


def _word(rest: tuple[object, ...] | None) -> str:
    return str(rest[0]) if rest and not isinstance(rest[0], tuple) else ""


def _block(rest: tuple[object, ...] | None) -> tuple[Statement, ...] | None:
    return next((part for part in rest or () if isinstance(part, tuple)), None)


def _targets(rest: tuple[object, ...] | None) -> tuple[Target, ...] | None:
    rows = _block(rest)
    if rows is None:
        return None
    found = []
    for row in rows:
        words = [str(part) for part in row]
        named = dict(zip(words[1::2], words[2::2], strict=False))
        found.append(Target(words[0], int(named.get("port", PORT)), named.get("key", "")))
    return tuple(found)


def _entries(rest: tuple[object, ...] | None) -> tuple[str, ...] | None:
    rows = _block(rest)
    if rows is None:
        return None
    found = tuple(acl_text(row) for row in rows)
    return () if found == ("none",) else found


def _updaters(found: dict[str, tuple[object, ...]]) -> tuple[str, ...] | None:
    policy = _block(found.get("update-policy"))
    if policy is None:
        return _entries(found.get("allow-update"))
    return tuple(f"key {row[1]}" for row in policy if len(row) > 2 and row[0] == "grant" and row[2] == "zonesub")


# -- JSON -------------------------------------------------------------------------------------------------------------


def created_settings(request: CreateZone) -> Settings:
    """What a request to create a zone asks for; FormatError names the field."""
    config = request.zone_config
    if config.steersman is not None:
        found = _from_whole(request.zone_type, config.steersman)
    else:
        update = request.update_key_name if request.zone_type == "primary" else None  # a secondary has no use for it
        found = Settings(
            kind=request.zone_type,
            primaries=_read_targets(config.primaries, "primaries") or (),
            also_notify=_read_targets(config.also_notify, "alsoNotify"),
            allow_transfer=_read_entries(config.allow_transfer, "allowTransfer"),
            allow_update=(f"key {_key(update, 'updateKeyName')}",)
            if update and request.zone_type == "primary"
            else None,
            dnssec_policy=_policy(config.dnssec_policy),
            inline_signing=config.inline_signing,
        )
    if found.kind == "secondary" and not found.primaries:
        raise FormatError("primaries: a secondary zone needs at least one")
    return found


def modified_settings(before: Settings, request: ModifyZone) -> Settings:
    """What a request to modify a zone makes of its settings; FormatError names the field."""
    if request.steersman is not None:
        after = _from_whole(before.kind, request.steersman)
    else:
        told = {name: getattr(request, name) for name in request.__struct_fields__}
        if all(value is None for value in told.values()):
            fields = "alsoNotify, allowTransfer, allowUpdate, primaries, dnssecPolicy or inlineSigning"
            raise FormatError(f"at least one of {fields} must be there")
        after = msgspec.structs.replace(
            before,
            primaries=_either(_read_targets(request.primaries, "primaries"), before.primaries),
            also_notify=_either(_keyed(request.also_notify, before.also_notify), before.also_notify),
            allow_transfer=_either(_read_entries(request.allow_transfer, "allowTransfer"), before.allow_transfer),
            allow_update=_either(_updates(request.allow_update, before.allow_update), before.allow_update),
            dnssec_policy=before.dnssec_policy if request.dnssec_policy is None else _policy(request.dnssec_policy),
            inline_signing=before.inline_signing if request.inline_signing is None else request.inline_signing,
        )
    if after.kind == "secondary" and not after.primaries:
        raise FormatError("primaries: a secondary zone needs at least one")
    return after


def whole(settings: Settings) -> WholeSettings:
    """Settings as JSON has them; what the original's fields say is left out nowhere."""
    return WholeSettings(
        primaries=[_target_text(one) for one in settings.primaries] or None,
        also_notify=None if settings.also_notify is None else [_target_text(one) for one in settings.also_notify],
        allow_transfer=None if settings.allow_transfer is None else list(settings.allow_transfer),
        allow_update=None if settings.allow_update is None else list(settings.allow_update),
        dnssec_policy=settings.dnssec_policy or None,
        inline_signing=settings.inline_signing,
        max_records_per_type=settings.max_records,
    )


def plain_targets(targets: Iterable[Target]) -> list[str]:
    """Servers as the original takes them: without keys."""
    return [_target_text(msgspec.structs.replace(one, key="")) for one in targets]


def plain_acl(settings: Settings, called: Iterable[Target], own: str) -> list[str]:
    """Who may transfer, for a sidecar that knows no keys: the addresses of those who would show one, and ours."""
    rows = [entry for entry in settings.allow_transfer or () if not entry.lstrip("!").startswith("key ")]
    return list(dict.fromkeys([*rows, *(one.address for one in called), own]))


def _from_whole(kind: str, asked: WholeSettings) -> Settings:
    return Settings(
        kind=kind,
        primaries=_read_targets(asked.primaries, "steersman.primaries") or (),
        also_notify=_read_targets(asked.also_notify, "steersman.alsoNotify"),
        allow_transfer=_read_entries(asked.allow_transfer, "steersman.allowTransfer"),
        allow_update=_read_entries(asked.allow_update, "steersman.allowUpdate"),
        dnssec_policy=_policy(asked.dnssec_policy),
        inline_signing=asked.inline_signing,
        max_records=asked.max_records_per_type,
    )


def _read_targets(texts: Sequence[str] | None, field: str) -> tuple[Target, ...] | None:
    return None if texts is None else tuple(_target(text, field) for text in texts)


def _target(text: str, field: str) -> Target:
    bare = text.strip()
    try:
        return Target(str(ip_address(bare)))
    except ValueError:
        pass
    match = _TARGET.match(bare)
    if match is not None:
        address, port = match.group(1) or match.group(2), int(match.group(3) or PORT)
        try:
            if 0 < port < 65536:
                key = "" if match.group(4) is None else _key(match.group(4), field)
                return Target(str(ip_address(address)), port, key)
        except ValueError:
            pass
    raise FormatError(f'{field}: "{text}" is no address (try 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353)')


def _target_text(target: Target) -> str:
    address = f"[{target.address}]" if ":" in target.address else target.address
    key = f" key {target.key}" if target.key else ""
    return f"{address}:{target.port}{key}" if target.port != PORT or key else target.address


def _read_entries(texts: Sequence[str] | None, field: str) -> tuple[str, ...] | None:
    if texts is None:
        return None
    try:
        found = tuple(acl_text(acl_statement(text)) for text in texts)
    except FormatError as error:
        raise FormatError(f"{field}: {error}") from None
    return () if found == ("none",) else found


def _keyed(texts: Sequence[str] | None, before: Sequence[Target] | None) -> tuple[Target, ...] | None:
    """Servers to notify; one that had a key, and is named without one, keeps it."""
    told = _read_targets(texts, "alsoNotify")
    keys = {(one.address, one.port): one.key for one in before or ()}
    if told is None:
        return None
    return tuple(
        one if one.key else msgspec.structs.replace(one, key=keys.get((one.address, one.port), "")) for one in told
    )


def _updates(texts: Sequence[str] | None, before: Sequence[str] | None) -> tuple[str, ...] | None:
    """Who may update; keys stay, as the original's field takes only addresses."""
    told = _read_entries(texts, "allowUpdate")
    if told is None:
        return None
    kept = [entry for entry in before or () if entry.startswith("key ")]
    return tuple(dict.fromkeys([*kept, *told]))


def _either(new: tuple[object, ...] | None, old: object) -> object:
    return old if new is None else new


def _key(text: str, field: str) -> str:
    if not _KEY.match(text):
        raise FormatError(f"{field}: a key has letters, digits, dots and dashes")
    return text


def _policy(text: str | None) -> str:
    if text and not _POLICY.match(text):
        raise FormatError(f'dnssecPolicy: "{text}" is no name of a policy')
    return text or ""
