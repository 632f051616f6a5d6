"""Fixtures of the contract suite: one HTTP client per server, one namespace per test.

The `cluster` fixture is parametrised over the embedded and the real server, so every test here runs on both. What
fails on one of them only is a bug of the embedded server, unless docs/embedded-server.md lists it with a reason.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import Space, widgets_crd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.testing.raw_api import ApiServer

_numbers = itertools.count(1)
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")


@pytest.fixture
async def api(cluster: ApiServer) -> AsyncIterator[RawApi]:
    """Plain HTTP as a cluster administrator."""
    async with RawApi(cluster.url, token=cluster.token, ssl_context=ssl_context(cluster.ca_pem)) as api:
        yield api


@pytest.fixture
async def ns(api: RawApi) -> Space:
    """A namespace of the test's own. It stays behind: the server goes away with the run."""
    name = f"{WORKER}-{next(_numbers)}"
    made = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.status == 201, made.body
    return Space(name)


@pytest.fixture
async def pods(api: RawApi, ns: Space) -> Space:
    """A namespace that is ready for pods: its default service account exists."""
    await api.eventually(ns.core("serviceaccounts/default"), lambda answer: answer.status == 200)
    return ns


_installed: dict[str, str] = {}


@pytest.fixture
async def widgets(api: RawApi) -> str:
    """The API group in which `Widget` is installed and served; one per server."""
    if api.url not in _installed:
        group = f"contract-{WORKER}.example.org"
        await install(api, widgets_crd(group))
        _installed[api.url] = group
    return _installed[api.url]


async def install(api: RawApi, crd: dict[str, Any]) -> None:
    """Create a CRD and wait until every served version answers."""
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = await api.post(crds, crd)
    assert made.status == 201, made.body
    spec = made.body["spec"]
    for version in spec["versions"]:
        if version["served"]:
            path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            await api.eventually(path, lambda answer: answer.status == 200)


@pytest.fixture(name="install")
def install_fixture() -> Any:
    """`await install(api, crd)`."""
    return install
