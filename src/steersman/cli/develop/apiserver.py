"""`steersman apiserver`: the embedded API server as a process of its own, until interrupted."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.apiserver import EmbeddedServer


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
@click.option(
    "--kubeconfig-out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a kubeconfig here. It holds the token and is readable by you only.",
)
@click.option(
    "--token", envvar="STEERSMAN_APISERVER_TOKEN", help="Bearer token of the administrator; random if not given."
)
@click.option("--no-tls", is_flag=True, help="Plain HTTP.")
@click.option(
    "--authorization",
    type=click.Choice(["always-allow", "rbac"]),
    default="always-allow",
    show_default=True,
    help="What authenticated users may do: everything, or what roles and bindings allow.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAMESPACE/NAME=HOST:PORT",
    help="Where webhooks of this Service listen; repeatable.",
)
@click.option(
    "--simulate", is_flag=True, help="Behave like a cluster: workloads get pods, pods become ready, services endpoints."
)
def command(
    host: str,
    port: int,
    kubeconfig_out: Path | None,
    token: str | None,
    no_tls: bool,
    authorization: Literal["always-allow", "rbac"],
    services: tuple[str, ...],
    simulate: bool,
) -> None:
    """Run the embedded API server: a small Kubernetes API in memory.

    Everything is gone when it stops.

    \b
    Examples:
      steersman apiserver --kubeconfig-out kubeconfig &
      kubectl --kubeconfig kubeconfig get namespaces
      steersman apiserver --authorization rbac --kubeconfig-out kubeconfig
      steersman apiserver --service shop/hooks=127.0.0.1:9443
    """
    from steersman.apiserver import EmbeddedServer

    if authorization == "rbac" and token == "":
        raise ConfigError("--authorization rbac needs to know users: --token must not be empty")
    server = EmbeddedServer(
        host=host,
        port=port,
        token=token,
        tls=not no_tls,
        authorization=authorization,
        services=dict(map(_service, services)),
    )
    asyncio.run(_serve(server, kubeconfig_out, simulate=simulate))


def _service(text: str) -> tuple[str, str]:
    if (found := re.fullmatch(r"([^/=]+/[^/=]+)=(\S+:\d+)", text)) is None:
        raise ConfigError(f'--service "{text}" is not NAMESPACE/NAME=HOST:PORT (try shop/hooks=127.0.0.1:9443)')
    return found[1], found[2]


async def _serve(server: EmbeddedServer, kubeconfig: Path | None, *, simulate: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.start()
    except OSError as error:
        raise ConfigError(f"cannot listen: {error.strerror or error} (try another --port)") from None
    try:
        if kubeconfig is not None:
            server.write_kubeconfig(kubeconfig)
            click.echo(f"listening on {server.url}, kubeconfig in {kubeconfig}")
        else:
            click.echo(f"listening on {server.url}; --kubeconfig-out FILE writes the credentials")
        async with simulated(server) if simulate else nullcontext():
            await stop.wait()
    finally:
        await server.stop()


@asynccontextmanager
async def simulated(server: EmbeddedServer) -> AsyncIterator[None]:
    """Controllers and two nodes, through the server's own API."""
    from steersman.kube.client.client import Client
    from steersman.kube.config.config import AuthInfo, Config
    from steersman.simulate import simulation

    config = Config(
        server=server.url,
        ca=server.ca_pem.encode() or None,
        auth=AuthInfo(token=server.token or None),
        source="--simulate",
    )
    async with Client.connect(config) as client, simulation(client):
        click.echo("simulating a cluster of two nodes")
        yield
