"""Revisions that are gone: 410, where and how each server says it.

The real server runs without its watch cache and compacts every two seconds here, because nothing else makes it forget;
the embedded one is asked to.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.controlplane.launcher import ControlPlane
from steersman.testing.raw_api import RawApi, ssl_context
from steersman.testing.waiting import eventually
from tests.support.manifests import Space, secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Past = tuple[RawApi, Space, str, str]
FORGETFUL = ("--watch-cache=false", "--etcd-compaction-interval=1s")


@pytest.fixture(scope="module")
async def forgetful() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(apiserver_flags=FORGETFUL) as plane:
        yield plane


@pytest.fixture(params=["embedded", pytest.param("forgetful", marks=pytest.mark.real)], ids=["embedded", "real"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
async def past(server: Any, request: pytest.FixtureRequest) -> AsyncIterator[Past]:
    """A server that has forgotten a revision, and a continue token of that revision."""
    async with RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api:
        space = Space(f"past-{request.node.name.split('[')[0][-40:].replace('_', '-').strip('-')}")
        await api.post("/api/v1/namespaces", {"metadata": {"name": space}})
        for name in ("a", "b", "c"):
            await api.post(space.core("secrets"), secret(name))
        page = await api.get(space.core("secrets"), limit=1)
        await api.delete(space.core("secrets/c"))
        if not isinstance(server, ControlPlane):
            server.compact()
        else:
            await _forgotten(api, space, page.revision)
        yield api, space, page.revision, page.body["metadata"]["continue"]


async def _forgotten(api: RawApi, space: Space, revision: str) -> None:
    """Keep writing, because only what is older than the newest write of the last interval is compacted."""
    numbers = itertools.count()
    query = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}

    async def forgotten() -> bool:
        await api.patch(space.core("secrets/b"), {"metadata": {"labels": {"n": str(next(numbers))}}})
        return (await api.get(space.core("secrets"), **query)).status == 410

    await eventually(forgotten)


async def test_an_exact_list_of_a_forgotten_resource_version_is_gone(past: Past):
    api, ns, revision, _ = past
    got = await api.get(ns.core("secrets"), resourceVersion=revision, resourceVersionMatch="Exact")
    assert (got.status, got.body["reason"]) == (410, "Expired")
    assert got.body["message"] == "The resourceVersion for the provided list is too old."


async def test_a_continue_token_of_a_forgotten_resource_version_offers_a_way_on(past: Past):
    api, ns, _, token = past
    got = await api.get(ns.core("secrets"), limit=1, continue_=token)
    assert (got.status, got.body["reason"]) == (410, "Expired")
    assert got.body["message"].startswith(
        "The provided continue parameter is too old to display a consistent list result."
    )
    again = await api.get(ns.core("secrets"), limit=1, continue_=got.body["metadata"]["continue"])
    assert (again.status, again.names) == (200, ["b"])


async def test_a_watch_from_a_forgotten_resource_version_says_so_in_the_stream(past: Past):
    api, ns, revision, _ = past
    async with api.watch(ns.core("secrets"), resourceVersion=revision) as stream:
        assert stream.status == 200
        event = await stream.next()
        assert event is not None
        assert event["type"] == "ERROR"
        assert (event["object"]["kind"], event["object"]["code"], event["object"]["reason"]) == (
            "Status",
            410,
            "Expired",
        )
        assert await stream.next() is None
