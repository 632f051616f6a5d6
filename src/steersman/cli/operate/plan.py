"""`steersman plan`: what every operator would do if manifests were applied.

    ConfigMaps, Secrets, workloads     reload: what would restart, in which wave and when
    executors and performers           hourglass: the objects that they would become
    zones, records and servers         dns: the RRsets that would change on which server (with --live)

Each operator answers for its own kinds; this module only asks them and joins their answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from steersman.cli.exit_codes import exit_code
from steersman.cli.plan_options import PlanOptions, plan_options

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@plan_options()
def command(ctx: click.Context, options: PlanOptions) -> None:
    """Show what would happen if manifests were applied: restarts, objects of performers, records of zones.

    From manifests alone every source among them counts as changed. With --live they are compared with the cluster, and
    workloads of other namespaces are asked whether they use them; what may not be read there is reported. Zones are
    compared with their servers, which needs --live. Exit code 0: nothing would change; 3: something would; 1: nothing
    would, as far as manifests and their namespaces could be read.

    \b
    Examples:
      steersman plan -f deploy/
      kustomize build . | steersman plan -f - --live -o json
    """
    import msgspec

    from steersman.cli.hourglass.commands import draw_plan as draw_objects
    from steersman.cli.manifest_files import read_manifests
    from steersman.cli.output import show
    from steersman.cli.reload.plan import draw, forecast_of, names_of

    found = read_manifests(options.names)
    made = forecast_of(found, options)
    manifests = [manifest for _, manifest in found.objects]
    objects = _hourglass(_of(manifests, "hourglass"), options)
    rows, problems = _dns(_of(manifests, "dns"), options)
    for problem in problems:
        click.echo(f"error: {problem}", err=True)

    def table(to: Any) -> None:
        from steersman.cli.dns.commands import draw_plan as draw_zones

        if made.changes or made.unaffected or made.problems or not (objects or rows):
            draw(to, made, live=options.live)
        if objects:
            draw_objects(to, objects, complete=not found.problems)
        if rows:
            draw_zones(to, rows)

    further = {name: part for name, part in (("hourglass", objects), ("dns", rows)) if part}
    show(
        {**msgspec.to_builtins(made), **further} if further else made,
        options.output,
        table,
        names=lambda: [*names_of(made), *(line.object for line in objects), *(row.zone for row in rows)],
    )
    changes = bool(made.changes) or any(line.action != "keep" for line in (*objects, *rows))
    wrong = bool(found.problems or made.problems or problems) or any(
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


def _dns(manifests: list[dict[str, Any]], options: PlanOptions) -> tuple[list[Any], list[str]]:
    """The rows of the dns plan, and what is wrong with the manifests."""
    if not manifests:
        return [], []
    if not options.live:
        click.echo("note: zones are compared with their servers; --live does that", err=True)
        return [], []
    from steersman.cli.dns.commands import differences_of

    _, rows, problems = differences_of((), manifests, options.kubeconfig, options.context, options.namespace)
    return rows, problems
