"""The configuration of a zone on a server: the statements of `addzone` and `modzone`, desired and found. Pure.

Transfers and notifications are signed, so addresses appear only where a server has to be contacted. `forwarders { };`
is left out: named keeps it for ever and then refuses to change or to re-add the zone ("already exists"). A pod without
its zones gets no traffic instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from steersman.operators.dns.bind.statements import acl_statement, statement_text
from steersman.operators.dns.bind.zone_file import file_name
from steersman.operators.dns.sidecar.zone_settings import projected

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.bind.statements import Statement

MARKS: Final[tuple[Statement, ...]] = (("notify-delay", "0"), ("check-names", "ignore"), ("check-integrity", "no"))
DEFAULT_RRSET_LIMIT: Final = 100  # values of one RRset that named accepts by default
NOT_COMPARED: Final = frozenset({"file", "key-directory", "max-records-per-type"})
_HOST: Final = re.compile(r"/(32|128)\Z")


def file_of(server: Server, zone: bytes) -> str:
    """The path of a zone's file on the server."""
    return f"{server.directory.rstrip('/')}/{file_name(zone)}" if server.directory else file_name(zone)


def room_for(widest: int) -> tuple[Statement, ...]:
    """The statement that a zone needs whose largest RRset has `widest` values."""
    return (("max-records-per-type", "0"),) if widest > DEFAULT_RRSET_LIMIT else ()


def primary_config(
    server: Server,
    zone: bytes,
    secondaries: Sequence[Server],
    *,
    policy: str | None = None,
    keys: str = "",
    widest: int = 0,
) -> tuple[Statement, ...]:
    """The configuration of a primary zone; `widest` is the size of its largest RRset.

    `keys` is the directory of its signing keys, if it is not the default of the server.
    """
    transfer_keys = dict.fromkeys([server.keys.transfer.name, *(other.keys.transfer.name for other in secondaries)])
    acl: list[Statement] = [*_allowed(server), *(("key", name) for name in transfer_keys)]
    notified = tuple(_target(other) for other in _ordered(secondaries))
    config: list[Statement] = [
        ("type", "primary"),
        ("file", file_of(server, zone)),
        ("update-policy", (("grant", server.keys.update.name, "zonesub", "ANY"),)),
        ("allow-transfer", tuple(acl)),
        ("also-notify", notified),
        ("notify", "explicit"),
        *MARKS,
    ]
    if policy is not None:
        config.append(("dnssec-policy", policy))
        if keys:
            config.append(("key-directory", keys))
    return _supported(server, [*config, *room_for(widest)])


def secondary_config(
    server: Server, zone: bytes, primaries: Sequence[Server], *, widest: int = 0
) -> tuple[Statement, ...]:
    """The configuration of a secondary zone; `widest` is the size of its largest RRset."""
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
    return _supported(server, [*config, *room_for(widest)])


def _supported(server: Server, config: Iterable[Statement]) -> tuple[Statement, ...]:
    """The configuration as far as the channel to the server can express it."""
    return projected(config) if server.api_port else tuple(config)


def _sources(server: Server, primaries: Sequence[Server]) -> list[tuple[str, str]]:
    """Where a secondary transfers a zone from: the addresses of its instance on port 53, or the zone's primaries."""
    if server.primaries:
        return [(address, "53") for address in server.primaries]
    return [(primary.address, str(primary.dns_port)) for primary in _ordered(primaries)]


def _ordered(servers: Iterable[Server]) -> list[Server]:
    return sorted(servers, key=lambda server: (str(server.instance), server.name, server.address))


def _target(server: Server) -> Statement:
    return (server.address, "port", str(server.dns_port), "key", server.keys.transfer.name)


def _allowed(server: Server) -> list[Statement]:
    """The clients that may transfer zones without a key."""
    return [acl_statement(entry, server.lists) for entry in server.allow_transfer if entry != "none"]


def is_signed_by_policy(config: Iterable[Statement]) -> bool:
    """Whether the configuration signs the zone."""
    return any(statement[0] == "dnssec-policy" and statement[1] not in ("none", "insecure") for statement in config)


def unannounced(config: Iterable[Statement]) -> tuple[Statement, ...]:
    """A configuration that sends no notifications."""
    return tuple((statement[0], ()) if statement[0] == "also-notify" else statement for statement in config)


