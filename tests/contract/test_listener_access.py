"""The listener of a manager behind TLS and the cluster's own rules, with no more rights than it needs."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from steersman.certificates import Authority
from steersman.runtime.rbac import REVIEWS
from steersman.runtime.webhook.cert_watcher import CHECK_SECONDS
from steersman.runtime.webhook.certificate_source import MountedCertificates
from steersman.testing import VirtualClock, running
from steersman.web.access import AccessMode
from steersman.web.site import attach

if TYPE_CHECKING:
    from pathlib import Path

SCRAPES = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
READS_THE_PAGE = {"nonResourceURLs": ["/steersman/page"], "verbs": ["get"]}


@pytest.fixture
def server(cluster):
    return cluster


@pytest.fixture
def token_of(steersman_client_as, steersman_client, namespace):
    """The token of a service account with these rights."""

    async def make(name: str, *rules: Any) -> str:
        await steersman_client_as(name, *rules, everywhere=True)
        issued = await steersman_client.create_token(name, namespace=namespace)
        return str(issued.token)

    return make


def write_pair(folder: Path, authority: Authority) -> None:
    pair = authority.server("127.0.0.1")
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


async def get(url: str, trusted: Authority | None = None, token: str = "") -> tuple[int, str]:
    trust = ssl.create_default_context(cadata=trusted.pem.decode()) if trusted is not None else False
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=trust) as answer:
        return answer.status, await answer.text()


async def test_the_clusters_rules_say_who_reads_metrics_and_page_and_probes_are_for_all(
    steersman_client_as, token_of, namespace
):
    own = await steersman_client_as("operator", *REVIEWS, everywhere=True)
    scraper, reader = await token_of("scraper", SCRAPES), await token_of("reader", READS_THE_PAGE)
    prepare = partial(attach, mode=AccessMode.TOKEN)
    async with running(own, prepare=prepare, listen="127.0.0.1:0", metrics="token") as manager:
        assert manager.health is not None
        url = f"http://127.0.0.1:{manager.health.port}"
        assert await get(f"{url}/metrics") == (401, "send a bearer token: Authorization: Bearer TOKEN\n")
        assert (await get(f"{url}/metrics", token="wrong"))[0] == 401
        rule = '{"nonResourceURLs":["/metrics"],"verbs":["get"]}'
        why = f"system:serviceaccount:{namespace}:reader may not get /metrics: a ClusterRole with {rule} allows it\n"
        assert await get(f"{url}/metrics", token=reader) == (403, why)
        status, text = await get(f"{url}/metrics", token=scraper)
        assert (status, "controller_runtime" in text) == (200, True)
        assert (await get(f"{url}/api/v1/now", token=scraper))[0] == 403
        assert (await get(f"{url}/api/v1/now", token=reader))[0] == 200
        for path in ("/livez", "/healthz", "/readyz"):
            assert (await get(url + path))[0] == 200


async def test_a_listener_that_may_not_review_tokens_lets_no_caller_in(steersman_client_as, token_of):
    own, scraper = await steersman_client_as("powerless"), await token_of("scraper", SCRAPES)
    async with running(own, listen="127.0.0.1:0", metrics="token") as manager:
        assert manager.health is not None
        status, text = await get(f"http://127.0.0.1:{manager.health.port}/metrics", token=scraper)
        assert (status, text) == (503, "the token could not be reviewed: Forbidden\n")


async def test_a_new_certificate_serves_new_connections_and_probes_need_none(steersman_client, tmp_path):
    old, new, clock = Authority("old"), Authority("new"), VirtualClock()
    write_pair(tmp_path, old)
    async with running(
        steersman_client,
        listen="127.0.0.1:0",
        probe_listen="127.0.0.1:0",
        certificates=MountedCertificates(tmp_path),
        clock=clock,
    ) as manager:
        assert manager.health is not None
        url, probes = f"https://127.0.0.1:{manager.health.port}", f"http://127.0.0.1:{manager.health.probe_port}"
        assert (await get(f"{url}/metrics", old))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(f"{url}/metrics", new)
        assert [(await get(probes + path))[0] for path in ("/livez", "/readyz", "/metrics")] == [200, 200, 404]
        write_pair(tmp_path, new)
        await clock.advance(CHECK_SECONDS)
        assert (await get(f"{url}/livez", new))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(f"{url}/metrics", old)
