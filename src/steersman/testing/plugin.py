"""The pytest plugin: servers, time and kubectl as fixtures, found through the entry point `steersman`.

    async def test_a_pod_can_be_listed(cluster, namespace): ...     # runs on the embedded server and on the real one

Servers are started when a test first asks for them, one of each per process (so one per xdist worker), and tests keep
apart by namespace. They run on the session's event loop: set `asyncio_default_test_loop_scope = "session"`.
Importing this module costs nothing: fixtures import what they need when they are asked for.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal, TypeVar, cast

import pytest

from steersman.testing.absence import not_here

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path
    from typing import Any

    from steersman.apiserver import EmbeddedServer
    from steersman.kube.client import Client
    from steersman.testing.clock import VirtualClock
    from steersman.testing.controlplane import ControlPlane
    from steersman.testing.named import Named
    from steersman.testing.programs import Program
    from steersman.testing.servers import ApiServer

F = TypeVar("F", bound="Callable[..., object]")

_SERVERS = ("cluster", "real", "full", "simulated", "embedded")
_REAL = {"real", "full"}
_BUILT = {*_REAL, "kubectl", "helm"}


def _on_the_session_loop(scope: Literal["function", "session"]) -> Callable[[F], F]:
    """Make an async fixture; without pytest-asyncio nobody can ask for one, but pytest must still start."""
    try:
        import pytest_asyncio
    except ImportError:  # pragma: no cover
        return cast("Callable[[F], F]", pytest.fixture(scope=scope))
    return cast("Callable[[F], F]", pytest_asyncio.fixture(scope=scope, loop_scope="session"))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of every test that needs the control plane or its programs."""
    config.addinivalue_line("markers", "real: needs programs of the real control plane (built once, then cached)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs programs that have to be built, so that `-m "not real"` leaves exactly that out."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if _BUILT & set(getattr(item, "fixturenames", ())) or parameters.get("cluster") in _REAL:
            item.add_marker("real")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what tests will ask for before the first one, because a first build takes longer than a test may."""
    real = [item for item in session.items if item.get_closest_marker("real")]
    if not real:
        return
    from steersman.testing.binaries import CONTROL_PLANE, HELM, KWOK, BinariesError

    asked = {name for item in real for name in getattr(item, "fixturenames", ())}
    modules = [CONTROL_PLANE, *([KWOK] if "full" in asked else []), *([HELM] if "helm" in asked else [])]
    try:
        for module in modules:
            module.build(_reporter(session.config))
    except BinariesError:
        return  # the fixtures say so, test by test


@pytest.fixture
def clock() -> VirtualClock:
    """Time that moves only when the test says so: `await clock.advance(5)`."""
    from steersman.testing.clock import VirtualClock

    return VirtualClock()


@_on_the_session_loop("session")
async def embedded() -> AsyncIterator[EmbeddedServer]:
    """The embedded API server, in this process."""
    from steersman.apiserver import EmbeddedServer

    async with EmbeddedServer() as server:
        yield server


@_on_the_session_loop("session")
async def simulated() -> AsyncIterator[EmbeddedServer]:
    """An embedded API server of its own that behaves like a cluster of two nodes: workloads get pods that run."""
    from steersman.apiserver import EmbeddedServer
    from steersman.kube.client import Client
    from steersman.kube.clusterconfig import ClusterConfig, User
    from steersman.simulate import simulation

    async with EmbeddedServer() as server:
        config = ClusterConfig(server=server.url, ca=server.ca_pem.encode(), auth=User(token=server.token))
        async with Client.connect(config) as client, simulation(client):
            yield server


@_on_the_session_loop("session")
async def real() -> AsyncIterator[ControlPlane]:
    """kube-apiserver and etcd, with the controllers that keep the API itself tidy (namespaces, garbage, accounts)."""
    from steersman.testing.binaries import BinariesError
    from steersman.testing.controlplane import LIFECYCLE_CONTROLLERS, ControlPlane

    try:
        async with ControlPlane(controllers=LIFECYCLE_CONTROLLERS) as plane:
            yield plane
    except BinariesError as error:
        not_here(error)


@_on_the_session_loop("session")
async def full() -> AsyncIterator[ControlPlane]:
    """The whole control plane: all controllers, the scheduler, and nodes simulated by KWOK."""
    from steersman.testing.binaries import BinariesError
    from steersman.testing.controlplane import ALL_CONTROLLERS, ControlPlane

    try:
        async with ControlPlane(controllers=ALL_CONTROLLERS, scheduler=True, kwok=True) as plane:
            yield plane
    except BinariesError as error:
        not_here(error)


@pytest.fixture(params=["embedded", "real"])
def cluster(request: pytest.FixtureRequest) -> ApiServer:
    """An API server: the test runs on the embedded one and on the real one."""
    server: ApiServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> ApiServer:
    """The server this test runs on: the one of `cluster`, `real`, `full`, `simulated` or `embedded` it asked for."""
    for name in _SERVERS:
        if name in request.fixturenames:
            chosen: ApiServer = request.getfixturevalue(name)
            return chosen
    raise pytest.UsageError(f"{request.node.nodeid}: ask for one of {', '.join(_SERVERS)} as well")


@_on_the_session_loop("function")
async def namespace(server: ApiServer) -> AsyncIterator[str]:
    """The name of a namespace that only this test uses, ready for pods."""
    from steersman.testing.rawapi import RawApi, ssl_context

    name = f"test-{uuid.uuid4().hex[:10]}"
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
async def client(server: ApiServer, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with full access to the server of this test."""
    from steersman.kube.client import Client
    from steersman.kube.kubeconfig import load_config

    config = tmp_path / "client.kubeconfig"
    server.write_kubeconfig(config)
    async with Client.connect(load_config(config)) as connected:
        yield connected


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Program:
    """The real kubectl, with full access to the server of this test."""
    return _program("kubectl", server, tmp_path)


@pytest.fixture
def helm(server: ApiServer, tmp_path: Path) -> Program:
    """Helm 4, with full access to the server of this test."""
    return _program("helm", server, tmp_path)


@pytest.fixture
def named(tmp_path: Path) -> Callable[..., Named]:
    """Name servers: `named("ns1")` is a real one that does not run yet."""
    from steersman.testing.named import Named, NamedUnavailable, find_named

    try:
        find_named()
    except NamedUnavailable as error:
        not_here(error)
    return lambda name, **options: Named(tmp_path / name, **options)


@_on_the_session_loop("function")
async def dns_kinds(client: Client, server: ApiServer) -> None:
    """The kinds of the dns operator are served."""
    from steersman.testing.zones import install_crds

    await install_crds(client, server.url)


def _program(name: str, server: ApiServer, home: Path) -> Program:
    from steersman.testing.binaries import BinariesError, find_program
    from steersman.testing.programs import Program

    try:
        path = find_program(name)
    except BinariesError as error:
        not_here(error)
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
