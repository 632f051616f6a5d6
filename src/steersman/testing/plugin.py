"""The pytest plugin: servers, time and kubectl as fixtures, for projects that ask for it.

    pytest_plugins = ["steersman.testing"]      # in the top conftest.py; or `addopts = "-p steersman.testing"`

    async def test_a_pod_can_be_listed(steersman_cluster, steersman_namespace): ...     # runs on both servers

Every fixture and marker begins with `steersman`: names such as `client` and `real` belong to the project. Give them
shorter names in a conftest.py of your own.

Servers are started when a test first asks for them, one of each per process (so one per xdist worker), and tests keep
apart by namespace. They run on the session's event loop: set `asyncio_default_test_loop_scope = "session"`.
Importing this module costs nothing: fixtures import what they need when they are asked for.
"""

from __future__ import annotations

import os
import sys
import uuid
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeVar, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator
    from pathlib import Path
    from typing import Any

    from steersman.apiserver import EmbeddedServer
    from steersman.kube.client.client import Client
    from steersman.runtime.webhook.admission import Webhook
    from steersman.testing.clock import VirtualClock
    from steersman.testing.controlplane.launcher import ControlPlane
    from steersman.testing.programs import Program
    from steersman.testing.raw_api import ApiServer

F = TypeVar("F", bound="Callable[..., object]")

MARKER: Final = "steersman_real"
_SERVERS: Final = tuple(f"steersman_{name}" for name in ("cluster", "real", "full", "simulated", "embedded"))
_BUILT: Final = {f"steersman_{name}" for name in ("real", "full", "kubectl", "helm")}


def unavailable(reason: object) -> NoReturn:
    """Skip this test because something is missing; with CI=true fail it, because a skip would hide it there."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(str(reason), pytrace=False)
    pytest.skip(str(reason))


def _on_the_session_loop(scope: Literal["function", "session"]) -> Callable[[F], F]:
    """Make an async fixture; without pytest-asyncio no test can use one, but pytest must still start."""
    try:
        import pytest_asyncio
    except ImportError:  # pragma: no cover
        return cast("Callable[[F], F]", pytest.fixture(scope=scope))
    return cast("Callable[[F], F]", pytest_asyncio.fixture(scope=scope, loop_scope="session"))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of every test that needs the control plane or its programs."""
    config.addinivalue_line("markers", f"{MARKER}: needs programs of the real control plane (built once, then cached)")
    os.environ.setdefault("STEERSMAN_CACHE_MUTATION_DETECTOR", "true")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fail a test in which an object of a cache was changed in memory."""
    result = yield
    if (mutation := sys.modules.get("steersman.cache.mutation_detector")) is not None:
        mutation.check()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs programs that have to be built, so that `-m "not steersman_real"` leaves exactly that out."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if _BUILT & set(getattr(item, "fixturenames", ())) or parameters.get("steersman_cluster") == "real":
            item.add_marker(MARKER)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what tests will ask for before the first one, because a first build takes longer than a test may."""
    real = [item for item in session.items if item.get_closest_marker(MARKER)]
    if not real:
        return
    from steersman.testing.controlplane.binaries import CONTROL_PLANE, HELM, KWOK, BinariesError

    asked = {name for item in real for name in getattr(item, "fixturenames", ())}
    modules = [
        CONTROL_PLANE,
        *([KWOK] if "steersman_full" in asked else []),
        *([HELM] if "steersman_helm" in asked else []),
    ]
    try:
        for module in modules:
            module.build(_reporter(session.config))
    except BinariesError:
        return  # the fixtures say so, test by test


@pytest.fixture
def steersman_clock() -> VirtualClock:
    """Time that moves only when the test says so: `await steersman_clock.advance(5)`."""
    from steersman.testing.clock import VirtualClock

    return VirtualClock()


@_on_the_session_loop("session")
async def steersman_embedded() -> AsyncIterator[EmbeddedServer]:
    """The embedded API server, in this process: `url`, `token`, `ca_pem`, `write_kubeconfig(path)`, `faults`.

    It evaluates RBAC; the clients of other fixtures may do everything.
    """
    from steersman.apiserver import EmbeddedServer

    async with EmbeddedServer(authorization="rbac") as server:
        yield server


@_on_the_session_loop("session")
async def steersman_simulated() -> AsyncIterator[EmbeddedServer]:
    """An embedded API server of its own that behaves like a cluster of two nodes: workloads get pods that run."""
    from steersman.apiserver import EmbeddedServer
    from steersman.kube.client.client import Client
    from steersman.kube.config.config import AuthInfo, Config
    from steersman.simulate import simulation

    async with EmbeddedServer(authorization="rbac") as server:
        config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=server.token))
        async with Client.connect(config) as client, simulation(client):
            yield server


@_on_the_session_loop("session")
async def steersman_real() -> AsyncIterator[ControlPlane]:
    """kube-apiserver and etcd, with the controllers that keep the API itself tidy (namespaces, garbage, accounts)."""
    from steersman.testing.controlplane.binaries import BinariesError
    from steersman.testing.controlplane.launcher import LIFECYCLE_CONTROLLERS, ControlPlane

    try:
        async with ControlPlane(controllers=LIFECYCLE_CONTROLLERS) as plane:
            yield plane
    except BinariesError as error:
        unavailable(error)


