"""The settings of a zone that the sidecar's interface can express: between JSON and statements of named. Pure.

    ZoneSettings ── statements ──► named          reading back gives the same ZoneSettings, so the two can be compared
    ZoneSettings ◄── read_settings ── named       other statements of the zone's configuration stay unchanged

Every text of a request becomes an address, a port, a key name or an entry of an access list, or is rejected.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import msgspec

from steersman.errors import FormatError
from steersman.operators.dns.bind.statements import acl_statement, acl_text
from steersman.operators.dns.sidecar.messages import WholeSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.bind.statements import Statement
    from steersman.operators.dns.sidecar.messages import CreateZone, ModifyZone

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
    """A server to transfer from or to notify, and the TSIG key for it."""

    address: str
    port: int = PORT
    key: str = ""


class ZoneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings; None leaves a setting to the options of the server."""

    kind: str  # primary or secondary
    primaries: tuple[Target, ...] = ()
    also_notify: tuple[Target, ...] | None = None
    allow_transfer: tuple[str, ...] | None = None
    allow_update: tuple[str, ...] | None = None
    dnssec_policy: str = ""
    inline_signing: bool | None = None
    max_records: int | None = None


# -- named ------------------------------------------------------------------------------------------------------------


def statements(settings: ZoneSettings) -> tuple[Statement, ...]:
    """The statements of a zone, without its file."""
    made: list[Statement] = [("type", settings.kind)]
    if settings.kind == "secondary":
        made.append(("primaries", tuple(_server(target) for target in settings.primaries)))
        keys = dict.fromkeys(target.key for target in settings.primaries if target.key)
        if keys:
            made.append(("allow-notify", tuple(("key", key) for key in keys)))
    if settings.allow_update is not None:
        made.append(("allow-update", _acl(settings.allow_update)))
    if settings.allow_transfer is not None:
        made.append(("allow-transfer", _acl(settings.allow_transfer)))
    if settings.also_notify is not None:
        made += [
            ("also-notify", tuple(_server(target) for target in settings.also_notify)),
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


def read_settings(config: Iterable[Statement]) -> ZoneSettings:
    """The settings in statements, in any notation."""
    found: dict[str, tuple[object, ...]] = {str(row[0]): row[1:] for row in config}
    kind = {"master": "primary", "slave": "secondary"}.get(word := _word(found.get("type")), word)
    primaries = found.get("primaries", found.get("masters"))
    policy = _word(found.get("dnssec-policy"))
    inline = _word(found.get("inline-signing"))
    most = _word(found.get("max-records-per-type"))
    return ZoneSettings(
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
    """A configuration reduced to what the interface can express, as a sidecar writes it."""
    return statements(read_settings(config))


def overlay(config: Iterable[Statement], settings: ZoneSettings) -> tuple[Statement, ...]:
    """A configuration with new settings; other statements stay."""
    return (*statements(settings), *(row for row in config if str(row[0]) not in OURS))


def _server(target: Target) -> Statement:
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


def created_settings(request: CreateZone) -> ZoneSettings:
    """The settings of a request to create a zone; FormatError names the field."""
    config = request.zone_config
    if config.steersman is not None:
        found = _from_whole(request.zone_type, config.steersman)
    else:
        update = request.update_key_name if request.zone_type == "primary" else None  # a secondary ignores it
        found = ZoneSettings(
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


def modified_settings(before: ZoneSettings, request: ModifyZone) -> ZoneSettings:
    """The settings after a request to modify a zone; FormatError names the field."""
    if request.steersman is not None:
        after = _from_whole(before.kind, request.steersman)
    else:
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        if all(value is None for value in fields.values()):
            names = "alsoNotify, allowTransfer, allowUpdate, primaries, dnssecPolicy or inlineSigning"
            raise FormatError(f"at least one of {names} is required")
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


def whole(settings: ZoneSettings) -> WholeSettings:
    """Settings as JSON, complete."""
    return WholeSettings(
        primaries=[_target_text(target) for target in settings.primaries] or None,
        also_notify=None if settings.also_notify is None else [_target_text(target) for target in settings.also_notify],
        allow_transfer=None if settings.allow_transfer is None else list(settings.allow_transfer),
        allow_update=None if settings.allow_update is None else list(settings.allow_update),
        dnssec_policy=settings.dnssec_policy or None,
        inline_signing=settings.inline_signing,
        max_records_per_type=settings.max_records,
    )


def plain_targets(targets: Iterable[Target]) -> list[str]:
    """Servers for the original: without keys."""
    return [_target_text(msgspec.structs.replace(target, key="")) for target in targets]


def plain_acl(settings: ZoneSettings, called: Iterable[Target], own: str) -> list[str]:
    """allow-transfer for the original, which supports no keys: the addresses of the secondaries and our own."""
    rows = [entry for entry in settings.allow_transfer or () if not entry.lstrip("!").startswith("key ")]
    return list(dict.fromkeys([*rows, *(target.address for target in called), own]))


def _from_whole(kind: str, asked: WholeSettings) -> ZoneSettings:
    return ZoneSettings(
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
    raise FormatError(f'{field}: "{text}" is not an address (try 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353)')


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
    """Servers to notify; a server without a key in the request keeps the key it had."""
    wanted = _read_targets(texts, "alsoNotify")
    keys = {(target.address, target.port): target.key for target in before or ()}
    if wanted is None:
        return None
    return tuple(
        target if target.key else msgspec.structs.replace(target, key=keys.get((target.address, target.port), ""))
        for target in wanted
    )


def _updates(texts: Sequence[str] | None, before: Sequence[str] | None) -> tuple[str, ...] | None:
    """Clients that may update; keys stay, because the field of the original has only addresses."""
    wanted = _read_entries(texts, "allowUpdate")
    if wanted is None:
        return None
    kept = [entry for entry in before or () if entry.startswith("key ")]
    return tuple(dict.fromkeys([*kept, *wanted]))


def _either(new: tuple[object, ...] | None, old: object) -> object:
    return old if new is None else new


def _key(text: str, field: str) -> str:
    if not _KEY.match(text):
        raise FormatError(f"{field}: a key name has letters, digits, dots, dashes and underscores")
    return text


def _policy(text: str | None) -> str:
    if text and not _POLICY.match(text):
        raise FormatError(f'dnssecPolicy: "{text}" is not a valid policy name')
    return text or ""