def zone_type(config: Iterable[Statement]) -> str:
    """primary, secondary, or empty."""
    found = next((statement[1] for statement in config if statement[0] == "type"), "")
    return {"master": "primary", "slave": "secondary"}.get(str(found), str(found))


def same_config(left: Iterable[Statement], right: Iterable[Statement]) -> bool:
    """Whether two configurations mean the same, in any order and notation; the file does not count."""
    return _normalized(left) == _normalized(right)


def keeping_file(config: Iterable[Statement], found: Iterable[Statement]) -> tuple[Statement, ...]:
    """A configuration for a zone that exists already: it keeps its file."""
    place = tuple(statement for statement in found if statement[0] == "file")
    return tuple(place[0] if place and statement[0] == "file" else statement for statement in config)


def is_made_here(found: Iterable[Statement], server: Server, zone: bytes) -> bool:
    """Whether this operator added the zone: it has the file and the settings that only the operator uses.

    The server stores this, so it survives every process and holds from the moment when the zone is added. A zone that
    others added never matches: it keeps its file, and its configuration is changed only through `borrowed`.
    """
    statements = {_form(statement) for statement in found}
    if _form(("file", file_of(server, zone))) not in statements:
        return False
    if zone_type(found) != "secondary":
        return {_form(statement) for statement in MARKS} <= statements
    is_first_copy = _is_for_one_key(found, "allow-query") and ("masterfile-format", "text") in statements
    return ("notify", "no") in statements and (is_first_copy or _is_for_one_key(found, "allow-notify"))


def _is_for_one_key(found: Iterable[Statement], name: str) -> bool:
    entries = next((statement[-1] for statement in found if statement[0] == name), ())
    return len(entries) == 1 and isinstance(entries[0], tuple) and entries[0][:1] == ("key",)


def first_copy_config(server: Server, zone: bytes, source: tuple[str, int], widest: int) -> tuple[Statement, ...]:
    """A zone that the server transfers from this operator, to become a primary's file.

    Only our key may query it: a resolver that got an answer would be refused a moment later, when the zone is replaced.
    """
    key = server.keys.transfer.name
    address, port = source
    return (
        ("type", "secondary"),
        ("file", file_of(server, zone)),
        ("masterfile-format", "text"),
        ("primaries", ((address, "port", str(port), "key", key),)),
        ("allow-query", (("key", key),)),
        ("notify", "no"),
        *room_for(widest),
    )


def borrowed(config: Iterable[Statement]) -> tuple[Statement, ...]:
    """A configuration for a zone that others added: it never matches `is_made_here`."""
    return tuple((statement[0], "1") if statement == MARKS[0] else statement for statement in config)


def open_to(found: Iterable[Statement], server: Server) -> tuple[Statement, ...]:
    """The configuration of a zone that others added, with permission for our key to transfer it."""
    key: Statement = ("key", server.keys.transfer.name)
    rest = [statement for statement in found if statement[0] != "allow-transfer"]
    allowed = [entry for statement in found if statement[0] == "allow-transfer" for entry in statement[-1]]
    kept = [entry for entry in allowed if isinstance(entry, tuple) and entry != ("none",)]
    return (*rest, ("allow-transfer", (*kept, key)))


def _normalized(config: Iterable[Statement]) -> set[object]:
    return {_form(statement) for statement in config if statement[0] != "file"}


def changes(found: Iterable[Statement], wanted: Iterable[Statement]) -> dict[str, tuple[str, str]]:
    """The statements that differ: the found and the desired text of each.

    Without those that follow from data or keys: the file, the key directory and the limit of an RRset.
    """
    current, desired = _by_name(found), _by_name(wanted)
    return {
        name: (_text(current.get(name)), _text(desired.get(name)))
        for name in sorted((current.keys() | desired.keys()) - NOT_COMPARED)
        if _form(current.get(name, ())) != _form(desired.get(name, ()))
    }


def _by_name(config: Iterable[Statement]) -> dict[str, Statement]:
    return {str(statement[0]): statement for statement in config}


def _text(statement: Statement | None) -> str:
    return "" if statement is None else statement_text([statement])


def _form(part: object) -> object:
    if isinstance(part, tuple):
        return tuple(_form(piece) for piece in part)
    return _HOST.sub("", str(part).lower())
