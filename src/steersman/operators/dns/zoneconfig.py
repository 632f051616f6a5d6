"""How a server is told to serve a zone: the statements of `addzone` and `modzone`. Pure.

Transfers and notifications are signed with keys, so no address needs to be listed anywhere but where a server must be
called. `forwarders { };` is left out on purpose: named keeps it for ever, and then refuses to change the zone or to add
it again ("already exists"); a pod without its zones gets no traffic instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from steersman.operators.dns.acls import acl_statement
from steersman.operators.dns.bindcar.settings import projected
from steersman.operators.dns.native import file_of, room_for
from steersman.operators.dns.zonetext import statement_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonetext import Statement

__all__ = [
    "changes",
    "is_made_here",
    "is_signed_by_policy",
    "keeping_file",
    "open_to",
    "primary_config",
    "same_config",
    "secondary_config",
    "unannounced",
    "zone_type",
]

MARKS: Final[tuple[Statement, ...]] = (("notify-delay", "0"), ("check-names", "ignore"), ("check-integrity", "no"))
UNPLANNED: Final = frozenset({"file", "key-directory", "max-records-per-type"})
_HOST: Final = re.compile(r"/(32|128)\Z")


def primary_config(
    server: Server,
    zone: bytes,
    secondaries: Sequence[Server],
    *,
    policy: str | None = None,
    keys: str = "",
    widest: int = 0,
) -> tuple[Statement, ...]:
    """A zone that is written here; `widest` is the largest number of values at one name and type.

    `keys` is the directory of the keys that it is signed with, where that is not the server's own.
    """
    listed = dict.fromkeys([server.keys.transfer.name, *(other.keys.transfer.name for other in secondaries)])
    acl: list[Statement] = [*_allowed(server), *_keys(listed)]
    called = tuple(_towards(other) for other in _ordered(secondaries))
    config: list[Statement] = [
        ("type", "primary"),
        ("file", file_of(server, zone)),
        ("update-policy", (("grant", server.keys.update.name, "zonesub", "ANY"),)),
        ("allow-transfer", tuple(acl)),
        ("also-notify", called),
        ("notify", "explicit"),
        *MARKS,
    ]
    if policy is not None:
        config.append(("dnssec-policy", policy))
        if keys:
            config.append(("key-directory", keys))
    return _sayable(server, [*config, *room_for(widest)])


def secondary_config(
    server: Server, zone: bytes, primaries: Sequence[Server], *, widest: int = 0
) -> tuple[Statement, ...]:
    """A zone that is fetched, with as many values at one name and type as its primaries have."""
    key = server.keys.transfer.name
    acl: list[Statement] = [*_allowed(server), ("key", key)]
    config: list[Statement] = [
        ("type", "secondary"),
        ("file", file_of(server, zone)),
        ("primaries", tuple((address, "port", port, "key", key) for address, port in _sources(server, primaries))),
        ("allow-notify", (("key", key),)),
        ("allow-transfer", tuple(acl)),
        ("notify", "no"),
    ]
    return _sayable(server, [*config, *room_for(widest)])


def _sayable(server: Server, config: Iterable[Statement]) -> tuple[Statement, ...]:
    """A configuration as far as there is a way to tell the server."""
    return projected(config) if server.api_port else tuple(config)


def _sources(server: Server, primaries: Sequence[Server]) -> list[tuple[str, str]]:
    """Where a secondary fetches a zone: where its instance says, at the usual port, else at the zone's primaries."""
    if server.primaries:
        return [(address, "53") for address in server.primaries]
    return [(one.address, str(one.dns_port)) for one in _ordered(primaries)]


def _ordered(servers: Iterable[Server]) -> list[Server]:
    return sorted(servers, key=lambda one: (str(one.instance), one.name, one.address))


def _towards(server: Server) -> Statement:
    return (server.address, "port", str(server.dns_port), "key", server.keys.transfer.name)


def _keys(names: Iterable[str]) -> list[Statement]:
    return [("key", name) for name in names]


def _allowed(server: Server) -> list[Statement]:
    """Who may fetch zones besides those with a key."""
    return [acl_statement(entry, server.lists) for entry in server.allow_transfer if entry != "none"]


def is_signed_by_policy(config: Iterable[Statement]) -> bool:
    """Whether a zone is to be signed."""
    return any(statement[0] == "dnssec-policy" and statement[1] not in ("none", "insecure") for statement in config)


def unannounced(config: Iterable[Statement]) -> tuple[Statement, ...]:
    """A configuration that tells nobody of new serials."""
    return tuple((statement[0], ()) if statement[0] == "also-notify" else statement for statement in config)


def zone_type(config: Iterable[Statement]) -> str:
    """primary, secondary, or empty."""
    found = next((statement[1] for statement in config if statement[0] == "type"), "")
    return {"master": "primary", "slave": "secondary"}.get(str(found), str(found))


def same_config(one: Iterable[Statement], other: Iterable[Statement]) -> bool:
    """Whether two configurations say the same, in whatever order and form; where the zone is kept does not count."""
    return _said(one) == _said(other)


def keeping_file(config: Iterable[Statement], found: Iterable[Statement]) -> tuple[Statement, ...]:
    """A configuration for a zone that is there already: it stays in the file that it is in."""
    place = tuple(statement for statement in found if statement[0] == "file")
    return tuple(place[0] if place and statement[0] == "file" else statement for statement in config)


def is_made_here(found: Iterable[Statement], server: Server, zone: bytes) -> bool:
    """Whether a server has a zone because we gave it to it: in the file and with the settings that only we would use.

    A secondary has no such settings, and no data that its primaries have not.
    """
    said = {_form(statement) for statement in found}
    if _form(("file", file_of(server, zone))) not in said:
        return False
    return zone_type(found) == "secondary" or {_form(statement) for statement in MARKS} <= said


def open_to(found: Iterable[Statement], server: Server) -> tuple[Statement, ...]:
    """The configuration of a zone of others, and that we may read it."""
    key: Statement = ("key", server.keys.transfer.name)
    rest = [statement for statement in found if statement[0] != "allow-transfer"]
    allowed = [entry for statement in found if statement[0] == "allow-transfer" for entry in statement[-1]]
    kept = [entry for entry in allowed if isinstance(entry, tuple) and entry != ("none",)]
    return (*rest, ("allow-transfer", (*kept, key)))


def _said(config: Iterable[Statement]) -> set[object]:
    return {_form(statement) for statement in config if statement[0] != "file"}


def changes(found: Iterable[Statement], wanted: Iterable[Statement]) -> dict[str, tuple[str, str]]:
    """Where a configuration would become another: by statement, what it says and what it would say.

    Not what follows from data or from keys: the file, their directory and how many values there may be.
    """
    had, has = _by_name(found), _by_name(wanted)
    return {
        name: (_said_as(had.get(name)), _said_as(has.get(name)))
        for name in sorted((had.keys() | has.keys()) - UNPLANNED)
        if _form(had.get(name, ())) != _form(has.get(name, ()))
    }


def _by_name(config: Iterable[Statement]) -> dict[str, Statement]:
    return {str(statement[0]): statement for statement in config}


def _said_as(statement: Statement | None) -> str:
    return "" if statement is None else statement_text([statement])


def _form(part: object) -> object:
    if isinstance(part, tuple):
        return tuple(_form(piece) for piece in part)
    return _HOST.sub("", str(part).lower())
