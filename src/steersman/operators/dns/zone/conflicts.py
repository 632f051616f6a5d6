"""What resources contribute to a zone, by name, and which of it a name can have: the rules of one name alone. Pure.

Nothing here depends on the result for another name, and so not on the order in which names are evaluated. A name keeps
what the rules about the name itself allow; whether it lies below a delegation is decided by the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from steersman.operators.dns.zone.names import ancestors, owner_in, short_text
from steersman.operators.dns.zone.rdata import (
    AAAA,
    CNAME,
    MX,
    NS,
    A,
    Contribution,
    Key,
    target_of,
    type_name,
    wire_size,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ZONE: Final = "dnszone"  # the source of what the zone itself says
CNAME_CONFLICT: Final = "CNAMEConflict"
LARGEST: Final = 60_000  # bytes of an RRset; the rest of a message holds names and signatures
ADDRESSES: Final = (A, AAAA)
POINTING: Final = (NS, MX)
FEW: Final = 1000  # this many addresses fit into any message, without counting bytes
WILDCARD: Final = b"\x01*"


class Held(msgspec.Struct, frozen=True, gc=False):
    """Why data is not published."""

    reason: str
    message: str


class NameFacts(msgspec.Struct, frozen=True, gc=False):
    """What results for other names may depend on."""

    addressed: bool  # it has an address that is not held back
    aliased: bool  # it is a CNAME that is not held back
    delegated: bool  # its name servers are not held back, except below another delegation
    servers: frozenset[bytes | None] = frozenset()  # to which its delegation points, as owners


class Contributions:
    """The contributions to one zone."""

    def __init__(self, zone: bytes) -> None:
        self.zone = zone
        self.contributions: dict[str, tuple[Contribution, ...]] = {}
        self._names: dict[bytes, dict[int, dict[str, Contribution]]] = {}
        self._pointers: dict[bytes, set[tuple[Key, str]]] = {}  # target owner -> parts that need an address there
        self._below: dict[bytes, set[bytes]] = {}  # owner -> longer ones that have data, or are pointed to

    def _targets(self, part: Contribution) -> set[bytes]:
        """The names of this zone that need an address, or are delegated to."""
        found = {owner_in(target_of(part.key[1], value) or b"", self.zone) for value in part.values}
        return {target for target in found if target is not None}

    def _enter(self, name: bytes) -> None:
        if not name or name[0] + 1 == len(name):
            return  # nothing but the zone is above it
        for above in ancestors(name):
            self._below.setdefault(above, set()).add(name)

    def _leave(self, name: bytes) -> None:
        if name in self._names or name in self._pointers:
            return
        for above in ancestors(name):
            names = self._below[above]
            names.discard(name)
            if not names:
                del self._below[above]

    def _facts(self, owner: bytes) -> NameFacts:
        delegated = bool(owner) and self._is_kept(owner, NS)
        return NameFacts(
            addressed=self._is_kept(owner, *ADDRESSES),
            aliased=self._is_kept(owner, CNAME),
            delegated=delegated,
            servers=frozenset(self._glue(owner)) if delegated else frozenset(),
        )

    def _exists(self, owner: bytes, without: Collection[bytes] = ()) -> bool:
        """Whether there is data at or below a name, apart from these names."""
        return (owner in self._names and owner not in without) or any(
            name in self._names and name not in without for name in self._below.get(owner, ())
        )

    def _at_apex(self, owner: bytes, kind: int) -> Held | None:
        if kind == CNAME and not owner:
            return Held("CNAMEAtApex", "the zone's own name cannot be a CNAME (RFC 1034, 3.6.2)")
        return None

    def _beside_cname(
        self, owner: bytes, kind: int, types: Mapping[int, Mapping[str, Contribution]], part: Contribution | None = None
    ) -> Held | None:
        """Why a type, or one part of it, cannot be at a name."""
        aliases = types.get(CNAME)
        if not aliases or not owner:
            return None
        alias = min(aliases.values(), key=_age)
        others = [other for number, row in types.items() if number != CNAME for other in row.values()]
        first = min(others, key=_age, default=None)
        data_first = first is not None and (_when(first), 0) <= (_when(alias), 1)
        name = short_text(owner, self.zone)
        if kind != CNAME:
            return None if data_first else Held(CNAME_CONFLICT, f"{name} is a CNAME by {alias.source}")
        if data_first and first is not None:
            return Held(CNAME_CONFLICT, f"{name} has {_a(type_name(first.key[1]))} record from {first.source}")
        if part is not None and part.values != alias.values:
            return Held(CNAME_CONFLICT, f"{name} is a CNAME to another name by {alias.source}")
        return None

    def _is_kept(self, owner: bytes, *kinds: int) -> bool:
        """Whether a name has data of one of these types, by the rules of the name itself."""
        types = self._names.get(owner)
        return types is not None and any(
            kind in types
            and self._at_apex(owner, kind) is None
            and self._beside_cname(owner, kind, types) is None
            and (kind == CNAME or self._too_large(owner, kind, types[kind].values()) is None)
            for kind in kinds
        )

    def _cut_above(self, owner: bytes) -> bytes | None:
        """The delegation that a name is below, if any: the uppermost, which hides the others."""
        if not owner or owner[0] + 1 == len(owner):
            return None
        return next((cut for cut in reversed(ancestors(owner)) if self._is_kept(cut, NS)), None)

    def _glue(self, cut: bytes) -> set[bytes | None]:
        parts = self._names.get(cut, {}).get(NS, {}).values()
        return {owner_in(value, self.zone) for part in parts for value in part.values}

    def _too_large(
        self, owner: bytes, kind: int, parts: Collection[Contribution], values: Collection[bytes] | None = None
    ) -> Held | None:
        """Why an RRset does not fit into a message; None when it does. `values` are those of the parts, if known."""
        if kind in ADDRESSES and sum(len(part.values) for part in parts) <= FEW:
            return None
        if values is None:
            values = {value for part in parts for value in part.values}
        size = wire_size((owner, kind), values, self.zone)
        # The name servers of a zone can only be replaced one by one: both they and the new ones are in the message.
        largest = LARGEST if owner or kind != NS else LARGEST // 2
        if size <= largest:
            return None
        what = f"{len(values)} values ({size} bytes) do not fit into one DNS message of {largest} bytes"
        return Held("RRsetTooLarge", what)

    def _resolves(self, target: bytes, kind: int) -> bool:
        """Whether a server of this zone would find an address. An alias will do for mail, and not for name servers."""
        kinds = ADDRESSES if kind == NS else (*ADDRESSES, CNAME)
        delegated = self._cut_above(target) is not None or (bool(target) and self._is_kept(target, NS))
        if delegated or self._is_kept(target, *kinds):
            return True
        if self._exists(target):
            return False
        for parent in (*ancestors(target), b""):
            if WILDCARD + parent in self._names:
                return self._is_kept(WILDCARD + parent, *kinds)
            if self._exists(parent):
                return False
        return False


def _when(part: Contribution) -> str:
    return "" if part.source == ZONE else part.since


def _age(part: Contribution) -> tuple[str, str]:
    return _when(part), part.source


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "AMNS" else f"a {word}"
