"""Finding the change for which a server refuses an update, so that all others get through.

A server accepts an update as a whole or not at all, and never says which change it refuses. The search halves what was
refused until single changes are left. Addresses come first, and changes that were refused early are tried again,
because a name server or mail server is refused until its address is there. Pure but for the attempts it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.zone.conflicts import ADDRESSES, WILDCARD
from steersman.operators.dns.zone.names import owner_in
from steersman.operators.dns.zone.rdata import NS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from steersman.operators.dns.zone.rdata import Key, RRset

ATTEMPTS: Final = 200  # per update: each refused change takes about two for every doubling of the number of changes


class Search(msgspec.Struct, frozen=True):
    """What became of changes that were refused together."""

    refused: tuple[RRsetChange, ...]  # each of them on its own
    untried: tuple[RRsetChange, ...]  # when there were too many of those


async def search(
    changes: Sequence[RRsetChange],
    attempt: Callable[[Sequence[RRsetChange]], Awaitable[bool]],
    attempts: int = ATTEMPTS,
) -> Search:
    """Write what the server accepts; `attempt` returns whether it did. Together, `changes` were refused."""
    stack: list[tuple[list[RRsetChange], bool]] = [(sorted(changes, key=_rank), True)]  # with: known to be refused
    refused: list[tuple[RRsetChange, int]] = []  # with the number of parts taken before
    taken = 0
    while stack and attempts > 0:
        part, known = stack.pop()
        if not (known and len(part) > 1):
            attempts -= 1
            if await attempt(part):
                taken += 1
                continue
        if len(part) == 1:
            refused.append((part[0], taken))
            continue
        half = len(part) // 2
        stack += [(part[half:], False), (part[:half], False)]
    again = True
    while again and attempts > 0:
        again = False
        for row in [row for row in refused if row[1] < taken]:
            attempts -= 1
            refused.remove(row)
            if await attempt([row[0]]):
                taken += 1
                again = True
            else:
                refused.append((row[0], taken))
            if attempts <= 0:
                break
    return Search(tuple(change for change, _ in refused), tuple(change for part, _ in stack for change in part))


def servers_only(rrsets: Mapping[Key, RRset], zone: bytes) -> dict[Key, RRset]:
    """The least a zone can begin with: its name servers, and their addresses inside the zone."""
    servers = rrsets.get((b"", NS))
    owners = {owner_in(value, zone) for value in (servers.values if servers is not None else ())}
    return {
        (owner, kind): rrset
        for (owner, kind), rrset in rrsets.items()
        if (not owner and kind == NS) or (kind in ADDRESSES and (owner in owners or owner.startswith(WILDCARD)))
    }


def _rank(change: RRsetChange) -> tuple[bool, bool, tuple[bytes, int]]:
    """Removals come first, then addresses: other changes may need them."""
    return change.want is not None, change.key[1] not in ADDRESSES, change.key
