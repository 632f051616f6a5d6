"""`steersman controlplane`: a real Kubernetes control plane for working by hand, and the programs tests need.

`up` starts one in the background and returns; `down` ends it; `status` exits with 3 when none is running.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from steersman.cli.exit_codes import exit_code
from steersman.cli.suggestions import SuggestingGroup
from steersman.testing.controlplane.background import BackgroundControlPlane, BackgroundOptions, Running
from steersman.testing.controlplane.binaries import CONTROL_PLANE, HELM, KWOK, GoModule, Progress, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULES = {module.name: module for module in (CONTROL_PLANE, KWOK, HELM)}


@click.group("controlplane", cls=SuggestingGroup)
def command() -> None:
    """Build, start and stop the real control plane: kube-apiserver, etcd and the programs around them."""


@command.command()
@click.option("--full", is_flag=True, help="Run all controllers, the scheduler and a simulated node too.")
@click.option("--apiserver-flag", "flags", multiple=True, metavar="FLAG", help="Hand a flag on to kube-apiserver.")
@click.option(
    "--kubeconfig-out", type=click.Path(dir_okay=False, path_type=Path), help="Write the kubeconfig to this file too."
)
def up(full: bool, flags: tuple[str, ...], kubeconfig_out: Path | None) -> None:
    """Start a control plane in the background.

    \b
    Examples:
      steersman controlplane up
      steersman controlplane up --full
    """
    background = BackgroundControlPlane()
    if (running := background.running()) is None:
        _build([CONTROL_PLANE, KWOK] if full else [CONTROL_PLANE])
        running = background.start(BackgroundOptions(full=full, apiserver_flags=flags))
    else:
        click.echo("already running; `steersman controlplane down` ends it", err=True)
    if kubeconfig_out is not None:
        kubeconfig_out.touch(mode=0o600)
        kubeconfig_out.write_bytes(Path(running.kubeconfig).read_bytes())
    click.echo(_describe(running))
    click.echo(f"\nTo use it:\n  export KUBECONFIG={kubeconfig_out or running.kubeconfig}")
    click.echo(f"  export PATH={find_program('kubectl').parent}:$PATH    # for kubectl")
    click.echo("To end it:\n  steersman controlplane down")


@command.command()
def down() -> None:
    """Stop the control plane in the background.

    \b
    Examples:
      steersman controlplane down
    """
    stopped = BackgroundControlPlane().stop()
    click.echo(f"stopped {stopped.url}" if stopped else "no control plane is running")


@command.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="How to print.",
)
def status(output: str) -> int:
    """Say whether a control plane is running in the background; exit with 3 when none is.

    \b
    Examples:
      steersman controlplane status
    """
    running = BackgroundControlPlane().running()
    match output:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(running)).decode())
        case "yaml":
            click.echo(msgspec.yaml.encode(running).decode(), nl=False)
        case _:
            click.echo(_describe(running) if running else "no control plane is running")
    return exit_code(found=not running)


@command.command()
@click.argument("modules", nargs=-1, type=click.Choice(sorted(_MODULES)))
def build(modules: tuple[str, ...]) -> None:
    """Build the programs ahead of time (the control plane, unless others are named) and say where they are.

    \b
    Examples:
      steersman controlplane build
      steersman controlplane build kwok helm
    """
    for folder in _build([_MODULES[name] for name in modules or ("controlplane",)]):
        click.echo(folder)


def _describe(running: Running) -> str:
    minutes, seconds = divmod(int(time.time() - running.since), 60)
    return "\n".join(
        [
            f"running      Kubernetes {running.version} at {running.url} for {minutes} min {seconds} s",
            f"programs     {', '.join(f'{name} ({pid})' for name, pid in running.processes.items())}",
            f"kubeconfig   {running.kubeconfig}",
            f"files        {running.folder}",
        ]
    )


def _build(modules: list[GoModule]) -> list[Path]:
    folders = []
    for module in modules:
        with _progress() as progress:
            folders.append(module.build(progress))
    return folders


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on a terminal, a line for every tenth elsewhere; nothing at all when nothing is built."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None, visible=False)

        def show(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total or None, visible=True)

        yield show


def _lines() -> Progress:
    shown: set[tuple[str, int]] = set()

    def show(what: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if (what, tenth) not in shown:
            shown.add((what, tenth))
            click.echo(f"{what} {10 * tenth} %" if total else what, err=True)

    return show
