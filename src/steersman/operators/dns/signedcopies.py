"""Whether a copy of a zone is signed with the keys that it is to be signed with, all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.operators.dns.signing import DNSKEY, SIGNING, is_signed_with

if TYPE_CHECKING:
    from steersman.operators.dns.book import Copy
    from steersman.operators.dns.driver import Driver

__all__ = ["see_signed"]


async def see_signed(driver: Driver, zone: bytes, copy: Copy, tags: frozenset[int]) -> bool:
    """Ask the server, and have it look for keys when it is not; no tags mean whichever keys it made."""
    if tags and not is_signed_with(tags, await driver.values(zone, DNSKEY), await driver.values(zone, SIGNING)):
        copy.signed = frozenset()
        copy.unsigned += 1
        await driver.load_keys(zone)
        return False
    copy.signed, copy.unsigned = tags, 0
    return True
