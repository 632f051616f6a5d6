"""`steersman run`: operators, or controllers in files of your own, in one process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import config_option, kube_options
from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from steersman.cli.config import RunSettings
    from steersman.kube.api.gvk import Kind
    from steersman.kube.client.client import Client
    from steersman.runtime.controller.builder import Controller
    from steersman.runtime.manager.manager import Manager
    from steersman.runtime.manager.operator_bundle import OperatorBundle
    from steersman.runtime.webhook.admission import Webhook
    from steersman.runtime.webhook.certificate_source import MountedCertificates
    from steersman.runtime.webhook.conversion import ConversionWebhook


@click.command(context_settings={"auto_envvar_prefix": "STEERSMAN"})  # --listen is STEERSMAN_LISTEN, and so on
@click.argument("files", nargs=-1, metavar="[FILE.py|MODULE]...")
@click.option("--operators", help="Names of operators, separated by commas.")
@config_option
@click.option("--listen", metavar="ADDR:PORT", help="Health, metrics and the page; port 0 takes a free one.")
@click.option(
    "--page",
    type=click.Choice(["local", "token", "open", "off"]),
    help="Who may read the page: callers on this machine, callers with a token, all callers, none.  [default: local]",
)
@click.option(
    "--metrics",
    type=click.Choice(["open", "token"]),
    help="Who may read /metrics: all callers, or callers with a token.  [default: open]",
)
@click.option("--tls-certs", metavar="DIR", help="Serve over TLS: tls.crt and tls.key are in DIR, and may change.")
@click.option("--probe-listen", metavar="ADDR:PORT", help="Answer probes here too, always without TLS.")
@click.option("--profiling", is_flag=True, default=None, help="Serve /debug/profile and /debug/heap to this machine.")
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
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least severe lines to log.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    show_default=True,
    help="How lines are logged; auto: as text on a terminal, as JSON elsewhere.",
)
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
    """Run operators until stopped.

    Settings come from flags, then from variables (--listen is STEERSMAN_LISTEN, and so on), then from the --config
    file. The first SIGTERM or Ctrl-C lets running work end; the second ends at once.

    \b
    Examples:
      steersman run examples/webapp.py
      steersman run examples/webapp.py --shard --lease ops/webapp
      steersman run --operators reload --listen 127.0.0.1:8080
      steersman run --operators reload --leader-elect --lease ops/steersman
    """
    from steersman.cli.config import load_settings
    from steersman.cli.core_dumps import keep_memory_private
    from steersman.cli.install.webhooks import default_name, serving
    from steersman.cli.kube_options import cluster_config
    from steersman.cli.log_format import configure_logging
    from steersman.cli.python_files import bundle_in, hooks_in, load_python
    from steersman.runtime.manager.run import run_main, serve

    configure_logging(level=log_level, form=log_format)
    settings = _override(load_settings(config), flags)
    modules = [load_python(name) for name in files]
    hooks = hooks_in(modules)
    bundles = {module.__name__: bundle for module in modules if (bundle := bundle_in(module)) is not None}
    controllers = _controllers(modules, settings, hooks, bundles)
    listen = _address(settings.listen or "8080", "listen")
    probes = None if settings.probe_listen is None else _address(settings.probe_listen, "probeListen")
    cluster = cluster_config(kubeconfig, context)
    webhooks = serving(
        hooks,
        settings,
        name=default_name(files) if files else "",
        own_namespace=cluster.namespace,
        in_cluster=_in_cluster(),
    )
    keep_memory_private()
    run_main(
        serve(
            *controllers,
            config=cluster,
            include=partial(_operators, settings, cluster.namespace, bundles),
            clusters={name: cluster_config(kubeconfig, other) for name, other in map(_named_context, clusters)},
            lease=_lease(settings, cluster.namespace) if settings.leader_elect else None,
            share=_lease(settings, cluster.namespace) if settings.shard else None,
            webhooks=webhooks,
            listen=listen,
            probe_listen=probes,
            certificates=_certificates(settings),
            metrics=settings.metrics,
            profiling=settings.profiling,
            dry_run=settings.dry_run or settings.shadow,
            prepare=partial(_with_page, settings.page),
        )
    )


def _with_page(mode: str, manager: Manager) -> None:
    """Serve the page and its API beside health and metrics."""
    from steersman.web.access import AccessMode
    from steersman.web.site import attach

    attach(manager, AccessMode(mode))


def _override(settings: RunSettings, flags: dict[str, Any]) -> RunSettings:
    """The file's settings with what flags and variables say."""
    import msgspec

    namespace, dialects = flags.pop("namespace", None), flags.pop("dialects", ())
    changes = {name: value for name, value in flags.items() if value is not None}
    if "operators" in changes:
        changes["operators"] = [name.strip() for name in changes["operators"].split(",") if name.strip()]
    if namespace is not None:
        changes["namespaces"] = [namespace]
    if dialects:
        from steersman.cli.config import Sections

        changes["sections"] = Sections(settings.sections, reload=_speaking(settings.sections["reload"], dialects))
    return msgspec.structs.replace(settings, **changes)


