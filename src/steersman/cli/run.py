"""`steersman run`: operators, or controllers in files of your own, in one process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options
from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from steersman.cli.settings import Settings
    from steersman.kube.client import Client
    from steersman.kube.resources import Kind
    from steersman.runtime.admission import Hook
    from steersman.runtime.controller import Controller
    from steersman.runtime.manager import Manager
    from steersman.runtime.parts import Parts

__all__ = ["command"]


@click.command(context_settings={"auto_envvar_prefix": "STEERSMAN"})  # --listen is STEERSMAN_LISTEN, and so on
@click.argument("files", nargs=-1, metavar="[FILE.py|MODULE]...")
@click.option("--operators", help="Names of operators, separated by commas.")
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Read settings from FILE.")
@click.option("--listen", metavar="ADDR:PORT", help="Health, metrics and the page; port 0 takes a free one.")
@click.option(
    "--page",
    type=click.Choice(["local", "token", "open", "off"]),
    help="Who sees the page: callers on this machine, who has a token and rights, everybody, nobody.  [default: local]",
)
@click.option("--leader-elect/--no-leader-elect", default=None, help="Act only while holding a Lease.")
@click.option("--shard/--no-shard", default=None, help="Share the namespaces with the other processes of this Lease.")
@click.option("--lease", metavar="NS/NAME", help="The Lease.  [default: steersman in the pod's namespace]")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Keys each controller works on at once.")
@click.option("--dry-run", is_flag=True, default=None, help="Write nothing: every write is sent as a dry run.")
@click.option("--shadow", is_flag=True, default=None, help="Write nothing: compare with a controller that acts.")
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    metavar="NAME",
    help="For reload: understand the annotations of another program too, such as reloader or wave; may be repeated.",
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=CONTEXT",
    help="Another cluster, under the name controllers know it by; may be repeated.",
)
@click.option("--webhooks/--no-webhooks", default=None, help="Serve the webhooks of files; so does any option of them.")
@click.option("--webhook-listen", metavar="ADDR:PORT", help="Where to; port 0 takes a free one.")
@click.option("--webhook-host", metavar="HOST", help="What the API server calls.  [default: NAME.NAMESPACE.svc]")
@click.option("--webhook-name", metavar="NAME", help="Of their configurations and Secret.  [default: the file's]")
@click.option("--webhook-certs", metavar="DIR", help="tls.crt and tls.key are in DIR.  [default: made, in a Secret]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), default="auto")
@kube_options
def command(
    files: tuple[str, ...],
    config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    log_level: str,
    log_format: str,
    clusters: tuple[str, ...],
    **flags: Any,
) -> None:
    """Run operators until told to stop.

    Settings come from flags, then from variables (--listen is STEERSMAN_LISTEN, and so on), then from the --config
    file. The first SIGTERM or Ctrl-C lets running work end; the second ends at once.

    \b
    Examples:
      steersman run examples/webapp.py
      steersman run examples/webapp.py --shard --lease ops/webapp
      steersman run --operators reload --listen 127.0.0.1:8080
      steersman run --operators reload --leader-elect --lease ops/steersman
    """
    from steersman.cli.kubeoptions import cluster_config
    from steersman.cli.logs import configure_logging
    from steersman.cli.privatememory import keep_memory_private
    from steersman.cli.pythonfiles import load_python
    from steersman.cli.settings import load_settings
    from steersman.cli.webhooks import default_name, hooks_of, serving
    from steersman.runtime.program import run_to_the_end, serve

    configure_logging(level=log_level, form=log_format)
    settings = _override(load_settings(config), flags)
    modules = [load_python(name) for name in files]
    hooks = hooks_of(modules)
    controllers = _controllers(modules, settings, hooks)
    listen = _address(settings)
    cluster = cluster_config(kubeconfig, context)
    webhooks = serving(
        hooks,
        settings,
        name=default_name(files) if files else "",
        own_namespace=cluster.namespace,
        in_cluster=_in_cluster(),
    )
    keep_memory_private()
    run_to_the_end(
        serve(
            *controllers,
            config=cluster,
            include=partial(_operators, settings, cluster.namespace),
            clusters={name: cluster_config(kubeconfig, other) for name, other in map(_named_context, clusters)},
            lease=_lease(settings, cluster.namespace) if settings.leader_elect else None,
            share=_lease(settings, cluster.namespace) if settings.shard else None,
            webhooks=webhooks,
            listen=listen,
            dry_run=settings.dry_run,
            prepare=partial(_with_page, settings.page),
        )
    )


def _with_page(mode: str, manager: Manager) -> None:
    """Serve the page and its API beside health and metrics."""
    from steersman.web.access import Mode
    from steersman.web.site import attach

    attach(manager, Mode(mode))


def _override(settings: Settings, flags: dict[str, Any]) -> Settings:
    """The file's settings with what flags and variables say."""
    import msgspec

    namespace, dialects = flags.pop("namespace", None), flags.pop("dialects", ())
    changes = {name: value for name, value in flags.items() if value is not None}
    if "operators" in changes:
        changes["operators"] = [name.strip() for name in changes["operators"].split(",") if name.strip()]
    if namespace is not None:
        changes["namespaces"] = [namespace]
    if dialects:
        changes["sections"] = {**settings.sections, "reload": _speaking(settings.sections["reload"], dialects)}
    return msgspec.structs.replace(settings, **changes)


