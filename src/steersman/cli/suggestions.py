"""Groups of commands that say which one was probably meant."""

from __future__ import annotations

import difflib

import click

__all__ = ["SuggestingGroup"]


class SuggestingGroup(click.Group):
    """Answers an unknown name with the nearest known one; click does so only for commands that are loaded."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" See '{ctx.command_path} --help'."
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)
