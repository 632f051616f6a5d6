"""The embedded server as a whole: TLS, credentials, faults, log, time."""

from __future__ import annotations

import asyncio
import base64
import stat
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from steersman.apiserver import EmbeddedServer, Fault
from steersman.testing.clock import VirtualClock, settle
from steersman.testing.raw_api import RawApi, WatchStream, ssl_context
from steersman.testing.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer() as server:
        yield server


@pytest.fixture
async def api(server: EmbeddedServer) -> AsyncIterator[RawApi]:
    async with RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api:
        yield api


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_the_kubeconfig_holds_everything_and_is_readable_by_its_owner_only(
    server: EmbeddedServer, tmp_path: Path
):
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    config = yaml.safe_load(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == server.url
    assert base64.b64decode(cluster["certificate-authority-data"]).decode() == server.ca_pem
    assert config["users"][0]["user"] == {"token": server.token}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_client_that_does_not_trust_the_authority_gets_no_connection(server: EmbeddedServer):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{server.url}/version")


async def test_an_unknown_token_is_unauthorized_and_none_is_anonymous(server: EmbeddedServer):
    trust = ssl_context(server.ca_pem)
    async with RawApi(server.url, token="wrong", ssl_context=trust) as stranger:
        answer = await stranger.get(MAPS)
        assert (answer.status, answer.body["message"]) == (401, "Unauthorized")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as nobody:
        async with nobody.get(f"{server.url}/version") as version:
            assert version.status == 200
        async with nobody.get(f"{server.url}{MAPS}") as refused:
            assert refused.status == 403
            assert 'User "system:anonymous" cannot list' in (await refused.json())["message"]


async def test_a_client_certificate_of_our_authority_is_known_by_its_name(server: EmbeddedServer, tmp_path: Path):
    certificate, key = server.client_certificate("jane", ("dev",))
    (tmp_path / "client.pem").write_text(certificate + key)
    trust = ssl_context(server.ca_pem)
    trust.load_cert_chain(tmp_path / "client.pem")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        url = f"{server.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with session.post(url, json={}) as answer:
            assert (await answer.json())["status"]["userInfo"]["username"] == "jane"


async def test_without_rbac_every_authenticated_user_may_do_everything(server: EmbeddedServer, api: RawApi):
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    token = (await api.post(f"{account}/token", {"spec": {}})).body["status"]["token"]
    async with RawApi(server.url, token=token, ssl_context=ssl_context(server.ca_pem)) as pod:
        assert (await pod.post(MAPS, config_map("a"))).status == 201
        review = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
        answer = await pod.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        assert answer.body["status"] == {"allowed": True}
    assert (await api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")).names == []


@pytest.mark.parametrize(
    ("user", "groups", "status"),
    [("jane", ("dev",), 403), ("jane", ("system:masters",), 200), ("system:admin", (), 200)],
)
async def test_with_rbac_a_certificate_gives_the_rights_of_its_groups(tmp_path: Path, user, groups, status):
    async with EmbeddedServer(authorization="rbac") as server:
        (tmp_path / "client.pem").write_text("".join(server.client_certificate(user, groups)))
        trust = ssl_context(server.ca_pem)
        trust.load_cert_chain(tmp_path / "client.pem")
        async with RawApi(server.url, ssl_context=trust) as api:
            assert (await api.get(MAPS)).status == status


def test_rbac_needs_to_know_its_users():
    with pytest.raises(ValueError, match="needs authentication"):
        EmbeddedServer(authorization="rbac", token="")


async def test_the_log_names_the_impersonated_user():
    async with EmbeddedServer(tls=False, authorization="rbac") as server, RawApi(server.url, token=server.token) as api:
        await api.get(MAPS, headers={"Impersonate-User": "jane"})
        await api.get(MAPS, headers={"Impersonate-User": "jane", "Impersonate-Group": "system:masters"})
        assert [(entry.user, entry.status) for entry in server.requests][-2:] == [("jane", 403), ("jane", 200)]


async def test_tokens_of_service_accounts_expire():
    clock = VirtualClock()
    async with (
        EmbeddedServer(clock=clock, tls=False) as server,
        RawApi(server.url, token=server.token) as api,
    ):
        await settle()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        made = await api.post(f"{account}/token", {"spec": {"expirationSeconds": 600}})
        async with RawApi(server.url, token=made.body["status"]["token"]) as pod:
            assert (await pod.get(MAPS)).status == 200
            await clock.advance(601)
            assert (await pod.get(MAPS)).status == 401


async def test_a_table_shows_the_age_at_the_moment_of_each_event():
    clock = VirtualClock()
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with (
        EmbeddedServer(clock=clock, tls=False) as server,
        RawApi(server.url, token=server.token) as api,
        api.watch(MAPS, headers=table, resourceVersion=(await api.get(MAPS)).revision) as stream,
    ):
        await api.post(MAPS, config_map("a"))
        assert await age_of_next(stream) == "0s"
        await clock.advance(100)
        await api.post(MAPS, config_map("b"))
        assert await age_of_next(stream) == "0s"
        await api.patch(f"{MAPS}/a", {"metadata": {"labels": {"a": "b"}}})
        assert await age_of_next(stream) == "100s"


async def age_of_next(stream: WatchStream) -> str:
    event = await stream.next()
    assert event is not None
    return str(event["object"]["rows"][0]["cells"][-1])


async def test_plain_http_without_a_token_lets_everybody_in():
    async with EmbeddedServer(tls=False, token="") as server, RawApi(server.url, token="") as api:
        assert server.url.startswith("http://")
        assert (await api.get(MAPS)).status == 200


async def test_the_log_says_who_asked_what_and_how_it_ended(server: EmbeddedServer, api: RawApi):
    server.requests.clear()
    await api.post(MAPS, config_map("a"))
    await api.get(f"{MAPS}/nope")
    made, missing = server.requests
    assert (made.verb, made.resource, made.namespace, made.status) == ("create", "configmaps", "default", 201)
    assert (missing.verb, missing.name, missing.status, missing.user) == ("get", "nope", 404, "system:admin")


async def test_the_same_seed_gives_the_same_names_and_uids():
    seen = []
    for _ in range(2):
        clock = VirtualClock()
        async with (
            EmbeddedServer(clock=clock, tls=False, token="t", random=Random(7)) as server,
            RawApi(server.url, token="t") as api,
        ):
            answer = await api.post(MAPS, {"metadata": {"generateName": "x-"}})
            seen.append((answer.name, answer.body["metadata"]["uid"], answer.body["metadata"]["creationTimestamp"]))
    assert seen[0] == seen[1]


async def test_a_body_over_the_limit_is_refused(api: RawApi):
    answer = await api.post(MAPS, config_map("a", k="x" * (3 * 1024 * 1024)))
    assert (answer.status, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_curl_and_pretty_get_indented_json(server: EmbeddedServer, api: RawApi):
    trust = ssl_context(server.ca_pem)
    headers = {"Authorization": f"Bearer {server.token}", "User-Agent": "curl/8"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), headers=headers) as session:
        async with session.get(f"{server.url}{MAPS}") as answer:
            assert (await answer.text()).startswith('{\n  "kind"')
        async with session.get(f"{server.url}{MAPS}?pretty=false") as answer:
            assert (await answer.text()).startswith('{"kind"')


# Faults


async def test_a_fault_meets_only_what_its_rule_says_and_only_so_often(server: EmbeddedServer, api: RawApi):
    server.faults.add(Fault("unavailable", verb="list", resource="configmaps", count=2, seconds=3))
    answers = [await api.get(MAPS) for _ in range(3)]
    assert [answer.status for answer in answers] == [503, 503, 200]
    assert answers[0].headers["Retry-After"] == "3"
    assert (await api.get("/api/v1/namespaces/default/secrets")).status == 200
    assert len(server.faults.hits) == 2


@pytest.mark.parametrize(
    ("effect", "status", "reason"),
    [("throttle", 429, "TooManyRequests"), ("error", 500, "InternalError"), ("unavailable", 503, "ServiceUnavailable")],
)
async def test_faults_that_answer(server: EmbeddedServer, api: RawApi, effect: Any, status: int, reason: str):
    server.faults.add(Fault(effect, name="a"))
    answer = await api.get(f"{MAPS}/a")
    assert (answer.status, answer.body["reason"]) == (status, reason)


async def test_a_dropped_request_has_no_effect_and_one_dropped_after_has(server: EmbeddedServer, api: RawApi):
    server.faults.add(Fault("drop", verb="create", count=1))
    with pytest.raises(aiohttp.ClientError):
        await api.post(MAPS, config_map("a"))
    assert (await api.get(f"{MAPS}/a")).status == 404
    server.faults.add(Fault("drop-after", verb="create", count=1))
    with pytest.raises(aiohttp.ClientError):
        await api.post(MAPS, config_map("a"))
    assert (await api.get(f"{MAPS}/a")).status == 200


async def test_a_truncated_answer_ends_before_its_length(server: EmbeddedServer, api: RawApi):
    server.faults.add(Fault("truncate", verb="list", bytes=10))
    with pytest.raises(aiohttp.ClientError):
        await api.get(MAPS)


async def test_a_frozen_request_is_let_go_when_the_server_stops():
    async with EmbeddedServer(tls=False, token="t") as server, RawApi(server.url, token="t") as api:
        server.faults.add(Fault("freeze", verb="list"))
        frozen = asyncio.ensure_future(api.get(MAPS))
        await eventually(lambda: server.faults.hits)
        assert not frozen.done()
        await server.stop()
        with pytest.raises(aiohttp.ClientError):
            await frozen


async def test_a_delay_is_on_the_server_s_clock():
    clock = VirtualClock()
    async with EmbeddedServer(tls=False, token="t", clock=clock) as server, RawApi(server.url, token="t") as api:
        server.faults.add(Fault("delay", seconds=30))
        slow = asyncio.ensure_future(api.get(MAPS))
        await eventually(lambda: server.faults.hits)
        await settle()
        assert not slow.done()
        await clock.advance(30)
        assert (await slow).status == 200


async def test_expired_resource_versions_are_gone(server: EmbeddedServer, api: RawApi):
    start = (await api.get(MAPS)).revision
    await api.post(MAPS, config_map("a"))
    server.faults.add(Fault("expire", verb="watch"))
    async with api.watch(MAPS, resourceVersion=start) as stream:
        event = await stream.next()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_chance_is_repeatable():
    async def run() -> list[int]:
        async with EmbeddedServer(tls=False, token="t", seed=3) as server, RawApi(server.url, token="t") as api:
            server.faults.add(Fault("error", probability=0.5))
            return [(await api.get(MAPS)).status for _ in range(20)]

    first, second = await run(), await run()
    assert first == second
    assert {200, 500} == set(first)
