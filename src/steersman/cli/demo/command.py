"""`steersman demo`: the reload operator at work on an embedded API server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from steersman.cli.exit_codes import ExitCode

RECORDED_WIDTH = 108


@click.command("demo")
@click.option("--stay/--no-stay", default=None, help="Keep everything up afterwards (default: only on a terminal).")
@click.option("--record", type=click.Path(path_type=Path, dir_okay=False), help="Also draw it as an SVG file.")
@click.option("--quiet-period", default="500ms", show_default=True, help="How long two changes count as one.")
def command(stay: bool | None, record: Path | None, quiet_period: str) -> None:
    """Show the reload operator at work: a shop whose configuration changes.

    An API server and a simulated cluster run in this process, the reload operator in one of its own. Nothing is left
    behind. The exit code is 1 when something does not happen as announced.

    \b
    Examples:
      steersman demo
      steersman demo --no-stay --record demo.svg
    """
    from steersman.cli.demo.script import play  # the server and the client are loaded only for those who want to see it
    from steersman.cli.log_format import configure_logging
    from steersman.cli.output import console
    from steersman.errors import FormatError
    from steersman.kube.api.durations import parse_duration

    try:
        parse_duration(quiet_period)
    except FormatError as error:
        raise click.BadParameter(str(error), param_hint="--quiet-period") from None

    if stay is None:
        stay = sys.stdin.isatty() and sys.stdout.isatty()
    configure_logging(level="error")
    out = console()
    if record is not None:
        out.record = True
    try:
        asyncio.run(play(out, stay=stay, quiet=quiet_period))
    except asyncio.CancelledError:  # by SIGTERM; everything has been put away
        sys.exit(ExitCode.TERMINATED)
    if record is not None:
        _draw(out.export_text(styles=True), record)


def _draw(text: str, path: Path) -> None:
    """The same, as a picture of a terminal."""
    import io
    import re

    from rich.console import Console
    from rich.text import Text

    screen = Console(width=RECORDED_WIDTH, record=True, file=io.StringIO(), force_terminal=True)
    screen.print(Text.from_ansi(text.strip("\n")))
    picture = screen.export_svg(title="steersman demo")
    path.write_text(
        re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    )  # fonts of others: pictures load nothing
