"""The options that commands share: those of a cluster, named as kubectl names them, and the file of settings."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.config.config import Config

F = TypeVar("F", bound="Callable[..., Any]")


def kube_options(function: F) -> F:
    """Add --kubeconfig, --context and --namespace; the command gets `kubeconfig`, `context` and `namespace`."""
    options = [
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            envvar="STEERSMAN_KUBECONFIG",
            help="Read the cluster and credentials from this file  [default: as kubectl does]",
        ),
        click.option("--context", envvar="STEERSMAN_CONTEXT", help="Use this context of the kubeconfig."),
        click.option(
            "-n",
            "--namespace",
            envvar="STEERSMAN_NAMESPACE",
            shell_complete=_complete_namespace,
            callback=check_namespaces,
            help="Work in this namespace.",
        ),
    ]
    return functools.reduce(lambda command, option: option(command), reversed(options), function)


def config_option(command: F) -> F:
    """Add --config: the settings of the operators; the command gets `config`."""
    return click.option(
        "--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE."
    )(command)


def selector_option(function: F) -> F:
    """Add -l, as kubectl has it; the command gets `selector`, checked."""
    text = "Only those with these labels, e.g. app=web,tier!=test."
    return click.option("-l", "--selector", default="", callback=_check_selector, help=text)(function)


def _check_selector(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    from steersman.errors import FormatError
    from steersman.kube.api.selectors import Selector

    try:
        Selector.parse(value)
    except FormatError as error:
        raise click.BadParameter(str(error)) from None
    return value


def check_namespaces(_ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of options for a namespace, or for several with commas when the option's name says so."""
    from steersman.kube.api.validation import dns_label_errors

    several = parameter.name == "namespaces"
    for name in (value.split(",") if several else [value]) if value else ():
        if dns_label_errors(name.strip()):
            raise click.BadParameter(f'"{name}" is not a namespace (try shop{",stage" if several else ""})')
    return value


def _complete_namespace(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from steersman.cli.completion import complete_namespace

    return complete_namespace(ctx, parameter, incomplete)


def complete_workload(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """KIND/NAME of workloads, asked of the cluster; for arguments, loaded when a shell asks."""
    from steersman.cli import completion

    return completion.complete_workload(ctx, parameter, incomplete)


def cluster_config(kubeconfig: Path | None, context: str | None) -> Config:
    """What the options say, in kubectl's order of precedence."""
    from steersman.kube.config.kubeconfig import load_config

    return load_config(kubeconfig, context)