@_on_the_session_loop("session")
async def steersman_full() -> AsyncIterator[ControlPlane]:
    """The whole control plane: all controllers, the scheduler, and nodes simulated by KWOK."""
    from steersman.testing.controlplane.binaries import BinariesError
    from steersman.testing.controlplane.launcher import ALL_CONTROLLERS, ControlPlane

    try:
        async with ControlPlane(controllers=ALL_CONTROLLERS, scheduler=True, kwok=True) as plane:
            yield plane
    except BinariesError as error:
        unavailable(error)


@pytest.fixture(params=["embedded", "real"])
def steersman_cluster(request: pytest.FixtureRequest) -> ApiServer:
    """An API server: the test runs on the embedded one and on the real one."""
    server: ApiServer = request.getfixturevalue(f"steersman_{request.param}")
    return server


@pytest.fixture
def steersman_server(request: pytest.FixtureRequest) -> ApiServer:
    """The server this test runs on: the one it asked for (`steersman_cluster`, `_real`, `_full`, `_simulated`, …)."""
    for name in _SERVERS:
        if name in request.fixturenames:
            chosen: ApiServer = request.getfixturevalue(name)
            return chosen
    raise pytest.UsageError(f"{request.node.nodeid}: ask for one of {', '.join(_SERVERS)} as well")


@_on_the_session_loop("function")
async def steersman_namespace(steersman_server: ApiServer) -> AsyncIterator[str]:
    """The name of a namespace that only this test uses, ready for pods."""
    from steersman.testing.raw_api import RawApi, ssl_context

    server, name = steersman_server, f"test-{uuid.uuid4().hex[:10]}"
    if (check := getattr(server, "check", None)) is not None:
        check()  # a real one may have lost a program since the last test
    async with RawApi(
        server.url, token=server.token, ssl_context=ssl_context(server.ca_pem), user_agent="steersman-testing"
    ) as api:
        answer = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert answer.status == 201, answer.body
        # controllers of a real cluster make these; they must not turn up in the middle of a test
        for born in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            await api.eventually(f"/api/v1/namespaces/{name}/{born}", lambda found: found.status == 200)
        yield name
        answer = await api.delete(f"/api/v1/namespaces/{name}")
        assert answer.status in {200, 202, 404, 409}, answer.body


@_on_the_session_loop("function")
async def steersman_client(steersman_server: ApiServer, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with full access to the server of this test: `await steersman_client.get(Pod, "web-0")`."""
    from steersman.kube.client.client import Client
    from steersman.kube.config.kubeconfig import load_config

    config = tmp_path / "client.kubeconfig"
    steersman_server.write_kubeconfig(config)
    async with Client.connect(load_config(config)) as connected:
        yield connected


@_on_the_session_loop("function")
async def steersman_client_as(
    steersman_server: ApiServer, steersman_namespace: str
) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """Clients with few rights: `await client_as("reader", rule("pods", "list"))` is one of a new service account."""
    from contextlib import AsyncExitStack

    from steersman.testing.service_accounts import client_as

    async with AsyncExitStack() as stack:

        async def connect(name: str, *rules: Any, namespace: str = steersman_namespace, **options: Any) -> Client:
            return await stack.enter_async_context(
                client_as(steersman_server, name, *rules, namespace=namespace, **options)
            )

        yield connect


@_on_the_session_loop("function")
async def steersman_webhooks(
    steersman_client: Client, steersman_namespace: str
) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Webhooks that the API server asks about the test's namespace: `await steersman_webhooks(never_shrink)`."""
    from contextlib import AsyncExitStack

    from steersman.testing.webhook_session import serving_webhooks

    async with AsyncExitStack() as stack:

        async def serve(*webhooks: Webhook) -> None:
            await stack.enter_async_context(
                serving_webhooks(steersman_client, *webhooks, namespace=steersman_namespace)
            )

        yield serve


@pytest.fixture
def steersman_kubectl(steersman_server: ApiServer, tmp_path: Path) -> Program:
    """The real kubectl, with full access to the server of this test: `await steersman_kubectl("get", "pods")`."""
    return _program("kubectl", steersman_server, tmp_path)


@pytest.fixture
def steersman_helm(steersman_server: ApiServer, tmp_path: Path) -> Program:
    """Helm 4, with full access to the server of this test: `await steersman_helm("install", "shop", "chart/")`."""
    return _program("helm", steersman_server, tmp_path)


def _program(name: str, server: ApiServer, home: Path) -> Program:
    from steersman.testing.controlplane.binaries import BinariesError, find_program
    from steersman.testing.programs import Program

    try:
        path = find_program(name)
    except BinariesError as error:
        unavailable(error)
    config = home / "kubeconfig"
    server.write_kubeconfig(config)
    return Program(path, config, home=home)


def _reporter(config: pytest.Config) -> Callable[[str, int, int], None]:
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    shown: set[tuple[str, int]] = set()

    def report(what: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if terminal is not None and (what, tenth) not in shown:
            shown.add((what, tenth))
            terminal.write_line(f"{what}{f' {10 * tenth} %' if total else ''}")

    return report