def _speaking(section: Any, dialects: Sequence[str]) -> Any:
    """The section of reload with these dialects besides its own; a wrong name is a usage error."""
    import msgspec

    from steersman.errors import ConfigError
    from steersman.operators.reload.compat.dialects import dialects_for

    spoken = msgspec.structs.replace(section, dialects=tuple(dict.fromkeys((*section.dialects, *dialects))))
    try:
        dialects_for(spoken.options())
    except ConfigError as error:
        raise click.BadParameter(error.message, param_hint="--dialect") from None
    return spoken


def _certificates(settings: RunSettings) -> MountedCertificates | None:
    if settings.tls_certs is None:
        return None
    from steersman.runtime.webhook.certificate_source import MountedCertificates  # loads cryptography: 15 MiB

    return MountedCertificates(Path(settings.tls_certs))


def _address(listen: str, field: str) -> str:
    """Where to listen: everywhere in a cluster, else for this machine only; a port alone changes nothing of that."""
    from steersman.runtime.observability.health import parse_address

    usual = "0.0.0.0" if _in_cluster() else "127.0.0.1"  # noqa: S104  in a pod, probes and scrapes come from outside
    host, port = parse_address(listen, field=field, usual=usual)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _lease(settings: RunSettings, own_namespace: str) -> str:
    return settings.lease or f"{own_namespace}/steersman"


def _named_context(option: str) -> tuple[str, str]:
    name, separator, context = option.partition("=")
    if not (separator and name and context):
        raise click.BadParameter(f'"{option}" is not NAME=CONTEXT', param_hint="--cluster")
    return name, context


def _controllers(
    modules: Sequence[ModuleType],
    settings: RunSettings,
    hooks: Sequence[Webhook | ConversionWebhook],
    bundles: Mapping[str, OperatorBundle],
) -> list[Controller]:
    """What the files hold, except those in bundles."""
    from steersman.cli.python_files import controllers_in
    from steersman.errors import ConfigError
    from steersman.operators import load_operator
    from steersman.runtime.manager.run import name_and_namespace

    found = [
        controller for module in modules if module.__name__ not in bundles for controller in controllers_in(module)
    ]
    for name in settings.operators:
        load_operator(name)  # a wrong name is an error before any request to the cluster
    if settings.shard and settings.leader_elect:
        raise ConfigError("sharding and leader election exclude each other: choose one", field="shard")
    if settings.shard and settings.operators:
        raise ConfigError(
            "works for your own controllers only: an operator holds the state of the whole cluster in one process"
            " (use --leader-elect)",
            field="shard",
        )
    if not (found or bundles or hooks or settings.operators):
        if not modules:
            raise click.UsageError("nothing to run: name operators with --operators, or a file")
        where = ", ".join(str(module.__file__) for module in modules)
        raise ConfigError("defines neither a controller nor a webhook", where=where)
    if settings.lease is not None:
        name_and_namespace(settings.lease, "lease")
    return _narrowed(found, settings)


async def _operators(
    settings: RunSettings, own_namespace: str, bundles: Mapping[str, OperatorBundle], client: Client
) -> dict[str, OperatorBundle]:
    """The bundles of files, and the operators that the settings name, made for the cluster as it is."""
    from msgspec.structs import replace

    from steersman.operators import load_operator
    from steersman.runtime.manager.operator_bundle import RuntimeEnvironment

    around = RuntimeEnvironment(
        namespaces=settings.namespaces,
        served=await _served(client) if settings.operators else None,
        own_namespace=own_namespace,
        dry_run=settings.dry_run,
        shadow=settings.shadow,
        lease=_lease(settings, own_namespace) if settings.leader_elect else None,
    )
    made = {name: load_operator(name).parts(settings.sections[name], around) for name in settings.operators}
    for name, parts in made.items():
        _warn_of_missing(name, parts, around.served)
    return {
        name: replace(parts, controllers=_narrowed(parts.controllers, settings))
        for name, parts in {**bundles, **made}.items()
    }


def _warn_of_missing(name: str, parts: OperatorBundle, served: frozenset[Kind] | None) -> None:
    """Say once, and first, which of its kinds an operator waits for and how they are installed."""
    from steersman.operators import load_operator

    own = {kind.KIND for kind in load_operator(name).kinds}
    primaries = (row for controller in parts.controllers for row in controller.watched if row.role == "for")
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

    from steersman.kube.api.errors import KubeError

    try:
        return frozenset(served.kind for served in await client.discovery.served())
    except KubeError as error:
        Logger(__name__).warning("discovery failed; kinds are assumed to be served", error=str(error))
        return None


def _narrowed(controllers: Sequence[Controller], settings: RunSettings) -> list[Controller]:
    found = list(controllers)
    if settings.namespaces is not None:
        found = [controller.within(settings.namespaces) for controller in found]
    if settings.workers is not None:
        found = [controller.with_options(concurrency=settings.workers) for controller in found]
    return found


def _in_cluster() -> bool:
    import os

    return "KUBERNETES_SERVICE_HOST" in os.environ
