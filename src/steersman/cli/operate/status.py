"""`steersman status`: what a running process is doing, read from its API.

Which process: the one that --url names; otherwise one that listens on this machine; otherwise the leader in the
cluster, found by its Lease and reached through the API server, as `kubectl port-forward` does.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import ExitCode
from steersman.cli.kube_options import kube_options
from steersman.cli.output import console, output_option, print_hanging, print_table, show
from steersman.errors import ConfigError, SteersmanError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console

    from steersman.kube.api.types.pods import Pod
    from steersman.runtime.manager.operator_bundle import RowProblem
    from steersman.runtime.manager.operator_report import OperatorReport
    from steersman.web.model import (
        ChangedSource,
        Now,
        ProcessHealth,
        StatusReport,
        WatchHealth,
        WorkloadNode,
    )

DEFAULT_URL = "http://127.0.0.1:8080"
LEASE = "steersman"  # its name and its namespace, as the chart and `steersman manifests` have them
PORT = 8080
TIMEOUT_SECONDS = 10.0
PAUSE_SECONDS = 2.0


@click.command("status")
@click.option(
    "--url",
    envvar="STEERSMAN_URL",
    help=f"Where the process listens.  [default: {DEFAULT_URL}; if nothing listens there, the leader in the cluster]",
)
@click.option(
    "--lease", metavar="[NAMESPACE/]NAME", help=f"Ask the pod that holds this Lease.  [default: {LEASE}/{LEASE}]"
)
@click.option("--token", envvar="STEERSMAN_TOKEN", help="A token, for a process that runs with --page token.")
@click.option("-w", "--watch", is_flag=True, help="Refresh every two seconds, until interrupted.")
@kube_options
@output_option()
@click.pass_context
def command(
    ctx: click.Context,
    /,
    url: str | None,
    lease: str | None,
    token: str | None,
    watch: bool,
    output: str,
    **cluster: Any,
) -> None:
    """Show what a running process is doing.

    First what needs attention, each with its next step; then every operator in one line, controllers and queues,
    watches and the age of their last event, and the tables of every operator. The exit code is 3 when something needs
    attention: the process is not ready, a key keeps failing, hangs or writes every time, an object of an operator is
    failing or unknown, a rollout failed, a circuit is open, or a change waits for approval.

    Without --url, a process on this machine is asked. If none listens, or if an option names a cluster, a namespace or
    a Lease, the leader is asked through the API server, which takes the rights to get its Lease and its pod and to
    forward a port of the pod.

    \b
    Examples:
      steersman status
      steersman status --watch -n steersman --token TOKEN
      steersman status --url http://127.0.0.1:9090 -o json
    """
    written = click.core.ParameterSource.COMMANDLINE
    named = lease is not None or any(ctx.get_parameter_source(name) is written for name in cluster)
    ask = partial(_ask, url or DEFAULT_URL, token)
    if url is None:
        ask = partial(_ask_leader_or, None if named else ask, lease or LEASE, token, cluster)
    if watch:
        _watch(ask, output)
        return
    status = ask()
    show(status, output, lambda to: _draw(to, status))
    if _needs_attention(status):
        ctx.exit(ExitCode.FOUND)


class NothingListens(SteersmanError):  # noqa: N818  says what happened
    """Nothing answers at an address."""


def _ask_leader_or(
    local: Callable[[], StatusReport] | None, lease: str, token: str | None, cluster: dict[str, Any]
) -> StatusReport:
    """The answer of a process on this machine when one listens, else of the leader in the cluster."""
    import asyncio

    away = ""
    if local is not None:
        try:
            return local()
        except NothingListens:
            away = f"nothing answers at {DEFAULT_URL}, and "
    try:
        return asyncio.run(_ask_leader(lease, token, **cluster))
    except ConfigError as error:
        raise SteersmanError(f"{away}{error}") from None


async def _ask_leader(
    lease: str, token: str | None, kubeconfig: Path | None, context: str | None, namespace: str | None
) -> StatusReport:
    """The answer of the pod that holds a Lease, through the API server."""
    import asyncio

    from steersman.cli.reload.inspection import connected
    from steersman.kube.api.errors import NotFound
    from steersman.kube.api.types.coordination import Lease
    from steersman.kube.api.types.pods import Pod

    home, _, name = lease.rpartition("/")
    home = home or namespace or LEASE
    async with connected(kubeconfig, context) as client:
        try:
            holder = (await client.get(Lease, name, namespace=home)).spec.holder_identity or ""
        except NotFound:
            raise ConfigError(
                f"there is no Lease {home}/{name} (try --lease NAMESPACE/NAME, or --url ADDRESS)", field="--lease"
            ) from None
        pod = holder.rpartition("_")[0]
        if not pod:
            raise ConfigError(f"no pod holds the Lease {home}/{name} (is Steersman running there?)", field="--lease")
        try:
            port = _port_of(await client.get(Pod, pod, namespace=home))
        except NotFound:
            raise ConfigError(
                f"{holder} holds the Lease {home}/{name} and is not a pod there (try --url ADDRESS)", field="--lease"
            ) from None
        async with client.port_forward(pod, port, namespace=home) as forward:
            where = f"pod/{pod} in {home}"
            try:
                return await asyncio.to_thread(_ask, f"http://127.0.0.1:{forward.port}", token, where)
            except NothingListens:
                why = forward.error or "the connection was closed"
                raise SteersmanError(
                    f"{where} leads and cannot be reached through the API server: {why} (its page is at --url ADDRESS)"
                ) from None


def _port_of(pod: Pod) -> int:
    """The port of the page: the one named http, as the chart names it."""
    ports = [port for container in pod.spec.containers or () for port in container.ports or ()]
    return next((port.container_port for port in ports if port.name == "http"), PORT)


def _ask(url: str, token: str | None, where: str = "") -> StatusReport:
    """The answer of the process; SteersmanError says what to do when there is none, and calls the process `where`."""
    import urllib.error
    import urllib.request

    import msgspec

    from steersman.web.model import ApiProblem, StatusReport

    where = where or url
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f'"{url}" is not an address (try {DEFAULT_URL})', field="--url")
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"{url.rstrip('/')}/api/v1/status", headers=headers)  # noqa: S310  checked above

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """A redirect is an answer, not an order: following it would show the token to another server."""

        def redirect_request(self, *_: object) -> None:
            return None

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
        try:
            why = msgspec.json.decode(body, type=ApiProblem).error
        except msgspec.DecodeError:
            why = "not the API of a Steersman process (or it runs with --page off)"
        why += " (--token)" if error.code == 401 else ""
        raise SteersmanError(f"{where} answers {error.code}: {why}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise NothingListens(
            f"nothing answers at {where} ({reason}): is `steersman run` up, and does it --listen there? (try --url)"
        ) from None
    try:
        return msgspec.json.decode(body, type=StatusReport)
    except msgspec.DecodeError:
        raise SteersmanError(f"{where} answers, but not as a Steersman of this version does") from None


def _needs_attention(status: StatusReport) -> bool:
    now = status.now
    return not now.ready or bool(now.problems)


def _watch(ask: Callable[[], StatusReport], output: str) -> None:
    to = console()
    while True:
        try:
            status = ask()
            if to.is_terminal and output in ("table", "wide"):
                to.clear()
            show(status, output, lambda drawn, status=status: _draw(drawn, status))  # type: ignore[misc]
        except SteersmanError as error:  # it may come back
            click.echo(f"error: {error}", err=True)
        time.sleep(PAUSE_SECONDS)


# -- drawing ---------------------------------------------------------------------------------------------------------


def _draw(to: Console, status: StatusReport) -> None:
    from steersman.web.pages.components import duration

    now, health = status.now, status.health
    who = health.vitals.leadership
    acts = "" if not who.elected else "leader, " if who.leading else f"standby (leader: {who.leader or 'none'}), "
    up = duration((health.at - health.vitals.started).total_seconds())
    to.print(f"steersman {health.vitals.version}: {acts}up {up}, {'ready' if now.ready else 'NOT READY'}")
    for problem in now.problems:
        _problem(to, problem)
    rows = [(operator.name, operator.state.word, operator.headline) for operator in now.operators]
    _section(to, "Operators", ("operator", "state", "summary"), rows)
    _controllers(to, health)
    _watches(to, health)
    _waiting(to, now)
    _recent(to, now)
    for operator in status.operators.operators:
        if operator.name != "reload":  # shown above
            _tables(to, operator)


def _problem(to: Console, problem: RowProblem) -> None:
    from rich.text import Text

    from steersman.cli.output import harmless
    from steersman.text import some_of

    style = _STYLES.get(problem.state, "")
    to.print(Text(harmless(f"{problem.word or problem.state.word}: {some_of(list(problem.objects))}"), style=style))
    print_hanging(to, "  ", problem.message)
    if problem.command:
        print_hanging(to, "  next: ", problem.command)
    if problem.runbook:
        print_hanging(to, "  runbook: ", f"/runbooks/{problem.runbook} on the page")


_STYLES = {"bad": "red", "waiting": "yellow", "unknown": "magenta"}


def _controllers(to: Console, health: ProcessHealth) -> None:
    _section(
        to,
        "Controllers",
        ("controller", "running", "ready", "waiting", "done", "failed", "retries", "reconcile"),
        [
            (
                controller.name if controller.synced else f"{controller.name} (Progressing)",
                f"{controller.running}/{controller.workers}",
                controller.ready,
                controller.waiting,
                controller.succeeded,
                controller.failed,
                controller.retries,
                "" if controller.mean_seconds is None else f"{1000 * controller.mean_seconds:.1f} ms",
            )
            for controller in health.vitals.controllers
        ],
    )


def _watches(to: Console, health: ProcessHealth) -> None:
    _section(
        to,
        "Watches",
        ("watch", "objects", "last event", "state"),
        [
            (
                watch.name,
                "-" if watch.unknown else watch.objects,
                "never" if watch.age_seconds is None else f"{watch.age_seconds:.0f} s ago",
                _state(watch),
            )
            for watch in health.vitals.watches
        ],
    )


def _state(watch: WatchHealth) -> str:
    state, note = watch.state
    return f"{state.word}: {note}" if note else state.word


def _waiting(to: Console, now: Now) -> None:
    from steersman.web.pages.components import duration, pods_of

    def due(node: WorkloadNode) -> str:
        return "" if node.due is None else f"in {duration((node.due - now.at).total_seconds())}"

    def progress(node: WorkloadNode) -> str:
        return "" if node.rollout is None else pods_of(node.rollout)

    nodes = [*now.failed, *now.circuits, *now.approvals, *now.held, *now.pending, *now.rollouts]
    rows = [
        (node.id, node.standing.word, _sources(node.changes), _why(node), due(node) or progress(node)) for node in nodes
    ]
    _section(to, "Workloads that are not current", ("workload", "state", "for", "why", "progress"), rows)


def _recent(to: Console, now: Now) -> None:
    from steersman.web.pages.components import duration

    rows = [
        (
            f"{duration((now.at - restart.at).total_seconds())} ago",
            restart.workload,
            _sources(restart.changes),
            f"{restart.outcome.value}: {restart.note}" if restart.note else restart.outcome.value,
        )
        for restart in now.recent
    ]
    _section(to, "Last restarts", ("when", "workload", "for", "outcome"), rows)


def _sources(changes: Sequence[ChangedSource]) -> str:
    return " ".join(f"{change.source}#{','.join(change.keys)}" if change.keys else change.source for change in changes)


def _why(node: WorkloadNode) -> str:
    return node.rollout.note or node.reason if node.rollout is not None else node.reason


def _tables(to: Console, operator: OperatorReport) -> None:
    for table in operator.tables:
        rows = [
            (*row.cells, row.word or row.state.word, "" if row.note in row.cells else row.note) for row in table.rows
        ]
        columns = (*table.columns, "state", *(["note"] if any(row[-1] for row in rows) else []))
        _section(to, f"{operator.name}: {table.title}", columns, [row[: len(columns)] for row in rows])


def _section(to: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        to.print(f"\n{title}", style="bold")
        print_table(to, columns, rows)
