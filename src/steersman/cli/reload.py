"""`steersman reload …`: what people do about restarts. Commands are imported when asked for."""

from __future__ import annotations

import importlib
from typing import Final

import click

from steersman.cli.suggestions import SuggestingGroup

__all__ = ["command"]

PROFILE: Final = "steersman.reload.profile"

# name -> module and name of the click command, one line for --help
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "approve": ("steersman.cli.reload_marks", "approve", "Approve the change that a source makes now."),
    "freeze": ("steersman.cli.reload_marks", "freeze", "No restarts for a workload, a source or a namespace."),
    "thaw": ("steersman.cli.reload_marks", "thaw", "Lift a freeze."),
    "trigger": ("steersman.cli.reload_trigger", "trigger", "Restart a workload now, with what its sources say."),
    "shadow": ("steersman.cli.reload_shadow", "shadow", "What a process in the shadow of another has compared."),
    "replay": ("steersman.cli.reload_replay", "replay", "Ask a hook about restarts of the past."),
    "history": ("steersman.cli.reload_history", "history", "Restarts of the past with cause and outcome."),
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
        from steersman.cli.reload_profile import profile_command

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
    """Approve, freeze, trigger and look back; or, with --profile, run in the place of another program."""
