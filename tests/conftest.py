"""What every test run has in common, and short names for the fixtures of our own plugin.

Hypothesis never judges by the clock, so that a busy machine fails no test. Coverage is shown before pytest's own
summary, which stays the last word.
"""

from __future__ import annotations

import gc
import io
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from steersman.testing import plugin
from steersman.testing.plugin import unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from steersman.apiserver import EmbeddedServer
    from steersman.kube.client.client import Client
    from steersman.testing.clock import VirtualClock
    from steersman.testing.controlplane.launcher import ControlPlane
    from steersman.testing.raw_api import ApiServer
    from tests.support.dns.named import Named

settings.register_profile("steersman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("steersman"), max_examples=25)  # make check
settings.load_profile("steersman")

TARGET = 90  # percent of lines and branches of the package
SERVERS = ("cluster", "real", "full", "simulated", "embedded")
ALL_SLOW = re.compile(r"^pytestmark = .*\bmark\.(slow|real)\b", re.MULTILINE)
BUILT = {"real", "full", "kubectl", "helm"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that are slow as a whole are not even imported by `make check`."""
    if collection_path.suffix != ".py" or "not slow" not in config.option.markexpr:
        return None
    return True if ALL_SLOW.search(collection_path.read_text()) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The marker `real` of this repository is the plugin's own."""
    plugin.pytest_collection_modifyitems(items)
    for item in items:
        marked = any(item.get_closest_marker(name) for name in ("real", plugin.MARKER))
        if marked or BUILT & set(getattr(item, "fixturenames", ())):
            item.add_marker("real")
            item.add_marker(plugin.MARKER)


def pytest_collection_finish() -> None:
    """What is collected stays until the end: tests that collect garbage need not look at it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def clock(steersman_clock: VirtualClock) -> VirtualClock:
    return steersman_clock


@pytest.fixture(scope="session")
def embedded(steersman_embedded: EmbeddedServer) -> EmbeddedServer:
    return steersman_embedded


@pytest.fixture(scope="session")
def simulated(steersman_simulated: EmbeddedServer) -> EmbeddedServer:
    return steersman_simulated


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> None:
    """Comes before servers that have to be built: what asks for them by name only would start them in `make check`."""
    if "not steersman_real" in request.config.option.markexpr:
        raise pytest.UsageError("a test that asks for a real server by getfixturevalue needs the marker real")


@pytest.fixture(scope="session")
def real(built: None, steersman_real: ControlPlane) -> ControlPlane:
    return steersman_real


@pytest.fixture(scope="session")
def full(built: None, steersman_full: ControlPlane) -> ControlPlane:
    return steersman_full


@pytest.fixture
def cluster(steersman_cluster: ApiServer) -> ApiServer:
    return steersman_cluster


@pytest.fixture
def server(request: pytest.FixtureRequest) -> ApiServer:
    """The server a test asked for, by its short name."""
    name = next((name for name in SERVERS if name in request.fixturenames), None)
    if name is None:
        raise pytest.UsageError(f"{request.node.nodeid}: ask for one of {', '.join(SERVERS)} as well")
    chosen: ApiServer = request.getfixturevalue(name)
    return chosen


@pytest.fixture
def steersman_server(server: ApiServer) -> ApiServer:
    """What the fixtures of the plugin work with; tests may replace `server`."""
    return server


@pytest.fixture
def namespace(steersman_namespace: str) -> str:
    return steersman_namespace


@pytest.fixture
def client(steersman_client: Client) -> Client:
    return steersman_client


@pytest.fixture
def kubectl(steersman_kubectl: Any) -> Any:
    return steersman_kubectl


@pytest.fixture
def helm(steersman_helm: Any) -> Any:
    return steersman_helm


@pytest.fixture
def named(tmp_path: Path) -> Callable[..., Named]:
    """Name servers: `named("ns1")` is a real one that does not run yet."""
    from tests.support.dns.named import Named, NamedUnavailable, find_named

    try:
        find_named()
    except NamedUnavailable as error:
        unavailable(error)
    return lambda name, **options: Named(tmp_path / name, **options)


@pytest.fixture
async def dns_kinds(client: Client, server: ApiServer) -> None:
    """The kinds of the dns operator are served."""
    from tests.support.dns.zones import install_crds

    await install_crds(client, server.url)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of a measured run writes down what it saw: it will be ended without a chance to do so."""
    if hasattr(session.config, "workerinput"):
        _finish_measuring()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """When the run was measured (`coverage run -m pytest`), say what it covered and which modules fell short."""
    if not _finish_measuring():
        return
    from coverage import Coverage

    everything, table = Coverage(messages=False), io.StringIO()
    everything.combine()
    percent = everything.report(file=table, precision=1, sort="cover", skip_empty=True)
    terminalreporter.section("coverage")
    for line in table.getvalue().splitlines():
        name, covered = line.split(" ")[0], line.split(" ")[-1]
        if name.endswith(".py") and float(covered.rstrip("%")) < TARGET:
            terminalreporter.write_line(f"{covered:>7}  {name}")
    terminalreporter.write_line(f"{percent:6.1f}%  of lines and branches in all (target {TARGET} %)")


def _finish_measuring() -> bool:
    """Stop and save, if this process is being measured at all."""
    if "coverage" not in sys.modules:
        return False
    from coverage import Coverage

    measuring: Coverage | None = Coverage.current()
    if measuring is None:
        return False
    measuring.stop()
    measuring.save()
    return True
