"""`steersman`: finds the command and turns errors into one line that says what to do.

Commands live in modules of their own and are imported when asked for, so that `--help` and completion stay fast.
Exit codes: 0 fine, 1 error, 2 usage, 3 "found something" (drift, a plan that is not empty), 130 interrupted.
A ConfigError about a setting that was given as a flag or variable is usage, whoever raises it and however late.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any, NoReturn

import click

from steersman.cli.suggestions import SuggestingGroup
from steersman.errors import ConfigError, SteersmanError

__all__ = ["cli", "main"]

# name -> (module with a click command called `command`, one line for --help)
COMMANDS: dict[str, tuple[str, str]] = {
    "apiserver": ("steersman.cli.apiserver", "Run the embedded API server: a small, honest Kubernetes API in memory."),
    "completion": ("steersman.cli.completion", "Print the completion script of a shell."),
    "controlplane": ("steersman.cli.controlplane", "Build, start and stop the real control plane for tests."),
    "crds": ("steersman.cli.crds", "Print the CustomResourceDefinitions of operators or of a Python file."),
    "dns": ("steersman.cli.dns", "Import, plan and check zones, and ask why a name is answered as it is."),
    "hourglass": ("steersman.cli.hourglass", "Plan executors and performers, and ask why one is pending."),
    "init": ("steersman.cli.init", "Start an operator project that passes its own tests."),
    "rbac": ("steersman.cli.rbac", "Print the least rights that operators need."),
    "manifests": ("steersman.cli.manifests", "Print everything that an installation needs, without Helm."),
    "migrate": ("steersman.cli.migrate", "Say what moving from another program means, and how."),
    "audit": ("steersman.cli.audit", "List pods that may run an old configuration."),
    "plan": ("steersman.cli.plan", "Say what would restart if manifests were applied, and what would not."),
    "why": ("steersman.cli.why", "Say what a workload restarts for, and why it did not restart."),
    "graph": ("steersman.cli.graph", "Draw which workloads restart when which sources change."),
    "reload": ("steersman.cli.reload", "Approve, freeze, trigger and look back at restarts."),
    "status": ("steersman.cli.status", "Show what a running process is doing."),
    "run": ("steersman.cli.run", "Run operators, or controllers in files of your own."),
    "toolset": ("steersman.cli.toolset", "Show, render, check and restore what the toolset operator keeps."),
    "webhooks": ("steersman.cli.webhooks", "Print how the API server finds the webhooks of a Python file."),
    "demo": ("steersman.cli.demo", "Play a short story on an embedded API server."),
}


class Unread(Exception):  # noqa: N818  what happened
    """Nobody reads what is printed: `steersman … | head` has seen enough. click would call it an error."""


class LazyGroup(SuggestingGroup):
    """Knows every command's name and summary without importing it."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            raise Unread from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise Unread from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in sorted(COMMANDS.items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="steersman", message="steersman %(version)s")
@click.option("--debug", is_flag=True, envvar="STEERSMAN_DEBUG", help="Show tracebacks instead of one-line errors.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Steersman: a Kubernetes controller runtime for Python, and operators built on it."""
    ctx.obj = {"debug": debug}


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(_run(sys.argv[1:] if argv is None else argv))


def _run(argv: list[str]) -> int:
    debug = "--debug" in argv or bool(os.environ.get("STEERSMAN_DEBUG"))
    try:
        result: Any = cli.main(args=argv, prog_name="steersman", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (Unread, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in buffers goes nowhere
        return 0
    except SteersmanError as error:
        if debug:
            raise
        from steersman.cli.hints import explain

        if isinstance(error, ConfigError) and (flag := _flag(error, argv)):
            return _failed(f"error: {flag}: {error.message}", code=2)
        return _failed(explain(error))
    except OSError as error:  # of a path or an address that a person gave
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        return _failed(f"error: {where}{error.strerror or str(error) or type(error).__name__}")


def _flag(error: ConfigError, argv: list[str]) -> str | None:
    """The flag that an error is about, when it was given: a setting of a file has a place, and a default is right."""
    if error.where is not None or not error.field:
        return None
    words = re.sub("(?<=[a-z])(?=[A-Z])|_", "-", error.field.removeprefix("--")).lower()
    flag = f"--{words}"
    given = any(word == flag or word.startswith(f"{flag}=") for word in argv)
    return flag if given or f"STEERSMAN_{words.replace('-', '_').upper()}" in os.environ else None


def _failed(text: str, code: int = 1) -> int:
    from steersman.cli.output import harmless

    click.echo(harmless(text), err=True)
    return code
