"""Names with very many values: served everywhere or held back alone, whatever changes about them."""

from __future__ import annotations

import pytest

from steersman.kube.api.errors import Invalid
from steersman.testing import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def addresses(first, count):
    return [f"{first}.{n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(count)]


async def test_very_many_values_reach_a_new_zone_its_secondary_and_others_in_their_place(pair):
    long = "a" * 60
    await pair.zone("example.org")
    await pair.record("A", "wide", ipv4Addresses=addresses(10, 3000))
    await pair.record("A", "long", owner=long, ipv4Addresses=addresses(12, 150))
    async with pair.running():
        await eventually(lambda: pair.answers("wide.example.org", "A", addresses(10, 3000)), timeout=120)
        await pair.record("A", "wide", ipv4Addresses=addresses(11, 3000))
        await pair.record("A", "long", owner=long, ipv4Addresses=addresses(12, 1200))
        await pair.record("A", "other", ipv4Addresses=["192.0.2.1"])
        await eventually(lambda: pair.answers("wide.example.org", "A", addresses(11, 3000)), timeout=120)
        await eventually(lambda: pair.answers(f"{long}.example.org", "A", addresses(12, 1200)), timeout=120)
        await eventually(lambda: pair.answers("other.example.org", "A", {"192.0.2.1"}), timeout=120)
        await eventually(lambda: pair.is_ready("A", "wide"), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)


async def test_a_zone_that_gets_wide_later_is_followed_by_its_secondary(pair):
    await pair.zone("example.org")
    async with pair.running():
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
        await pair.record("A", "wide", ipv4Addresses=addresses(10, 101))
        await eventually(lambda: pair.answers("wide.example.org", "A", addresses(10, 101)), timeout=120)


async def test_seventy_thousand_values_of_one_name_are_held_back_and_the_rest_is_served(pair):
    await pair.zone("example.org")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
    with pytest.raises(Invalid, match="ipv4Addresses"):
        await pair.record("A", "many", ipv4Addresses=addresses(20, 70_000))
    for part in range(20):
        await pair.record("A", f"many-{part}", owner="many", ipv4Addresses=addresses(20 + part, 3500))
    async with pair.running():
        await eventually(lambda: pair.is_ready("A", "www"), timeout=120)
        for part in range(20):
            await eventually(lambda p=part: pair.is_ready("A", f"many-{p}", "RRsetTooLarge"), timeout=120)
        assert "70000 values" in (await pair.ready("A", "many-3"))[2]
        assert await pair.answers("www.example.org", "A", {"192.0.2.1"})
        assert await pair.answers("many.example.org", "A", ())
        assert await pair.is_ready("DNSZone", "example.org")
