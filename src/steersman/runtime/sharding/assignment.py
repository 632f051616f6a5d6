"""The rules of sharding: which member works on which namespaces. Pure: assignment in, assignment out.

Namespaces fall into a fixed number of *slots*; one table, kept in the cluster and replaced by compare-and-swap, names
the owner of each slot. A member may act on a slot while the table says so *and* its own lease is running. Every member
wants the same assignment to those who have joined (the highest hash of member and slot wins, so a member that comes or
goes moves only its own share), and the table follows in steps that never let two members act on one slot:

- an owner gives a slot away itself, after it has stopped working on it;
- others take a slot only from a member whose lease has run out, by their own measure, which is later than its own;
- a member that (re)joins first writes its new incarnation into the table. A takeover that was decided while it was
  away, but not yet written, is then refused by the compare-and-swap; and it acts on nothing it read before;
- a table in which a member does not find its incarnation is another table: the one it acted by was
  deleted or broken. It stops everything before it joins. Until all live members have joined, no member takes a slot
  without an owner: one that has not joined may still work on it.

    owner alive and wanted     keep
    owner is me, not wanted    stop, then give
    owner dead, I am wanted    take
    no owner, I am wanted      take, once all live members have joined
    anything else              another member's move
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Set

__all__ = ["SLOTS", "Reassignment", "ShardAssignment", "desired", "join", "next_move", "slot_of"]

SLOTS = 64  # enough to share evenly among a dozen members; a table of this size is a kilobyte or two


class ShardAssignment(msgspec.Struct, frozen=True):
    """The table: which member owns each slot."""

    owners: tuple[str, ...]  # slot -> member, or ""
    members: dict[str, str] = {}  # member -> its current incarnation

    @classmethod
    def empty(cls, slots: int = SLOTS) -> ShardAssignment:
        """No slot has an owner."""
        return cls(owners=("",) * slots)

    def owned_by(self, member: str) -> frozenset[int]:
        """The slots of one member."""
        return frozenset(slot for slot, owner in enumerate(self.owners) if owner == member)


class Reassignment(msgspec.Struct, frozen=True):
    """What one member does about a table."""

    stop: frozenset[int]  # slots to stop working on, and then to give away
    table: ShardAssignment | None  # what to write now; None when nothing changes


def slot_of(namespace: str, slots: int = SLOTS) -> int:
    """The slot of a namespace; objects without one fall into the slot of the empty name."""
    return int.from_bytes(hashlib.sha256(namespace.encode()).digest()[:8], "big") % slots


def desired(members: Collection[str], slots: int = SLOTS) -> tuple[str, ...]:
    """Who should own each slot; "" without members."""
    ordered = sorted(members)
    return tuple(max(ordered, key=lambda member: _weight(member, slot), default="") for slot in range(slots))


def join(table: ShardAssignment, me: str, incarnation: str) -> ShardAssignment:
    """`table` with my new incarnation, which is what refuses decisions made while I was away."""
    return msgspec.structs.replace(table, members={**table.members, me: incarnation})


def next_move(table: ShardAssignment, *, me: str, alive: Set[str], stopped: Collection[int]) -> Reassignment:
    """My next move. `alive` are members whose leases run, me included; `stopped` are my slots I no longer work on.

    To be asked by a member of the table only.
    """
    wanted = desired(alive & table.members.keys(), len(table.owners))
    settled = table.members.keys() >= alive  # no member acts by another table
    stop: set[int] = set()
    owners = list(table.owners)
    for slot, (owner, want) in enumerate(zip(table.owners, wanted, strict=True)):
        if owner == want:
            continue
        if owner == me:
            if slot in stopped:
                owners[slot] = want
            else:
                stop.add(slot)
        elif want == me and (owner not in alive if owner else settled):
            owners[slot] = me
    members = {member: number for member, number in table.members.items() if member in alive or member in owners}
    changed = ShardAssignment(owners=tuple(owners), members=members)
    return Reassignment(frozenset(stop), None if changed == table else changed)


def _weight(member: str, slot: int) -> bytes:
    return hashlib.sha256(f"{member}\0{slot}".encode()).digest()
