"""`steersman reload plan`: what would restart if these manifests were applied, and what would not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import ExitCode
from steersman.cli.plan_options import PlanOptions, plan_options

if TYPE_CHECKING:
    from rich.console import Console

    from steersman.cli.manifest_files import Manifests
    from steersman.operators.reload.inspect.forecast import Forecast


@click.command()
@plan_options()
def command(ctx: click.Context, options: PlanOptions) -> None:
    """Say what would restart if manifests were applied, in which wave and when, and what would not and why.

    From manifests alone every source among them counts as changed. With --live they are compared with the cluster, and
    workloads of other namespaces are asked whether they use them; what may not be read there is reported. Exit code 0:
    nothing would restart; 3: something would; 1: nothing would, as far as manifests and their namespaces could be read.

    \b
    Examples:
      steersman reload plan -f deploy/
      kustomize build . | steersman reload plan -f - --live -o json
    """
    from steersman.cli.manifest_files import read_manifests
    from steersman.cli.output import show

    found = read_manifests(options.names)
    made = forecast_of(found, options)
    show(made, options.output, lambda console: draw(console, made, live=options.live), names=lambda: names_of(made))
    failed = found.problems or made.problems
    ctx.exit(ExitCode.FOUND if made.changes else ExitCode.ERROR if failed else ExitCode.OK)


def forecast_of(found: Manifests, options: PlanOptions) -> Forecast:
    """What would restart if these manifests were applied, of the workloads with these labels."""
    import asyncio
    import time

    from steersman.cli.reload.inspection import connected, reload_options

    settings, namespace = reload_options(options.config, options.dialects), options.namespace
    if not options.live:
        return _offline(settings, found, namespace or "default", options.selector, time.time())
    connecting = connected(options.kubeconfig, options.context)
    return asyncio.run(_live(connecting, settings, found, namespace, time.time(), options.selector))


def names_of(made: Forecast) -> list[str]:
    """The workloads that would restart, for -o name."""
    return [str(planned.workload) for planned in made.changes]


def _offline(options: Any, found: Any, namespace: str, selector: str, now: float) -> Forecast:
    from steersman.cli.reload.inspection import note_dialects_off
    from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
    from steersman.operators.reload.inspect.forecast import forecast, with_problems
    from steersman.operators.reload.inspect.offline import OfflineInspection
    from steersman.operators.reload.sources.csi import ProviderStatus
    from steersman.operators.reload.workloads.kinds import BUILT_IN

    ours = (ReloadPolicy.KIND, ClusterReloadPolicy.KIND, ProviderStatus.KIND)
    after = OfflineInspection(options, served=[*(rule.kind for rule in BUILT_IN), *ours])
    applied, problems = _add_all(after, found, namespace)
    note_dialects_off(after)
    return with_problems(forecast(after, now, applied=applied, selector=selector), problems)


async def _live(
    connecting: Any, options: Any, found: Any, namespace: str | None, now: float, selector: str = ""
) -> Forecast:
    from steersman.cli.reload.inspection import inspect_cluster, note_dialects_off, users_elsewhere
    from steersman.operators.reload.inspect.forecast import ManifestProblem, forecast, with_problems, with_unseen

    async with connecting as client:
        home = namespace or client.namespace
        own = {str(manifest["metadata"].get("namespace") or home) for _, manifest in found.objects}
        others, unseen = await users_elsewhere(client, options, own)
        spaces = sorted(own | others)
        before, after = await inspect_cluster(client, options, spaces, copies=2, as_far_as_allowed=True)
    applied, problems = _add_all(after, found, home, over=before)
    note_dialects_off(after)
    problems += [ManifestProblem("cluster", text) for text in before.unread]
    made = with_problems(forecast(after, now, before=before, applied=applied, selector=selector), problems)
    return with_unseen(made, [*unseen, *before.unseen])


def _add_all(inspection: Any, found: Any, namespace: str, over: Any = None) -> tuple[list[Any], list[Any]]:
    """Put the manifests into the inspection, over what is there; what cannot be read is a problem with its place."""
    from steersman.errors import FormatError
    from steersman.operators.reload.inspect.forecast import ManifestProblem
    from steersman.operators.reload.inspect.offline import is_source

    applied, problems = [], [ManifestProblem(where, message) for where, message in found.problems]
    for where, manifest in sorted(found.objects, key=lambda row: is_source(row[1])):
        try:
            made = inspection.add(manifest if over is None else over.laid_over(manifest, namespace), namespace)
        except FormatError as error:
            problems.append(ManifestProblem(where, str(error)))
            continue
        if made is not None:
            applied.append(made)
    return applied, problems


def draw(console: Console, made: Forecast, *, live: bool) -> None:
    """The answer first, then every workload."""
    from steersman.cli.output import print_table

    for problem in made.problems or ():
        click.echo(f"error: {problem.where}: {problem.message}", err=True)
    for text in made.unseen or ():
        click.echo(f"warning: {text}", err=True)
    console.print(headline(made))
    if not (live or made.changes or made.unaffected or made.problems):
        console.print("no workload among these manifests uses what is in them; --live also asks those of the cluster")
    if made.changes:
        rows = [
            (
                str(planned.workload),
                planned.workload.namespace,
                planned.action,
                planned.wave,
                planned.due,
                _sources(planned),
                planned.reason,
            )
            for planned in made.changes
        ]
        print_table(console, ["workload", "namespace", "action", "wave", "due", "for", "why"], rows)
    if made.unaffected:
        console.print("\nunaffected")
        kept = [
            (str(unaffected.workload), unaffected.workload.namespace, unaffected.reason)
            for unaffected in made.unaffected
        ]
        print_table(console, ["workload", "namespace", "why not"], kept)


def headline(made: Forecast) -> str:
    """The answer in one line; it never says more than what could be read allows."""
    count, unread = len(made.changes), len(made.problems or ()) + len(made.unseen or ())
    rest = f"; {unread} thing{'' if unread == 1 else 's'} could not be read (see above)" if unread else ""
    if count:
        return f"{'at least ' if unread else ''}{count} workload{'' if count == 1 else 's'} would restart{rest}"
    if unread and not made.unaffected:
        return f"unknown whether anything would restart{rest}"
    return f"nothing would restart{f' among what could be read{rest}' if unread else ''}"


def _sources(planned: Any) -> str:
    home = planned.workload.namespace
    return " ".join(
        f"{source.kind.lower()}/{'' if source.namespace == home else f'{source.namespace}/'}{source.name}"
        f"{'#' + ','.join(source.keys) if source.keys else ''}"
        for source in planned.sources
    )
