"""Digest keys: what makes a stored digest useless to those who can only guess values. Pure.

A digest on a workload is readable by everybody who may read the workload. Without a key, six digits behind it are found
by trying a million values. Therefore digests are HMACs, and the keys are in a Secret of the operator:

    key-2 ──newest──► new digests
    key-1 ──────────► compared with states that name it, which are then rewritten with the newest

A state names its key by an identifier made of the key itself, so another key under the same name is never taken for
it. Invariant: a state whose key is not here is never compared. A process that knows every key (`unreadable` is empty)
takes what the sources say now as applied; any other process reports it as unknown. Losing a key restarts nothing.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY_BYTES: Final = 32  # at least: as many as a digest has
_ID_BYTES: Final = 6


class DigestKey(msgspec.Struct, frozen=True):
    """One key. Its `repr` does not show it."""

    id: str  # "": digests are not keyed
    secret: bytes

    @classmethod
    def of(cls, secret: bytes) -> DigestKey:
        """The key made of these bytes."""
        digest = hashlib.sha256(b"steersman/digest-key\0" + secret).digest()
        return cls(urlsafe_b64encode(digest[:_ID_BYTES]).decode(), secret)

    def __repr__(self) -> str:
        return f"DigestKey({self.id!r})"


UNKEYED: Final = DigestKey("", b"")  # of states that were written before there were keys, and of profiles


class Keyring(msgspec.Struct, frozen=True, kw_only=True):
    """The keys, the newest first."""

    keys: tuple[DigestKey, ...] = ()  # none: new digests are not keyed
    unreadable: str = ""  # why there may be keys that are not here; empty: these are all

    @property
    def newest(self) -> DigestKey:
        """The key of new digests."""
        return self.keys[0] if self.keys else UNKEYED

    def find(self, identifier: str) -> DigestKey | None:
        """The key that a state names; None when it is not here."""
        return next((key for key in (*self.keys, UNKEYED) if key.id == identifier), None)

    def with_older(self, others: Iterable[DigestKey]) -> Keyring:
        """The same, and those of `others` that are not in it: still good to compare with."""
        more = tuple(key for key in others if self.find(key.id) is None)
        return msgspec.structs.replace(self, keys=(*self.keys, *more)) if self.keys else self


NO_KEYS: Final = Keyring()


def keys_in(data: Mapping[str, bytes | None]) -> tuple[DigestKey, ...]:
    """The keys in a Secret, the newest first: `key-10` is newer than `key-2`. What is too short is left out."""
    names = sorted(data, key=lambda name: (len(name), name), reverse=True)
    return tuple(DigestKey.of(secret) for name in names if len(secret := data[name] or b"") >= KEY_BYTES)


def keys_to_store(keys: Iterable[DigestKey]) -> dict[str, bytes]:
    """The data of a Secret with these keys, which are given with the newest first."""
    return {f"key-{number}": key.secret for number, key in enumerate(reversed([*keys]), 1)}
