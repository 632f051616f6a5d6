"""A zone's world: the twelve kinds on the server of the test, and real name servers."""

from __future__ import annotations

import pytest

from tests.support.dns.zones import Site


@pytest.fixture
async def ns1(named):
    async with named("ns1") as server:
        yield server


@pytest.fixture
async def ns2(named):
    async with named("ns2") as server:
        yield server


@pytest.fixture
async def site(cluster, client, dns_kinds, namespace, ns1):
    """One primary."""
    made = Site(client, namespace, [ns1])
    await made.instances()
    return made


@pytest.fixture
async def pair(embedded, client, dns_kinds, namespace, named):
    """A primary and a secondary, on the embedded server."""
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2:
        made = Site(client, namespace, [ns1], [ns2])
        await made.instances()
        yield made
