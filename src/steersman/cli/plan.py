"""`steersman plan`: what would restart if these manifests were applied, and what would not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.operators.reload.forecast import Forecast

__all__ = ["command"]


@click.command()
@click.option("-f", "--filename", "names", multiple=True, required=True, metavar="DIR|FILE|-", help="Manifests.")
@click.option("--live", is_flag=True, help="Compare with the cluster instead of taking every source as changed.")
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@kube_options
@output_option()
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    live: bool,
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Say what would restart if manifests were applied, in which wave and when, and what would not and why.

    From manifests alone every source among them counts as changed. With --live they are compared with the cluster, and
    workloads of other namespaces are asked whether they use them; what may not be seen there is told. Exit code 0:
    nothing would restart; 3: something would; 1: nothing would, as far as manifests and their namespaces could be read.

    \b
    Examples:
      steersman plan -f deploy/
      kustomize build . | steersman plan -f - --live -o json
    """
    import asyncio
    import time

    from steersman.cli.manifestfiles import read_manifests
    from steersman.cli.output import show
    from steersman.cli.settings import load_settings

    options = load_settings(config).sections["reload"].options()
    found = read_manifests(names)
    if live:
        from steersman.cli.surveying import connected

        made = asyncio.run(_live(connected(kubeconfig, context), options, found, namespace, time.time()))
    else:
        made = _offline(options, found, namespace or "default", time.time())
    show(made, output, lambda console: _draw(console, made, live=live))
    ctx.exit(3 if made.changes else 1 if found.problems or made.problems else 0)


def _offline(options: Any, found: Any, namespace: str, now: float) -> Forecast:
    from steersman.operators.reload.forecast import forecast, with_problems
    from steersman.operators.reload.kinds import BUILT_IN
    from steersman.operators.reload.policies import ClusterReloadPolicy, ReloadPolicy
    from steersman.operators.reload.providers import ProviderStatus
    from steersman.operators.reload.survey import Survey

    ours = (ReloadPolicy.KIND, ClusterReloadPolicy.KIND, ProviderStatus.KIND)
    after = Survey(options, served=[*(rule.kind for rule in BUILT_IN), *ours])
    applied, problems = _add_all(after, found, namespace)
    return with_problems(forecast(after, now, applied=applied), problems)


async def _live(connecting: Any, options: Any, found: Any, namespace: str | None, now: float) -> Forecast:
    from steersman.cli.surveying import surveyed, users_elsewhere
    from steersman.operators.reload.forecast import Problem, forecast, with_problems, with_unseen

    async with connecting as client:
        home = namespace or client.namespace
        own = {str(one["metadata"].get("namespace") or home) for _, one in found.objects}
        others, unseen = await users_elsewhere(client, options, own)
        spaces, manifests = sorted(own | others), [manifest for _, manifest in found.objects]
        reading = surveyed(client, options, spaces, copies=2, expecting=manifests, as_far_as_allowed=True)
        before, after = await reading
    applied, problems = _add_all(after, found, home, over=before)
    problems += [Problem("cluster", text) for text in before.unread]
    made = with_problems(forecast(after, now, before=before, applied=applied), problems)
    return with_unseen(made, [*unseen, *before.unseen])


def _add_all(survey: Any, found: Any, namespace: str, over: Any = None) -> tuple[list[Any], list[Any]]:
    """Put the manifests into the survey, over what is there; what cannot be read is a problem with its place."""
    from steersman.errors import FormatError
    from steersman.operators.reload.forecast import Problem
    from steersman.operators.reload.survey import is_source

    applied, problems = [], [Problem(where, message) for where, message in found.problems]
    for where, manifest in sorted(found.objects, key=lambda row: is_source(row[1])):
        try:
            made = survey.add(manifest if over is None else over.laid_over(manifest, namespace), namespace)
        except FormatError as error:
            problems.append(Problem(where, str(error)))
            continue
        if made is not None:
            applied.append(made)
    return applied, problems


def _draw(console: Console, made: Forecast, *, live: bool) -> None:
    from steersman.cli.output import print_table

    for problem in made.problems or ():
        click.echo(f"error: {problem.where}: {problem.message}", err=True)
    for text in made.unseen or ():
        click.echo(f"warning: {text}", err=True)
    count = len(made.changes)
    console.print(f"{count} workload{'' if count == 1 else 's'} would restart" if count else "nothing would restart")
    if not (live or count or made.unaffected):
        console.print("no workload among these manifests uses what is in them; --live also asks those of the cluster")
    if made.changes:
        rows = [
            (str(one.workload), one.workload.namespace, one.action, one.wave, one.due, _sources(one), one.reason)
            for one in made.changes
        ]
        print_table(console, ["workload", "namespace", "action", "wave", "due", "for", "why"], rows)
    if made.unaffected:
        console.print("\nunaffected")
        kept = [(str(one.workload), one.workload.namespace, one.reason) for one in made.unaffected]
        print_table(console, ["workload", "namespace", "why not"], kept)


def _sources(planned: Any) -> str:
    home = planned.workload.namespace
    return " ".join(
        f"{one.kind.lower()}/{'' if one.namespace == home else f'{one.namespace}/'}{one.name}"
        f"{'#' + ','.join(one.keys) if one.keys else ''}"
        for one in planned.sources
    )
