"""`steersman`: finds the command and turns errors into one line that says what to do.

Commands live in modules of their own and are imported when asked for, so that `--help` and completion stay fast.
`exit_codes` says what the process ends with.
A ConfigError about a setting that was given as a flag or variable is a usage error, wherever and whenever it is raised.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any, NoReturn

import click

from steersman.cli.exit_codes import ExitCode
from steersman.cli.suggestions import SuggestingGroup
from steersman.errors import ConfigError, SteersmanError

# task -> name -> (module with a click command called `command`, one line for --help)
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "run": ("steersman.cli.run", "Run operators, or controllers in files of your own."),
        "demo": ("steersman.cli.demo.command", "Show the reload operator at work on an embedded API server."),
    },
    "Operate": {
        "status": ("steersman.cli.operate.status", "Show what a running process is doing, and what needs attention."),
        "why": (
            "steersman.cli.operate.why",
            "Explain the state of a workload, zone, server, performer or any other object.",
        ),
        "plan": ("steersman.cli.operate.plan", "Show what every operator would do if manifests were applied."),
        "audit": ("steersman.cli.reload.audit", "List pods that may run an outdated configuration."),
        "graph": ("steersman.cli.reload.graph", "Draw which workloads restart when which sources change."),
        "reload": ("steersman.cli.reload.commands", "Approve, freeze, trigger and review restarts."),
        "dns": (
            "steersman.cli.dns.commands",
            "Import, plan and check zones, and explain why a name resolves as it does.",
        ),
        "toolset": ("steersman.cli.toolset.commands", "Show, render, check and restore toolset ConfigMaps."),
        "hourglass": (
            "steersman.cli.hourglass.commands",
            "Plan executors and performers, and explain why one is pending.",
        ),
    },
    "Install": {
        "manifests": ("steersman.cli.install.manifests", "Print the manifests of an installation, without Helm."),
        "chart": ("steersman.cli.install.chart", "Write a Helm chart for the operator in a Python file."),
        "crds": ("steersman.cli.install.crds", "Print the CustomResourceDefinitions of operators or of a Python file."),
        "rbac": ("steersman.cli.install.rbac", "Print the RBAC rules of operators, or of controllers in a file."),
        "webhooks": ("steersman.cli.install.webhooks", "Print the webhook configurations of a Python file."),
        "migrate": ("steersman.cli.migrate.commands", "Check what a migration from another controller changes."),
        "migrate-storage": (
            "steersman.cli.install.migrate_storage",
            "Store all objects of custom kinds in their storage version.",
        ),
        "completion": ("steersman.cli.completion", "Print the completion script of a shell."),
        "version": ("steersman.cli.version", "Print the version of Steersman, of Python and of the cluster."),
    },
    "Develop": {
        "init": ("steersman.cli.develop.init", "Start an operator project that passes its own tests."),
        "dev": ("steersman.cli.develop.dev", "Run an operator on an embedded server, again at every save of its code."),
        "apiserver": (
            "steersman.cli.develop.apiserver",
            "Run the embedded API server: a small Kubernetes API in memory.",
        ),
        "controlplane": (
            "steersman.cli.develop.controlplane",
            "Build, start and stop the real control plane for tests.",
        ),
    },
}
COMMANDS = {name: found for group in GROUPS.values() for name, found in group.items()}
NESTED = ("reload", "dns", "toolset", "hourglass")  # groups whose commands are looked for under a name of their own


class ReaderGone(Exception):  # noqa: N818  what happened
    """The reader of the output has ended, as in `steersman … | head`. click would call it an error."""


class LazyGroup(SuggestingGroup):
    """Knows every command's name and summary without importing it."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except BrokenPipeError:
            raise ReaderGone from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for task, commands in GROUPS.items():
            with formatter.section(task):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])

    def suggestion(self, ctx: click.Context, name: str) -> str | None:
        """The command of a group that has this name, else the nearest name."""
        for group in NESTED:
            found = self.get_command(ctx, group)
            if isinstance(found, click.Group) and name in found.list_commands(ctx):
                return f"{group} {name}"
        return super().suggestion(ctx, name)


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
        return result if isinstance(result, int) else ExitCode.OK
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in buffers goes nowhere
        return ExitCode.OK
    except SteersmanError as error:
        if debug:
            raise
        from steersman.cli.error_hints import explain

        if isinstance(error, ConfigError) and (flag := _flag(error, argv)):
            return _failed(f"error: {flag}: {error.message}", code=ExitCode.USAGE)
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


def _failed(text: str, code: ExitCode = ExitCode.ERROR) -> int:
    from steersman.cli.output import harmless

    click.echo(harmless(text), err=True)
    return code
