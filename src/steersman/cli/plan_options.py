"""The options that every `plan` of manifests has: which manifests, with or without the cluster, with which settings."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from steersman.cli.kube_options import config_option, kube_options, selector_option
from steersman.cli.output import output_option
from steersman.cli.reload.inspection import settings_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIVE = "Compare with the cluster instead of taking every source as changed."


class PlanOptions(NamedTuple):
    """What a `plan` was called with."""

    names: tuple[str, ...]
    live: bool
    config: Path | None
    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    output: str
    selector: str
    dialects: tuple[str, ...] = ()


def plan_options(*, live: str = LIVE, dialects: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add -f, --live, -l, --config, --dialect, those of kubectl, and -o; a command gets its context and PlanOptions."""

    def added(function: Callable[[click.Context, PlanOptions], None]) -> Callable[..., None]:
        @click.option(
            "-f", "--filename", "names", multiple=True, required=True, metavar="DIR|FILE|-", help="Manifests."
        )
        @click.option("--live", is_flag=True, help=live)
        @selector_option
        @(settings_options if dialects else config_option)
        @kube_options
        @output_option("name")
        @functools.wraps(function)
        def command(**values: Any) -> None:
            function(click.get_current_context(), PlanOptions(**values))

        return command

    return added
