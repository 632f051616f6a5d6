"""Data of others in a copy of a zone: what is left alone, and whom it keeps out. Pure.

A copy is ours when we made it, or were told so, or found nothing in it that no resource speaks for. Until then nothing
is taken out of it: what is missing is added, and a name and type that has other values than wanted stays as it is, like
the start of authority. What agrees but for its TTL keeps that too. Name servers and their addresses alone are no data
of others: a zone always has some, and resources say which. Names that a zone leaves to others are theirs for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.operators.dns.contributions import ADDRESSES
from steersman.operators.dns.names import owner_in, short_text
from steersman.operators.dns.rrsets import CNAME, GENERATED, NS, Key, RRset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["is_bare", "keeps_ttl", "kept_in", "names_in", "shut_out", "unspoken"]

Values = dict[Key, frozenset[bytes]]


def unspoken(
    lag: Mapping[Key, RRset | None], wanted: Mapping[Key, RRset], *spoken: Mapping[Key, frozenset[bytes]]
) -> Values:
    """What a server has and no resource says; `spoken` is what resources said until now, and is theirs to take away."""
    found: Values = {}
    for key, have in lag.items():
        if have is None or key[1] in GENERATED:
            continue
        left = have.values - wanted[key].values if key in wanted else have.values
        for said in spoken:
            left -= said.get(key, frozenset())
        if left:
            found[key] = left
    return found


def is_bare(found: Iterable[Key], servers: RRset | None, zone: bytes) -> bool:
    """Whether this is nothing but name servers of the zone and their addresses; `servers` are those it has."""
    owners = {owner_in(value, zone) for value in (servers.values if servers is not None else ())}
    return all((not owner and kind == NS) or (kind in ADDRESSES and owner in owners) for owner, kind in found)


def keeps_ttl(have: RRset, want: RRset) -> bool:
    """Whether an RRset that was there before is still there with what is wanted, so that its TTL is not ours to say."""
    return have.ttl != want.ttl and not have.values.isdisjoint(want.values)


def shut_out(lag: Iterable[Key], wanted: Mapping[Key, RRset], theirs: Iterable[Key]) -> frozenset[Key]:
    """What is wanted and has no place beside the data of others.

    Beside a CNAME a server ignores what it is given, and says nothing; so it does with a CNAME beside other data.
    """
    kinds: dict[bytes, set[int]] = {}
    for owner, kind in theirs:
        kinds.setdefault(owner, set()).add(kind)
    found = set()
    for key in lag:
        there = kinds.get(key[0])
        if there and key in wanted and (key[1] in there or CNAME in there or key[1] == CNAME):
            found.add(key)
    return frozenset(found)


def kept_in(
    lag: Mapping[Key, RRset | None],
    wanted: Mapping[Key, RRset],
    zone: bytes,
    *,
    owned: Iterable[Key] = (),
    spoken: Mapping[Key, frozenset[bytes]],
) -> frozenset[Key] | None:
    """Of what differs, what stays as it is in a copy that nobody has said is ours; None when it is ours by itself."""
    mine = frozenset(owned)
    found = unspoken({key: have for key, have in lag.items() if key not in mine}, wanted, spoken)
    if is_bare(found, lag.get((b"", NS)) or wanted.get((b"", NS)), zone):
        return None
    agreed = {
        key for key, have in lag.items() if have is not None and key in wanted and have.values == wanted[key].values
    }
    return shut_out(lag, wanted, found) | found.keys() | agreed


def names_in(keys: Iterable[Key], zone: bytes) -> list[str]:
    """The names of data, for people."""
    return sorted({short_text(owner, zone) for owner, _ in keys})
