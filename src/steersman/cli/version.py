"""`steersman version`: of this program, of Python, and of the cluster that a kubeconfig names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command("version")
@click.option("--client", is_flag=True, help="Ask no cluster.")
@kube_options
@output_option()
def command(client: bool, kubeconfig: Path | None, context: str | None, namespace: str | None, output: str) -> None:
    """Print the version of Steersman, of Python and of the cluster.

    A cluster that cannot be asked is reported, and is not an error.

    \b
    Examples:
      steersman version
      steersman version --client -o json
    """
    import platform

    from steersman.cli.output import print_fields, show
    from steersman.web.health import own_version

    del namespace  # the version of a cluster is the same in all of them

    versions = {"steersman": own_version(), "python": platform.python_version()}
    if not client:
        versions["cluster"] = _cluster(kubeconfig, context)
    show(versions, output, lambda to: print_fields(to, list(versions.items())))


def _cluster(kubeconfig: Path | None, context: str | None) -> str:
    import asyncio

    from steersman.cli.kube_options import cluster_config
    from steersman.errors import SteersmanError
    from steersman.kube.client.client import Client

    async def ask(config: Any) -> str:
        async with Client.connect(config) as found:
            answer: Any = await found.with_options(retry=False, timeout=5.0).discovery.version()
            return str(answer.git_version)

    try:
        return asyncio.run(ask(cluster_config(kubeconfig, context)))
    except SteersmanError as error:
        return f"unknown: {error}"
