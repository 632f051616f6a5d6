"""`steersman demo`: a short story on an embedded API server."""

from __future__ import annotations

import asyncio
import sys

import click

__all__ = ["command"]


@click.command("demo")
@click.option("--stay/--no-stay", default=None, help="Keep the server up afterwards (default: only on a terminal).")
def command(stay: bool | None) -> None:
    """Play a short story on an embedded API server."""
    from steersman.cli.story import play  # the server and the client are loaded only for those who want to see it

    if stay is None:
        stay = sys.stdin.isatty() and sys.stdout.isatty()
    asyncio.run(play(stay=stay))
