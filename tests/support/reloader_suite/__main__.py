"""The command line of `make reloader`: runs the suites, prints a table, and writes it into the migration guide."""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from steersman.errors import SteersmanError
from tests.support.reloader_suite.cluster import Candidate, SuiteCluster
from tests.support.reloader_suite.suites import SUITES, Built, build, run_suite

PAGE = Path(__file__).parents[3] / "docs" / "migrating" / "reloader.md"
ATTEMPTS = 2  # a spec reads the annotation after its change, and waits in vain when the restart was faster
ROW = r"^\| `{suite}` \| (?P<total>.*) \| (?P<reloader>.*) \| (?P<steersman>.*) \|$"


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    names: tuple[str, ...]
    candidate: str
    focus: str = ""
    attempts: int = ATTEMPTS
    record: bool = False
    keep: Path | None = None


@click.command()
@click.option("--suite", "names", multiple=True, type=click.Choice(SUITES), help="Only this one. [default: all]")
@click.option(
    "--with", "candidate", type=click.Choice(["steersman", "reloader"]), default="steersman", help="What runs."
)
@click.option("--focus", default="", help="Only specs whose name matches this regular expression.")
@click.option("--attempts", type=click.IntRange(1), default=ATTEMPTS, show_default=True, help="Tries of a spec.")
@click.option("--record", is_flag=True, help="Write the numbers into docs/migrating/reloader.md.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep logs and reports there.")
def main(**options: Any) -> None:
    """Run Reloader's end-to-end suites, built from its published module.

    Exit code 3: a spec failed.
    """
    if options["record"] and options["focus"]:
        raise click.UsageError("--record needs whole suites: leave out --focus")
    try:
        failures = asyncio.run(run(build(), Options(**options)))
    except SteersmanError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    sys.exit(3 if failures else 0)


async def run(built: Built, options: Options) -> int:
    """Run each suite on a cluster of its own; how many specs failed."""
    program = Path(sys.executable).with_name("steersman")
    candidate = {
        "steersman": Candidate(command=(str(program), "reload", "--profile", "reloader")),
        "reloader": Candidate(command=(str(built.reloader),), port=9090),
    }[options.candidate]
    failures = 0
    for suite in options.names or SUITES:
        with tempfile.TemporaryDirectory(prefix="reloader-suite-") as scratch:
            folder = options.keep / f"{options.candidate}-{suite}" if options.keep else Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            async with SuiteCluster(candidate, built.definitions, folder) as cluster:
                specs = await run_suite(built, suite, cluster, options.focus, options.attempts)
        specs = {spec: status for spec, status in specs.items() if status != "skipped"}
        failed = sorted(spec for spec, status in specs.items() if status != "passed")
        passed = len(specs) - len(failed)
        click.echo(f"{suite}: {passed} of {len(specs)} passed with {options.candidate}")
        for spec in failed:
            click.echo(f"  {specs[spec]}: {spec}")
        failures += len(failed)
        if options.record:
            PAGE.write_text(record(PAGE.read_text(), suite, total=len(specs), **{options.candidate: passed}))
    return failures


def record(page: str, suite: str, **numbers: int) -> str:
    """The page with these numbers in the row of the suite; numbers of the other program stay."""
    found = re.search(ROW.format(suite=suite), page, re.MULTILINE)
    assert found, f"{PAGE.name} has no row of {suite}"
    row = found.groupdict() | numbers
    text = f"| `{suite}` | {row['total']} | {row['reloader']} | {row['steersman']} |"
    return page[: found.start()] + text + page[found.end() :]


if __name__ == "__main__":
    main(prog_name="python -m tests.support.reloader_suite")
