"""Groups of commands that say which one was probably meant, and list their commands with whole sentences."""

from __future__ import annotations

import difflib

import click

WHOLE = 10_000  # characters of a summary: click cuts it at the width of the terminal, where it could break the line


class SuggestingGroup(click.Group):
    """Answers an unknown name with the nearest known one; click does so only for commands that are loaded."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            near = self.suggestion(ctx, args[0])
            hint = f" Did you mean '{near}'?" if near else f" See '{ctx.command_path} --help'."
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def suggestion(self, ctx: click.Context, name: str) -> str | None:
        """What `name` was probably meant to be."""
        near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
        return near[0] if near else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(WHOLE)) for name, each in found if each is not None])
