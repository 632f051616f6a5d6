"""How a server is told to serve a zone: the statements of `addzone` and `modzone`. Pure.

Transfers and notifications are signed with keys, so no address needs to be listed anywhere but where a server must be
called. `forwarders { };` is left out on purpose: named keeps it for ever, and then refuses to change the zone or to add
it again ("already exists"); a pod without its zones gets no traffic instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from steersman.operators.dns.bindcar.settings import projected
from steersman.operators.dns.native import file_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.zonetext import Statement

__all__ = ["primary_config", "same_config", "secondary_config", "zone_type"]

USUAL: Final = 100  # values of one RRset and types of one name that named takes without being told
_HOST: Final = re.compile(r"/(32|128)\Z")


def primary_config(
    server: Server, zone: bytes, secondaries: Sequence[Server], *, policy: str | None = None, widest: int = 0
) -> tuple[Statement, ...]:
    """A zone that is written here; `widest` is the largest number of values at one name and type."""
    listed = dict.fromkeys([server.keys.transfer.name, *(other.keys.transfer.name for other in secondaries)])
    acl: list[Statement] = [*(_acl(entry) for entry in server.allow_transfer if entry != "none"), *_keys(listed)]
    called = tuple(_towards(other) for other in _ordered(secondaries))
    config: list[Statement] = [
        ("type", "primary"),
        ("file", file_of(server, zone)),
        ("update-policy", (("grant", server.keys.update.name, "zonesub", "ANY"),)),
        ("allow-transfer", tuple(acl)),
        ("also-notify", called),
        ("notify", "explicit"),
        ("notify-delay", "0"),
        ("check-names", "ignore"),
        ("check-integrity", "no"),
    ]
    if policy is not None:
        config.append(("dnssec-policy", policy))
    if widest > USUAL:
        config.append(("max-records-per-type", "0"))
    return _sayable(server, config)


def secondary_config(server: Server, zone: bytes, primaries: Sequence[Server]) -> tuple[Statement, ...]:
    """A zone that is fetched."""
    key = server.keys.transfer.name
    acl: list[Statement] = [*(_acl(entry) for entry in server.allow_transfer if entry != "none"), ("key", key)]
    config: list[Statement] = [
        ("type", "secondary"),
        ("file", file_of(server, zone)),
        ("primaries", tuple((address, "port", port, "key", key) for address, port in _sources(server, primaries))),
        ("allow-notify", (("key", key),)),
        ("allow-transfer", tuple(acl)),
        ("notify", "no"),
    ]
    return _sayable(server, config)


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


def _acl(entry: str) -> Statement:
    """An entry of an access list, of which the schema has seen to it that it is one."""
    negated, words = entry.startswith("!"), entry.lstrip("! ").replace('"', "").split()
    return (f"!{words[0]}" if negated else words[0], *words[1:])


def zone_type(config: Iterable[Statement]) -> str:
    """primary, secondary, or empty."""
    found = next((statement[1] for statement in config if statement[0] == "type"), "")
    return {"master": "primary", "slave": "secondary"}.get(str(found), str(found))


def same_config(one: Iterable[Statement], other: Iterable[Statement]) -> bool:
    """Whether two configurations say the same, in whatever order and form."""
    return {_form(statement) for statement in one} == {_form(statement) for statement in other}


def _form(part: object) -> object:
    if isinstance(part, tuple):
        return tuple(_form(piece) for piece in part)
    return _HOST.sub("", str(part).lower())
