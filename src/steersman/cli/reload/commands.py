"""`steersman reload …`: restarts by hand and their history. Commands are imported when asked for."""

from __future__ import annotations

import importlib
from typing import Final

import click

from steersman.cli.suggestions import SuggestingGroup

PROFILE: Final = "steersman.reload.profile"

# name -> module and name of the click command, one line for --help
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "plan": ("steersman.cli.reload.plan", "command", "Show what would restart if manifests were applied."),
    "why": ("steersman.cli.reload.why", "command", "Explain what restarts a workload, and why it did not restart."),
    "audit": ("steersman.cli.reload.audit", "command", "List pods that may run an outdated configuration."),
    "graph": ("steersman.cli.reload.graph", "command", "Draw which workloads restart when which sources change."),
    "approve": ("steersman.cli.reload.marks", "approve", "Approve the current change of a source."),
    "freeze": ("steersman.cli.reload.marks", "freeze", "Stop restarts for a workload, a source or a namespace."),
    "thaw": ("steersman.cli.reload.marks", "thaw", "Lift a freeze."),
    "trigger": ("steersman.cli.reload.trigger", "trigger", "Restart a workload now, with its sources as they are."),
    "shadow": ("steersman.cli.reload.shadow", "shadow", "Report what a process with --shadow has compared."),
    "replay": ("steersman.cli.reload.replay", "replay", "Run a hook on past restarts."),
    "history": ("steersman.cli.reload.history", "history", "List past restarts with cause and outcome."),
}


class _Group(SuggestingGroup):
    """Knows its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With --profile everything belongs to the program that it names."""
        if any(word == "--profile" or word.startswith("--profile=") for word in args):
            ctx.meta[PROFILE] = list(args)
            return super().parse_args(ctx, [])
        return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: click.Context) -> object:
        if PROFILE not in ctx.meta:
            return super().invoke(ctx)
        from steersman.cli.reload.profile import profile_command

        with profile_command.make_context(ctx.info_name, ctx.meta[PROFILE], parent=ctx.parent) as inner:
            return profile_command.invoke(inner)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in sorted(COMMANDS.items())])


@click.group("reload", cls=_Group, invoke_without_command=True)
@click.option(
    "--profile", metavar="NAME", help="Run in the place of shipshape, xing, reloader or wave, with its flags."
)
def command(profile: str | None) -> None:
    """Approve, freeze, trigger and list restarts; or, with --profile, run in the place of another program."""
