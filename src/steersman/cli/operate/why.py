"""`steersman why`: asks the operator that an object belongs to; any other object explains itself by its conditions.

deployment/web            reload: what restarts it, what it waits for, why it did not restart
performer/x executor/x    hourglass: its state, and what each node lacks
www.example.org           dns: which records contribute to a name
service/x                 toolset: why the Service matches a toolset, or why not
dnszone/x, any KIND/NAME  conditions and Events, and for a zone what `steersman dns check` finds
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import complete_workload, kube_options
from steersman.cli.output import output_option
from steersman.cli.reload.inspection import settings_options

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from steersman.kube.client.client import Client

HOURGLASS: Final = frozenset({"performer", "performers", "executor", "executors", "hourglassexecutor"})
SERVICES: Final = frozenset({"service", "services", "svc"})
SHOWN: Final = 5  # Events


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an object says about itself."""

    object: str  # kind/name
    namespace: str
    state: str  # one of the words of the page
    reason: str = ""
    message: str = ""
    conditions: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []  # the latest first
    findings: list[Any] = []  # of a zone
    unseen: list[str] = []  # what could not be read


@click.command()
@click.argument("target", metavar="KIND/NAME|DOMAIN", shell_complete=complete_workload)
@settings_options
@kube_options
@output_option()
@click.pass_context
def command(
    ctx: click.Context,
    target: str,
    config: Path | None,
    dialects: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Explain the state of an object: of a workload, a zone, a performer, or of any other kind.

    A workload: what it restarts for, what is pending, and which rule prevents a restart. A performer or executor: what
    its pods wait for. A domain name: which records contribute to it. A Service: why it matches a toolset, or why not.
    Every other object: its conditions and Events, and for a DNSZone what its servers answer. Exit code 3: the object is
    not ready (0 for workloads).

    \b
    Examples:
      steersman why deploy/web -n shop
      steersman why dnszone/example-org -n dns
      steersman why performer/gpu -n avs -o json
      steersman why www.example.org
      steersman why service/prometheus -n monitoring
    """
    kind, slash, _ = target.partition("/")
    given: dict[str, Any] = {"kubeconfig": kubeconfig, "context": context, "namespace": namespace, "output": output}
    if not slash and "." in target:
        from steersman.cli.dns.commands import why as dns_why

        ctx.invoke(dns_why, name=target, **given)
    elif kind.lower() in HOURGLASS:
        from steersman.cli.hourglass.commands import why as hourglass_why

        name = "performer" if kind.lower().startswith("performer") else "executor"
        ctx.invoke(hourglass_why, target=f"{name}/{target.partition('/')[2]}", **given)
    elif kind.lower() in SERVICES:
        from steersman.cli.toolset.commands import explain

        name = target.partition("/")[2]
        ctx.exit(ctx.invoke(explain, service=name, files=(), config=config, **given))
    elif kind.lower() in _own_words():
        _explain(ctx, target, **given)
    else:
        from steersman.cli.reload.why import command as reload_why

        try:
            ctx.invoke(reload_why, workload=target, config=config, dialects=dialects, **given)
        except click.BadParameter as unknown:  # reload does not restart this kind
            _explain(ctx, target, **given, otherwise=unknown)


def _own_words() -> set[str]:
    """How users name the kinds of our operators."""
    from steersman.operators import OPERATORS, load_operator

    kinds = [kind.KIND for name in OPERATORS for kind in load_operator(name).kinds]
    return {word.lower() for kind in kinds for word in (kind.kind, kind.plural, kind.qualified)}


def _explain(
    ctx: click.Context,
    target: str,
    *,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
    otherwise: click.BadParameter | None = None,
) -> None:
    import asyncio

    from steersman.cli.output import show
    from steersman.cli.reload.inspection import connected, workload_word

    word, name = workload_word(target)
    answer = asyncio.run(_ask(connected(kubeconfig, context), word, name, namespace, otherwise))
    show(answer, output, lambda to: _draw(to, answer))
    ctx.exit(exit_code(found=answer.state != "Ready"))


async def _ask(
    connecting: Client, word: str, name: str, namespace: str | None, otherwise: click.BadParameter | None
) -> ObjectAnswer:
    from steersman.cli.reload.inspection import events_of
    from steersman.runtime.manager.operator_report import state_by_conditions

    async with connecting as client:
        kind = await _kind(client, word)
        if kind is None:
            raise otherwise or click.BadParameter(f'the cluster has no kind "{word}"', param_hint="KIND/NAME")
        home = (namespace or client.namespace) if kind.namespaced else ""
        found: dict[str, Any] = await client.get(kind, name, namespace=home or None)
        unseen: list[str] = []
        events = await events_of(client, home or None, kind.kind, name, unseen=unseen)
        findings = await _findings(client, found, home) if kind.kind == "DNSZone" else []
    status, metadata = found.get("status") or {}, found.get("metadata") or {}
    state, reason, message = state_by_conditions(status, deleting=bool(metadata.get("deletionTimestamp")))
    events.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "", reverse=True)
    return ObjectAnswer(
        object=f"{kind.kind.lower()}/{name}",
        namespace=home,
        state=state.word,
        reason=reason,
        message=message,
        conditions=[condition for condition in status.get("conditions") or () if isinstance(condition, dict)],
        events=events[:SHOWN],
        findings=findings,
        unseen=unseen,
    )


async def _kind(client: Client, word: str) -> Any:
    """The kind that users name so, as kubectl resolves it: singular, plural, short name, or with its group."""
    asked = word.lower()
    for resource in await client.api_resources():
        names = (resource.singular, resource.kind.plural, resource.kind.kind.lower(), *resource.short_names)
        if resource.preferred and (asked in names or asked == resource.kind.qualified):
            return resource.kind
    return None


async def _findings(client: Client, found: dict[str, Any], namespace: str) -> list[Any]:
    from steersman.operators.dns.inspect.offline import ZoneInspection, objects_of

    inspection = ZoneInspection(await objects_of(client), namespace=namespace)
    try:
        zones = inspection.zones([str((found.get("spec") or {}).get("zoneName") or "")])
        return [row for zone in zones for row in await inspection.findings(zone)]
    finally:
        inspection.close()


def _draw(to: Console, answer: ObjectAnswer) -> None:
    from steersman.cli.output import print_table

    where = f" in {answer.namespace}" if answer.namespace else ""
    why = ": ".join(filter(None, (answer.reason, answer.message)))
    to.print(f"{answer.object}{where} is {answer.state.lower()}{f': {why}' if why else ''}")
    for text in answer.unseen:
        click.echo(f"warning: {text}", err=True)
    if answer.conditions:
        rows = [
            tuple(condition.get(field, "") for field in ("type", "status", "reason", "message", "lastTransitionTime"))
            for condition in answer.conditions
        ]
        to.print()
        print_table(to, ["condition", "status", "reason", "message", "since"], rows)
    if answer.findings:
        to.print()
        print_table(to, ["check", "server", "found"], [(row.check, row.server, row.message) for row in answer.findings])
    if answer.events:
        to.print()
        rows = [(event.get("lastTimestamp"), event.get("reason"), event.get("message")) for event in answer.events]
        print_table(to, ["event at", "reason", "message"], rows)
