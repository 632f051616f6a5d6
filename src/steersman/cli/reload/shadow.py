"""`steersman reload shadow`: what a process that runs with --shadow has compared so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.output import output_option, print_table, show

if TYPE_CHECKING:
    from rich.console import Console


@click.command("shadow")
@click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="Where that process listens.")
@output_option()
def shadow(url: str, output: str) -> int:
    """Decisions of ours beside those of the controller that acts.

    Exit code 3 when some differ.

    \b
    Examples:
      steersman run --operators reload --shadow --listen 127.0.0.1:8080
      steersman reload shadow --url http://127.0.0.1:8080
    """
    import asyncio

    from steersman.operators.reload.compat.shadow import ShadowReport

    report = asyncio.run(_fetch(url))
    assert isinstance(report, ShadowReport)

    def table(to: Console) -> None:
        print_table(to, ("agreed", "only ours", "only theirs", "waiting"), [(*report.counts.values(), report.waiting)])
        if report.differences:
            rows = [
                (difference.outcome, difference.namespace, difference.workload, difference.sources, difference.at)
                for difference in report.differences
            ]
            to.print()
            print_table(to, ("outcome", "namespace", "workload", "sources", "at"), rows)

    show(report, output, table)
    return exit_code(found=bool(report.differences))


async def _fetch(url: str) -> Any:
    import aiohttp
    import msgspec

    from steersman.errors import ConfigError
    from steersman.operators.reload.compat.lease_conflict import REPORT
    from steersman.operators.reload.compat.shadow import ShadowReport

    try:
        async with aiohttp.ClientSession() as session, session.get(url.rstrip("/") + REPORT) as answer:
            if answer.status != 200:
                raise ConfigError("the process there does not run with --shadow", where=url)
            return msgspec.json.decode(await answer.read(), type=ShadowReport)
    except aiohttp.ClientError as error:
        raise ConfigError(f"cannot be reached ({error})", where=url) from None
