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
from steersman.cli.kube_options import kube_options, selector_option
from steersman.cli.output import output_option
from steersman.cli.reload.inspection import settings_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@click.command()
@click.option("-f", "--filename", "names", multiple=True, required=True, metavar="DIR|FILE|-", help="Manifests.")
@click.option("--live", is_flag=True, help="Compare with the cluster instead of taking every source as changed.")
@selector_option
@settings_options
@kube_options
@output_option("name")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    live: bool,
    selector: str,
    config: Path | None,
    dialects: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
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
    from steersman.cli.reload.inspection import reload_options
    from steersman.cli.reload.plan import draw, forecast_of, names_of

    found = read_manifests(names)
    where = (kubeconfig, context, namespace, selector)
    made = forecast_of(found, reload_options(config, dialects), *where, live=live)
    manifests = [manifest for _, manifest in found.objects]
    objects = _hourglass(_of(manifests, "hourglass"), config, *where, live=live)
    rows, problems = _dns(_of(manifests, "dns"), *where, live=live)
    keys, unseen = _toolset(found.objects, config, *where, live=live)
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    for text in unseen:
        click.echo(f"warning: {text}", err=True)

    def table(to: Any) -> None:
        from steersman.cli.dns.commands import draw_plan as draw_zones
        from steersman.cli.toolset.commands import draw_plan as draw_keys

        shown: list[tuple[Any, Any, dict[str, Any]]] = [
            (draw_objects, objects, {"complete": not found.problems}),
            (draw_zones, rows, {}),
            (draw_keys, keys, {}),
        ]
        asked = made.changes or made.unaffected or made.problems or not (objects or rows or keys)
        if asked:
            draw(to, made, live=live)
        for number, (drawn, part, options) in enumerate(row for row in shown if row[1]):
            if asked or number:
                to.print()
            drawn(to, part, **options)

    parts = (("hourglass", objects), ("dns", rows), ("toolset", keys))
    further = {name: part for name, part in parts if part}
    show(
        {**msgspec.to_builtins(made), **further} if further else made,
        output,
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


def _hourglass(
    manifests: list[dict[str, Any]],
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    selector: str,
    *,
    live: bool,
) -> list[Any]:
    if not manifests:
        return []
    from steersman.cli.hourglass.commands import plan_of

    return plan_of(manifests, config, kubeconfig, context, namespace, selector, live=live)


def _toolset(
    manifests: Sequence[tuple[str, dict[str, Any]]],
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    selector: str,
    *,
    live: bool,
) -> tuple[list[Any], list[str]]:
    """The keys that would change in the toolset ConfigMaps, and what could not be read."""
    from steersman.cli.toolset.commands import plan_of
    from steersman.errors import ConfigError
    from steersman.kube.api.errors import Forbidden

    try:
        return plan_of(manifests, config, kubeconfig, context, namespace, selector, live=live), []
    except (Forbidden, ConfigError) as error:
        return [], [f"unknown whether the toolset would change: {error}"]


def _dns(
    manifests: list[dict[str, Any]],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    selector: str,
    *,
    live: bool,
) -> tuple[list[Any], list[str]]:
    """The rows of the dns plan, and what is wrong with the manifests."""
    if not manifests:
        return [], []
    if not live:
        click.echo("note: zones are compared with their servers; --live does that", err=True)
        return [], []
    from steersman.cli.dns.commands import differences_of

    _, rows, problems = differences_of((), manifests, kubeconfig, context, namespace, selector)
    return rows, problems
