"""The page in a real browser, of a real manager that runs the real operator on a shop.

One browser per process and one manager per module. The shop is brought into states that stay: a restart that waits for
an hour, one that is frozen, one whose budget is used up.
"""

from __future__ import annotations

import contextlib
import copy
import functools

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from multidict import CIMultiDict
from playwright.async_api import expect
from prometheus_client import CollectorRegistry
from yarl import URL

from steersman.apiserver import EmbeddedServer
from steersman.cli.demo.data import NAMESPACE, SHOP, configmap
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import Deployment, Namespace
from steersman.kube.client.client import Client
from steersman.kube.config.config import AuthInfo, Config
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import BudgetConfig, ReloadConfig
from steersman.operators.reload.controllers.setup import parts
from steersman.runtime.manager.operator_bundle import (
    OperatorBundle,
    Row,
    RowProblem,
    RowState,
    RuntimeEnvironment,
    Table,
)
from steersman.simulate import simulation
from steersman.testing import eventually, running
from steersman.testing.plugin import unavailable
from steersman.web.site import attach
from tests.support.programs.browsers import NoBrowser, chromium

CONFIG = ReloadConfig(quiet_period="0s", max_delay="0s", budget=BudgetConfig(restarts=2, per="24h"))
LONG = 90.0  # seconds that a fact may take on a busy machine

expect.set_options(timeout=LONG * 1000)  # five seconds otherwise, whatever the context says


@pytest.fixture(scope="session")
def managed():
    """`async with managed(client, parts, snapshot) as shop`: a manager with its page."""
    return at_work


class Shop:
    """A manager at work, and a client to change things with."""

    def __init__(self, client, manager, url):
        self.client = client
        self.manager = manager
        self.url = url

    async def configure(self, name, *, by="kubectl-edit", **data):
        await self.client.apply(configmap(name, **data), field_manager=by, force=True)

    async def annotate(self, name, **annotations):
        body = {"metadata": {"annotations": {f"steersman.dev/{key}": value for key, value in annotations.items()}}}
        await self.client.patch(Deployment, name, body, namespace=NAMESPACE)

    async def state_of(self, name, wanted):
        """Wait until the API says that a workload stands so."""
        await eventually(lambda: self._stands(name, wanted), f"{name} is {wanted}", timeout=LONG)

    async def _stands(self, name, wanted):
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/api/v1/status") as answer:
            body = await answer.json()
        lists = [body["now"][part] for part in ("pending", "held", "circuits", "rollouts", "approvals", "failed")]
        found = [node for nodes in lists for node in nodes if node["name"] == name]
        return found and found[0]["standing"] == wanted


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shop(request):
    """A shop whose configuration has changed in several ways."""
    async with EmbeddedServer() as server:
        config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=server.token))
        async with Client.connect(config) as client, simulation(client):
            await client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
            for manifest in SHOP:
                await client.apply(marked(manifest), field_manager="demo")
            bundle = parts(CONFIG, RuntimeEnvironment(), registry=CollectorRegistry())
            async with at_work(client, bundle) as shop:
                await eventually(lambda: seeded(client), "every workload is known", timeout=LONG)
                await unsettle(shop)
                yield shop


MARKS = {
    "search": {"steersman.dev/quiet-period": "12h", "steersman.dev/max-delay": "12h"},
    "mailer": {"steersman.dev/freeze": "true"},
}


def marked(manifest):
    """The manifest with its marks from the start: a mark that comes later may be seen after a change that it is for."""
    made = copy.deepcopy(manifest)
    if manifest["kind"] == "Deployment":
        made["metadata"]["annotations"] |= MARKS.get(manifest["metadata"]["name"], {})
    return made


def at_work(client, bundle, snapshot=None):
    """The operator and an operator with a table, and the page of both."""

    def prepare(manager):
        manager.include("reload", bundle)
        manager.include("lamps", OperatorBundle(controllers=(), tables=lambda _: LAMPS))
        attach(manager, snapshot=snapshot)

    class Running:
        async def __aenter__(self):
            self.block = running(client, prepare=prepare, listen="127.0.0.1:0")
            manager = await self.block.__aenter__()
            return Shop(client, manager, f"http://127.0.0.1:{manager.health.port}")

        async def __aexit__(self, *exc):
            return await self.block.__aexit__(*exc)

    return Running()


