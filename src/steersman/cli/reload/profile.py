"""`steersman reload --profile NAME`: in the place of another program, with its flags, variables, ports and Lease.

What is not one of the few options below belongs to the original.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


@click.command(
    "reload",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True, "help_option_names": []},
)
@click.option("--profile", required=True, metavar="NAME", help="shipshape, xing, reloader or wave")
@click.option("--shadow", is_flag=True, help="Write nothing: compare with the original, which goes on running.")
@click.option("--dry-run", is_flag=True, help="Write nothing: every write is sent as a dry run.")
@click.option(
    "--listen", metavar="ADDR:PORT", envvar="STEERSMAN_LISTEN", help="Serve there, and not where the original does."
)
@click.option("--also-listen", multiple=True, metavar="ADDR:PORT", help="Serve there too.")
@click.option("--rival", "rivals", multiple=True, metavar="[NS/]LEASE", help="Also respect this Lease.")
@click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--context")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def profile_command(
    profile: str,
    arguments: tuple[str, ...],
    listen: str | None,
    also_listen: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    **flags: Any,
) -> None:
    """Run in the place of another program."""
    from msgspec.structs import replace

    from steersman.cli.core_dumps import keep_memory_private
    from steersman.cli.kube_options import cluster_config
    from steersman.cli.log_format import configure_logging
    from steersman.operators.reload.compat.profiles import read_profile
    from steersman.operators.reload.compat.profiles.process import run_profile
    from steersman.runtime.manager.run import run_main

    read = read_profile(profile, arguments, os.environ)
    if read.answer:
        click.echo(read.answer)
        return
    read = replace(read, listen=listen or read.listen, further_listens=(*read.further_listens, *also_listen))
    configure_logging(level=read.logs.level, form=read.logs.form)
    cluster = cluster_config(kubeconfig, context)
    keep_memory_private()
    run_main(run_profile(read, cluster, **flags))