def _speaking(section: Any, dialects: Sequence[str]) -> Any:
    """The section of reload with these dialects besides its own; a wrong name is told before anything else happens."""
    import msgspec

    from steersman.errors import ConfigError
    from steersman.operators.reload.dialects import dialects_for

    spoken = msgspec.structs.replace(section, dialects=tuple(dict.fromkeys((*section.dialects, *dialects))))
    try:
        dialects_for(spoken.options())
    except ConfigError as error:
        raise click.BadParameter(error.message, param_hint="--dialect") from None
    return spoken


def _address(settings: Settings) -> str:
    """Where to listen: everywhere in a cluster, else for this machine only; a port alone changes nothing of that."""
    from steersman.runtime.health import parse_address

    usual = "0.0.0.0" if _in_cluster() else "127.0.0.1"  # noqa: S104  in a pod, probes and scrapes come from outside
    host, port = parse_address(settings.listen or "8080", usual=usual)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _lease(settings: Settings, own_namespace: str) -> str:
    return settings.lease or f"{own_namespace}/steersman"


def _named_context(option: str) -> tuple[str, str]:
    name, separator, context = option.partition("=")
    if not (separator and name and context):
        raise click.BadParameter(f'"{option}" is not NAME=CONTEXT', param_hint="--cluster")
    return name, context


def _controllers(modules: Sequence[ModuleType], settings: Settings, hooks: Sequence[Hook]) -> list[Controller]:
    """What the files hold."""
    from steersman.cli.pythonfiles import controllers_in
    from steersman.errors import ConfigError
    from steersman.operators import load_operator
    from steersman.runtime.program import name_and_namespace

    found = [controller for module in modules for controller in controllers_in(module)]
    for name in settings.operators:
        load_operator(name)  # a wrong name is told before anything is asked of the cluster
    if settings.shard and settings.leader_elect:
        raise ConfigError("sharding and leader election exclude each other: choose one", field="shard")
    if settings.shard and settings.operators:
        raise ConfigError(
            "is for controllers of your own: an operator keeps what it knows of the whole cluster in one process"
            " (use --leader-elect)",
            field="shard",
        )
    if not (found or hooks or settings.operators):
        if not modules:
            raise click.UsageError("there is nothing to run: name operators with --operators, or a file")
        where = ", ".join(str(module.__file__) for module in modules)
        raise ConfigError("there is no controller in it, nor a webhook", where=where)
    if settings.lease is not None:
        name_and_namespace(settings.lease, "lease")
    return _narrowed(found, settings)


async def _operators(settings: Settings, own_namespace: str, client: Client) -> dict[str, Parts]:
    """The operators that the settings name, made for the cluster as it is."""
    from msgspec.structs import replace

    from steersman.operators import load_operator
    from steersman.runtime.parts import Surroundings

    around = Surroundings(
        namespaces=settings.namespaces,
        served=await _served(client) if settings.operators else None,
        own_namespace=own_namespace,
        dry_run=settings.dry_run,
        shadow=settings.shadow,
        lease=_lease(settings, own_namespace) if settings.leader_elect else None,
    )
    made = {name: load_operator(name).parts(settings.sections.get(name), around) for name in settings.operators}
    for name, parts in made.items():
        _warn_of_missing(name, parts, around.served)
    return {name: replace(parts, controllers=_narrowed(parts.controllers, settings)) for name, parts in made.items()}


def _warn_of_missing(name: str, parts: Parts, served: frozenset[Kind] | None) -> None:
    """Say once, and first, which of its kinds an operator waits for and how they are installed."""
    from steersman.operators import load_operator

    own = {one.KIND for one in load_operator(name).kinds}
    primaries = (row for one in parts.controllers for row in one.watched if row.role == "for")
    asked = {row.target.KIND for row in primaries if not row.selection.optional}
    waits = asked & own - (own if served is None else served)
    if waits:
        Logger(__name__).warning(
            "kinds are missing; the operator waits for them",
            operator=name,
            kinds=", ".join(sorted(kind.plural for kind in waits)),
            install=f"steersman crds --operators {name} | kubectl apply -f -",
        )


async def _served(client: Client) -> frozenset[Kind] | None:
    """The kinds the cluster has; None when it does not answer now: watches wait for it, so may this process."""

    from steersman.kube.errors import KubeError

    try:
        return frozenset(served.kind for served in await client.discovery.served())
    except KubeError as error:
        Logger(__name__).warning("the server does not say which kinds it has", error=str(error))
        return None


def _narrowed(controllers: Sequence[Controller], settings: Settings) -> list[Controller]:
    found = list(controllers)
    if settings.namespaces is not None:
        found = [controller.within(settings.namespaces) for controller in found]
    if settings.workers is not None:
        found = [controller.configured(concurrency=settings.workers) for controller in found]
    return found


def _in_cluster() -> bool:
    import os

    return "KUBERNETES_SERVICE_HOST" in os.environ
