"""`steersman plan`: what every operator would do if manifests were applied.

    ConfigMaps, Secrets, workloads     reload: what would restart, in which wave and when
    executors and performers           hourglass: the objects that they would become
    zones, records and servers         dns: the RRsets that would change on which server (with --live)
    Services, toolset overrides        toolset: the keys that would change in its ConfigMaps

Each operator answers for its own kinds; this module only asks them and joins their answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.plan_options import PlanOptions, plan_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@click.command()
@plan_options()
def command(ctx: click.Context, options: PlanOptions) -> None:
    """Show what would happen if manifests were applied: restarts, objects of performers, records of zones, toolsets.

    From manifests alone every source among them counts as changed. With --live they are compared with the cluster, and
    workloads of other namespaces are asked whether they use them; what may not be read there is reported. Zones are
    compared with their servers, which needs --live. -l chooses workloads, zones, executors, performers and Services.
    Exit code 0: nothing would change; 3: something would; 1: nothing would, as far as manifests and their namespaces
    could be read.

    \b
    Examples:
      steersman plan -f deploy/
      steersman plan -f deploy/ --live -l app=web
      kustomize build . | steersman plan -f - --live -o json
    """
    import msgspec

    from steersman.cli.hourglass.commands import draw_plan as draw_objects
    from steersman.cli.hourglass.commands import names_of as names_of_objects
    from steersman.cli.manifest_files import read_manifests
    from steersman.cli.output import show
    from steersman.cli.reload.plan import draw, forecast_of, names_of

    found = read_manifests(options.names)
    made = forecast_of(found, options)
    manifests = [manifest for _, manifest in found.objects]
    objects = _hourglass(_of(manifests, "hourglass"), options)
    rows, problems = _dns(_of(manifests, "dns"), options)
    keys, unseen = _toolset(found.objects, options)
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    for text in unseen:
        click.echo(f"warning: {text}", err=True)

    def table(to: Any) -> None:
        from steersman.cli.dns.commands import draw_plan as draw_zones
        from steersman.cli.toolset.commands import draw_plan as draw_keys

        shown: list[tuple[Callable[..., None], list[Any], dict[str, Any]]] = [
            (draw_objects, objects, {"complete": not found.problems}),
            (draw_zones, rows, {}),
            (draw_keys, keys, {}),
        ]
        asked = made.changes or made.unaffected or made.problems or not (objects or rows or keys)
        if asked:
            draw(to, made, live=options.live)
        for number, (drawn, part, arguments) in enumerate(row for row in shown if row[1]):
            if asked or number:
                to.print()
            drawn(to, part, **arguments)

    parts = (("hourglass", objects), ("dns", rows), ("toolset", keys))
    further = {name: part for name, part in parts if part}
    show(
        {**msgspec.to_builtins(made), **further} if further else made,
        options.output,
        table,
        names=lambda: [
            *names_of(made),
            *names_of_objects(objects),
            *(row.zone for row in rows),
            *(f"configmap/{row.configmap}" for row in keys),
        ],
    )
    changes = bool(made.changes or keys) or any(line.action != "keep" for line in (*objects, *rows))
    wrong = bool(found.problems or made.problems or problems or unseen) or any(
        line.action in {"invalid", "unreachable"} for line in (*objects, *rows)
    )
    ctx.exit(exit_code(found=changes, error=wrong and not changes))


def _of(manifests: Sequence[dict[str, Any]], operator: str) -> list[dict[str, Any]]:
    """The manifests of an operator's own kinds."""
    from steersman.operators import load_operator

    own = {(kind.KIND.group, kind.KIND.kind) for kind in load_operator(operator).kinds}
    return [
        manifest
        for manifest in manifests
        if (str(manifest.get("apiVersion", "")).partition("/")[0], manifest.get("kind")) in own
    ]


def _hourglass(manifests: list[dict[str, Any]], options: PlanOptions) -> list[Any]:
    if not manifests:
        return []
    from steersman.cli.hourglass.commands import plan_of

    return plan_of(manifests, options)


def _toolset(manifests: Sequence[tuple[str, dict[str, Any]]], options: PlanOptions) -> tuple[list[Any], list[str]]:
    """The keys that would change in the toolset ConfigMaps, and what could not be read."""
    from steersman.cli.toolset.commands import plan_of
    from steersman.errors import ConfigError
    from steersman.kube.api.errors import Forbidden

    try:
        return plan_of(manifests, options), []
    except (Forbidden, ConfigError) as error:
        return [], [f"unknown whether the toolset would change: {error}"]


def _dns(manifests: list[dict[str, Any]], options: PlanOptions) -> tuple[list[Any], list[str]]:
    """The rows of the dns plan, and what is wrong with the manifests."""
    if not manifests:
        return [], []
    if not options.live:
        click.echo("note: zones are compared with their servers; --live does that", err=True)
        return [], []
    from steersman.cli.dns.commands import differences_of

    where = (options.kubeconfig, options.context, options.namespace)
    _, rows, problems = differences_of((), manifests, *where, options.selector)
    return rows, problems
