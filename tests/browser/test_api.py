"""The JSON API of a real manager: fuzzed by its own description, and never a value in any answer."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

import aiohttp
import msgspec
import pytest
import pytest_asyncio
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from playwright.async_api import expect

from steersman.apiserver import EmbeddedServer
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.testing import running
from steersman.web.access import AccessMode
from steersman.web.api import ENDPOINTS
from steersman.web.model import StatusReport
from steersman.web.openapi import openapi
from steersman.web.site import attach

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


async def get(url, **headers):
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, allow_redirects=False) as answer:
        return answer.status, dict(answer.headers), await answer.text()


async def test_the_api_does_what_its_description_says(shop):
    document = openapi()
    quiet = {path: item for path, item in document["paths"].items() if not path.endswith("/events")}
    schema = schemathesis.openapi.from_dict({**document, "paths": quiet})
    await asyncio.to_thread(fuzz, schema, shop.url)


def fuzz(schema, url):
    for found in schema.get_all_operations():
        strategy = found.ok().as_strategy()

        @settings(
            max_examples=10,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        )
        @given(case=strategy)
        def check(case):
            case.call_and_validate(base_url=url, timeout=60)

        check()


async def test_every_answer_has_the_type_that_is_promised(shop):
    for endpoint in ENDPOINTS:
        path = endpoint.path.format(kind="deployment", namespace="shop", name="search", id="none")
        status, headers, body = await get(f"{shop.url}/api/v1{path}")
        assert headers["Content-Type"].startswith("application/json")
        if status == 200:
            msgspec.json.decode(body, type=endpoint.answer)
    assert status == 200


async def test_a_workload_whose_evaluation_fails_hides_no_other(shop, monkeypatch):
    reconciler = shop.manager.runners["reload-deployments"].controller.reconcile.__self__
    evaluate = reconciler.evaluate

    def broken(workload, *rest):
        if workload.name == "orders":
            raise ZeroDivisionError
        return evaluate(workload, *rest)

    monkeypatch.setattr(reconciler, "evaluate", broken)
    await shop.annotate("orders", note="evaluated again")
    await shop.state_of("orders", "held")
    await shop.state_of("search", "pending")


async def test_no_answer_holds_a_value_of_a_source(shop):
    await shop.configure("logging", level="info", format="tell-nobody-1234")
    for endpoint in ENDPOINTS:
        path = endpoint.path.format(kind="deployment", namespace="shop", name="frontend", id="none")
        _, _, body = await get(f"{shop.url}/api/v1{path}")
        assert "tell-nobody-1234" not in body
    for path in ("/", "/map", "/history", "/workloads/daemonset/shop/log-agent", "/operators", "/health"):
        assert "tell-nobody-1234" not in (await get(shop.url + path))[2]


async def test_nothing_may_be_loaded_from_elsewhere(shop):
    for path in ("/", "/map", "/api/v1/now", "/static/x/app.js", "/nothing-here/at/all", "/workloads/a/b/c"):
        status, headers, _ = await get(shop.url + path)
        if status == 404 and path.startswith("/nothing"):
            continue  # not ours: the listener's own answer
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_another_name_for_this_machine_gets_nothing(shop):
    assert (await get(f"{shop.url}/api/v1/now", Host="rebound.example"))[0] == 403
    assert (await get(f"{shop.url}/", Host="rebound.example"))[0] == 403


async def test_unknown_paths_parameters_and_methods_are_refused_with_a_reason(shop):
    status, _, body = await get(f"{shop.url}/api/v1/nowhere")
    assert (status, msgspec.json.decode(body)["status"]) == (404, 404)
    status, _, body = await get(f"{shop.url}/api/v1/history?colour=red")
    assert status == 400
    assert "colour" in body
    async with aiohttp.ClientSession() as session, session.post(f"{shop.url}/api/v1/now") as answer:
        assert answer.status == 405


async def status(*arguments):
    """Exit code and both outputs of the command; in a process of its own, as the operator here logs to ours."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "steersman", "status", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


async def test_the_status_command_shows_what_waits_and_exits_with_3(shop):
    code, output, _ = await status("--url", shop.url)
    assert code == 3  # a circuit is open
    for told in (
        "steersman ",
        "reload-deployments",
        "deployments.apps",
        "Pending",
        "in 11 h",
        "lamps: Lamps",
        "kitchen",
    ):
        assert told in output


async def test_the_status_command_prints_the_same_as_json_and_yaml(shop):
    _, output, _ = await status("--url", shop.url, "-o", "json")
    found = msgspec.json.decode(output, type=StatusReport)
    assert [node.name for node in found.now.pending] == ["search"]
    _, output, _ = await status("--url", shop.url, "-o", "yaml")
    assert yaml.safe_load(output)["now"]["pending"][0]["name"] == "search"


@pytest.mark.parametrize(
    ("url", "wanted", "told"),
    [
        ("http://127.0.0.1:1", 1, "nothing answers at http://127.0.0.1:1"),
        ("{url}/metrics", 1, "answers 404"),
        ("127.0.0.1:8080", 2, "is not an address"),
    ],
)
async def test_the_status_command_says_what_to_do_when_no_process_answers(shop, url, wanted, told):
    code, _, errors = await status("--url", url.format(url=shop.url))
    assert code == wanted
    assert errors.startswith("error: ")
    assert told in errors


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded():
    """A page that asks for tokens, and one that it takes."""
    async with EmbeddedServer() as server:
        config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=server.token))
        prepare = partial(attach, mode=AccessMode.TOKEN)
        async with (
            Client.connect(config) as client,
            running(client, prepare=prepare, listen="127.0.0.1:0") as manager,
        ):
            yield f"http://127.0.0.1:{manager.health.port}", server.token


async def test_with_page_token_the_cluster_decides_who_sees_the_api(guarded):
    url, token = guarded
    assert (await get(f"{url}/api/v1/now"))[0] == 401
    assert (await get(f"{url}/api/v1/now", Authorization="Bearer wrong"))[0] == 401
    assert (await get(f"{url}/api/v1/now", Authorization=f"Bearer {token}"))[0] == 200
    assert (await get(f"{url}/readyz"))[0] == 200  # probes need no token
    assert (await status("--url", url, "--token", token))[0] == 0
    assert "401" in (await status("--url", url))[2]


async def test_people_sign_in_with_a_token_and_out_again(page, guarded):
    url, token = guarded
    await page.goto(f"{url}/health")
    await expect(page.locator("h1")).to_have_text("Sign in")
    await page.get_by_label("Token").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("does not know this token")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("h1")).to_have_text("Health")
    await expect(page.locator("#live")).to_have_text("Live")
    assert token not in await page.evaluate("document.cookie")
    await page.goto(f"{url}/")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("h1")).to_have_text("Sign in")


async def test_below_a_path_people_sign_in_too_and_neighbours_do_not_get_their_cookie(context, page, guarded, below):
    url, token = guarded
    root = await below(url)
    await page.goto(f"{root}vitals")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("h1")).to_have_text("Health")
    assert page.url == f"{root}vitals"
    (cookie,) = await context.cookies()
    assert cookie["path"] == "/tools/steersman"
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("h1")).to_have_text("Sign in")
    assert await context.cookies() == []