LAMPS = [
    Table(
        "Lamps",
        ["name", "watts"],
        [
            Row(["kitchen", 12]),
            Row(
                ["<img src=x onerror=alert(1)>", 0],
                RowState.BAD,
                "broken <script>alert(2)</script>",
                problem=RowProblem(
                    objects=["lamp/home/<img src=x onerror=alert(5)>"],
                    message="broken <script>alert(2)</script>",
                    command="kubectl describe lamp '<b>'",
                    runbook="SteersmanReconcileStuck",
                ),
            ),
        ],
    ),
    Table("Switches", ["name"]),
    Table(
        "Sockets",
        ["name", "address", "panel", "note"],
        [Row(["hall", f"http://{'socket.' * 9}example:8080", "panel-" * 9, "x" * 60], RowState.WAITING)],
    ),
]


async def seeded(client):
    found = await client.list(Deployment, namespace=NAMESPACE)
    return all(APPLIED in one.annotations for one in found.items if one.name != "legacy-erp")


async def unsettle(shop):
    """States that stay."""
    await shop.configure("features", checkout="classic", banner="sale", recommendations="on")
    await eventually(lambda: restarted(shop.client, "frontend"), "the frontend restarted", timeout=LONG)
    await shop.configure("search-index", by="index-tool", shards="8", language="en")
    await shop.configure("mail", host="smtp2.example", sender="shop@example.org")
    await shop.state_of("search", "pending")
    await shop.state_of("mailer", "held")
    for number in range(3):
        await shop.configure("tuning", threads=str(number))  # nobody listens
        await shop.configure("currencies", default=f"C{number}", accepted="EUR,USD,SEK")
        if number < 2:
            await eventually(lambda n=number: restarts(shop.client, "cart", n + 1), "cart restarted", timeout=LONG)
    await shop.state_of("cart", "open")


async def restarted(client, name):
    found = await client.get(Deployment, name, namespace=NAMESPACE)
    return "steersman.dev/restarted-for" in (found.spec.template.metadata.annotations or {})


async def restarts(client, name, number):
    found = await client.get(Deployment, name, namespace=NAMESPACE)
    return len(msgspec.json.decode(found.annotations[APPLIED]).get("r", ())) >= number


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser():
    """The system's Chromium."""
    try:
        async with chromium() as found:
            yield found
    except NoBrowser as error:
        unavailable(error)


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser):
    """A window of its own for this test; what breaks the page's rules fails it."""
    async with await browser.new_context(viewport={"width": 1280, "height": 860}) as context:
        context.set_default_timeout(LONG * 1000)
        wrong = []
        context.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        context.on("weberror", lambda error: wrong.append(str(error.error)))
        context.wrong = wrong
        yield context
        told = [text for text in wrong if not text.startswith("Failed to load resource")]
        assert told == []


@pytest_asyncio.fixture(loop_scope="session")
async def page(context):
    """A tab. Whatever the page loads must come from the page's own server."""
    tab = await context.new_page()
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    yield tab
    foreign = [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:"))]
    assert foreign == []


PREFIX = "/tools/steersman"
_HOP = {"transfer-encoding", "connection", "content-length", "host"}


@pytest_asyncio.fixture(loop_scope="session")
async def below():
    """`await below(url)`: the address of a page behind a proxy that serves it below a path (`prefix`)."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(url, prefix=PREFIX):
            session = await stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
            application = web.Application()
            application.router.add_route("*", prefix + "/{rest:.*}", functools.partial(forwarded, session, url, prefix))
            runner = web.AppRunner(application, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return f"http://127.0.0.1:{runner.addresses[0][1]}{prefix}/"

        yield start


async def forwarded(session, url, prefix, request):
    """What the server at `url` says, as it says it, bit by bit."""
    asked = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
    target = URL(f"{url}/{request.rel_url.raw_path.removeprefix(prefix + '/')}", encoded=True)
    target = target.with_query(request.rel_url.raw_query_string)
    body = await request.read()
    async with session.request(request.method, target, headers=asked, data=body, allow_redirects=False) as answer:
        told = [(name, value) for name, value in answer.headers.items() if name.lower() not in _HOP]
        response = web.StreamResponse(status=answer.status, headers=CIMultiDict(told))
        await response.prepare(request)
        async for part in answer.content.iter_any():
            await response.write(part)
        return response
