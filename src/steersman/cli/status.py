"""`steersman status`: what a running process is doing, asked from its own API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from steersman.cli.output import console, output_option, print_table, show

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from steersman.web.model import Change, Health, Now, OperatorTables, Status, WorkloadNode

__all__ = ["command"]

DEFAULT_URL = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 10.0
PAUSE_SECONDS = 2.0


@click.command("status")
@click.option(
    "--url", envvar="STEERSMAN_URL", default=DEFAULT_URL, show_default=True, help="Where the process listens."
)
@click.option("--token", envvar="STEERSMAN_TOKEN", help="A token, for a process that runs with --page token.")
@click.option("-w", "--watch", is_flag=True, help="Look again every two seconds, until interrupted.")
@output_option()
@click.pass_context
def command(ctx: click.Context, url: str, token: str | None, watch: bool, output: str) -> None:
    """Show what a running process is doing.

    Controllers and queues, watches and how long ago each was heard, who leads, what waits, which circuits are open, and
    the tables of every operator. The exit code is 3 when something needs a person: the process is not ready, a key
    keeps failing, hangs or writes every time, a source or a mapping has a problem, a rollout failed, a circuit is open,
    or a change waits for approval.

    \b
    Examples:
      steersman status
      steersman status --watch
      steersman status --url http://127.0.0.1:9090 -o json
      kubectl -n steersman port-forward deploy/steersman 8080 & steersman status
    """
    if watch:
        _watch(url, token, output)
        return
    status = _ask(url, token)
    show(status, output, lambda to: _draw(to, status))
    if _needs_a_person(status):
        ctx.exit(3)


def _ask(url: str, token: str | None) -> Status:
    """The answer of the process; SteersmanError says what to do when there is none."""
    import urllib.error
    import urllib.request

    import msgspec

    from steersman.errors import ConfigError, SteersmanError
    from steersman.web.model import Problem, Status

    if not url.startswith(("http://", "https://")):
        raise ConfigError(f'"{url}" is not an address (try {DEFAULT_URL})', field="--url")
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"{url.rstrip('/')}/api/v1/status", headers=headers)  # noqa: S310  checked above
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            told = error.read()
        try:
            why = msgspec.json.decode(told, type=Problem).error
        except msgspec.DecodeError:
            why = "there is something else (or it runs with --page off)"
        raise SteersmanError(f"{url} answers {error.code}: {why}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SteersmanError(
            f"nothing answers at {url} ({reason}): is `steersman run` up, and does it --listen there? (try --url)"
        ) from None
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        raise SteersmanError(f"{url} answers, but not as a Steersman of this version does") from None


def _needs_a_person(status: Status) -> bool:
    now = status.now
    return not now.ready or bool(status.health.vitals.warnings or now.failed or now.circuits or now.approvals)


def _watch(url: str, token: str | None, output: str) -> None:
    from steersman.errors import SteersmanError

    to = console()
    while True:
        try:
            status = _ask(url, token)
            if to.is_terminal and output == "table":
                to.clear()
            show(status, output, lambda drawn, status=status: _draw(drawn, status))  # type: ignore[misc]
        except SteersmanError as error:  # it may come back
            click.echo(f"error: {error}", err=True)
        time.sleep(PAUSE_SECONDS)


# -- drawing ---------------------------------------------------------------------------------------------------------


def _draw(to: Console, status: Status) -> None:
    from steersman.web.pages.pieces import duration

    now, health = status.now, status.health
    who = health.vitals.leadership
    acts = "leads" if who.leading else f"stands by for {who.leader or 'nobody'}"
    up = duration((health.at - health.vitals.started).total_seconds())
    to.print(f"steersman {health.vitals.version} {acts}, up {up}, {'ready' if now.ready else 'NOT READY'}")
    for check in now.problems:
        to.print(f"  {check.name}: {check.problem}", style="red")
    for warning in health.vitals.warnings:
        to.print(f"  {warning}", style="yellow")
    if now.counts:
        to.print("workloads  " + "  ".join(f"{count} {word}" for word, count in now.counts.items()))
    _controllers(to, health)
    _watches(to, health)
    _waiting(to, now)
    _recent(to, now)
    for operator in status.operators.operators:
        if operator.name != "reload":  # the same things, and they stand above
            _tables(to, operator)


def _controllers(to: Console, health: Health) -> None:
    _section(
        to,
        "Controllers",
        ("controller", "running", "ready", "waiting", "done", "failed", "retries", "reconcile"),
        [
            (
                one.name if one.synced else f"{one.name} (not synced)",
                f"{one.running}/{one.workers}",
                one.ready,
                one.waiting,
                one.succeeded,
                one.failed,
                one.retries,
                "" if one.mean_seconds is None else f"{1000 * one.mean_seconds:.1f} ms",
            )
            for one in health.vitals.controllers
        ],
    )


def _watches(to: Console, health: Health) -> None:
    _section(
        to,
        "Watches",
        ("watch", "objects", "heard", "state"),
        [
            (
                one.name,
                one.objects,
                "never" if one.age_seconds is None else f"{one.age_seconds:.0f} s ago",
                one.problem or ("synced" if one.synced else "not synced"),
            )
            for one in health.vitals.watches
        ],
    )


def _waiting(to: Console, now: Now) -> None:
    from steersman.web.pages.pieces import duration

    def due(node: WorkloadNode) -> str:
        return "" if node.due is None else f"in {duration((node.due - now.at).total_seconds())}"

    def progress(node: WorkloadNode) -> str:
        return "" if node.rollout is None else f"{node.rollout.ready} of {node.rollout.wanted} ready"

    lists: tuple[tuple[str, Sequence[WorkloadNode], Callable[[WorkloadNode], str]], ...] = (
        ("Failed rollouts", now.failed, progress),
        ("Open circuits", now.circuits, due),
        ("Waiting for approval", now.approvals, lambda node: node.approval.command if node.approval else ""),
        ("Pending", now.pending, due),
        ("Rolling out", now.rollouts, progress),
        ("Held back", now.held, due),
    )
    for title, nodes, end in lists:
        rows = [(node.id, _sources(node.changes), _why(node), end(node)) for node in nodes]
        _section(to, title, ("workload", "for", "why", ""), rows)


def _recent(to: Console, now: Now) -> None:
    from steersman.web.pages.pieces import duration

    rows = [
        (
            f"{duration((now.at - one.at).total_seconds())} ago",
            one.workload,
            _sources(one.changes),
            f"{one.outcome.value}: {one.note}" if one.note else one.outcome.value,
        )
        for one in now.recent
    ]
    _section(to, "Last restarts", ("when", "workload", "for", "outcome"), rows)


def _sources(changes: Sequence[Change]) -> str:
    return " ".join(f"{one.source}#{','.join(one.keys)}" if one.keys else one.source for one in changes)


def _why(node: WorkloadNode) -> str:
    return node.rollout.note or node.reason if node.rollout is not None else node.reason


def _tables(to: Console, operator: OperatorTables) -> None:
    for table in operator.tables:
        rows = [(*row.cells, row.state.value, "" if row.note in row.cells else row.note) for row in table.rows]
        _section(to, f"{operator.name}: {table.title}", (*table.columns, "state", ""), rows)


def _section(to: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        to.print(f"\n{title}", style="bold")
        print_table(to, columns, rows)
