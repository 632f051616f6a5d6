"""The page's files, under names that say which version they are."""

from __future__ import annotations

from types import SimpleNamespace

import aiohttp
import pytest

from steersman.runtime.http.server import HttpServer
from steersman.web.access import AccessMode, PageAccess
from steersman.web.assets import static_digest
from steersman.web.site import Site


@pytest.fixture
async def url():
    server = HttpServer("127.0.0.1", 0, routes=Site(SimpleNamespace(), PageAccess(AccessMode.OPEN)).routes())
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


async def test_a_file_may_be_kept_for_ever_under_the_name_of_this_version_and_under_no_other(url):
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/static/{static_digest()}/app.js") as answer:
            assert (answer.status, answer.content_type) == (200, "text/javascript")
            assert "immutable" in answer.headers["Cache-Control"]
        for other in ("0123456789ab", static_digest()[:-1], "x"):
            async with session.get(f"{url}/static/{other}/app.js") as answer:
                assert (answer.status, answer.headers["Cache-Control"]) == (404, "no-store")
