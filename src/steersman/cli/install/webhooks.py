"""Webhooks of Python files: `steersman webhooks` prints how the API server finds them, `steersman run` serves them.

Both go by the same *name*: of the webhook configurations, and of the Secret with the certificate. And by the same
*host*: what the API server calls, and therefore what the certificate is for. So what the one prints, the other keeps
true: it puts the authority it trusts into the configurations of that name, and renews both in time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import check_namespaces
from steersman.cli.output import manifest_output_option
from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from steersman.cli.config import RunSettings
    from steersman.kube.client.client import Client
    from steersman.runtime.rbac import Permissions
    from steersman.runtime.webhook.admission import Webhook
    from steersman.runtime.webhook.conversion import ConversionWebhook
    from steersman.runtime.webhook.server import WebhookServer

PORT = 9443
_SETTINGS = ("webhook_listen", "webhook_host", "webhook_name", "webhook_certs")
_SERVICE = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)\.svc")


@click.command("webhooks")
@click.argument("files", nargs=-1, required=True, metavar="FILE.py|MODULE...")
@click.option("--name", help="Name of the configurations.  [default: that of the first file]")
@click.option(
    "-n", "--namespace", callback=check_namespaces, default="default", show_default=True, help="Where the process runs."
)
@click.option("--host", metavar="HOST[:PORT]", help="What the API server calls.  [default: NAME.NAMESPACE.svc]")
@click.option("--rights", is_flag=True, help="Also print the rights to keep the certificate, and an account with them.")
@manifest_output_option
def command(
    files: tuple[str, ...], name: str | None, namespace: str, host: str | None, rights: bool, output: str
) -> None:
    """Print the configurations that make the API server ask the webhooks of a file.

    `steersman run FILE` with the same name and host serves them. A host such as database.ops.svc is a Service, which
    needs a port 443 that leads to 9443 of the process; any other is called by its name, at port 9443 unless it says so.

    \b
    Examples:
      steersman webhooks examples/database.py -n ops | kubectl apply -f -
      steersman webhooks examples/database.py -n ops --rights
      steersman webhooks examples/database.py --host 127.0.0.1:9443
    """
    from steersman.cli.install.rbac import print_manifests
    from steersman.cli.python_files import hooks_in, load_python
    from steersman.runtime.webhook.server import webhook_configurations

    name = name or default_name(files)
    hooks = hooks_in([load_python(file) for file in files])
    if not hooks:
        raise ConfigError("defines no webhook", where=", ".join(files))
    reach = client_config(host or f"{name}.{namespace}.svc")
    manifests = webhook_configurations(hooks, name=name, client_config=reach)
    if rights:
        manifests = [*_rights(name, namespace, hooks), *manifests]
    if not manifests:
        raise ConfigError("defines conversions only: steersman crds prints their address", where=", ".join(files))
    print_manifests(manifests, output)


def default_name(files: Sequence[str]) -> str:
    """The default name of the webhooks of these files."""
    first = files[0]
    stem = Path(first).stem if first.endswith(".py") else first.rpartition(".")[2]
    return stem.replace("_", "-").lower()


def secret_name(name: str) -> str:
    """The Secret with the certificate."""
    return f"{name}-webhooks"


def converted_definitions(hooks: Sequence[Webhook | ConversionWebhook]) -> list[str]:
    """The names of the CustomResourceDefinitions that have a conversion among these webhooks."""
    from steersman.runtime.webhook.conversion import ConversionWebhook

    return [hook.name for hook in hooks if isinstance(hook, ConversionWebhook)]


def client_config(host: str) -> Callable[[str], dict[str, Any]]:
    """How the API server reaches a path at `host`, which may have a port."""
    name, _, port = host.partition(":")
    if "/" in host or not name or (port and not port.isdecimal()):
        raise ConfigError(f'"{host}" is not HOST or HOST:PORT (try 127.0.0.1:9443 or database.ops.svc)', field="host")
    service = _SERVICE.fullmatch(name)
    if service is None:
        return lambda path: {"url": f"https://{name}:{port or PORT}{path}"}
    where: dict[str, Any] = {"namespace": service[2], "name": service[1]}
    return lambda path: {"service": {**where, "path": path, "port": int(port or 443)}}


def serving(
    hooks: Sequence[Webhook | ConversionWebhook],
    settings: RunSettings,
    *,
    name: str,
    own_namespace: str,
    in_cluster: bool,
) -> Callable[[Client], WebhookServer] | None:
    """What serves the webhooks, to be made when there is a client; None when there is nothing to serve."""
    from steersman.logger import Logger

    asked = _asked_by(settings)
    if not hooks:
        if asked:
            raise ConfigError("what runs here defines no webhook to serve", field=asked)
        return None
    if not asked or settings.dry_run or settings.shadow:
        why = "nothing may be written" if asked else "--webhooks was not given"
        Logger(__name__).warning("webhooks are not served", hooks=sorted(hook.name for hook in hooks), because=why)
        return None
    from steersman.runtime.observability.health import parse_address

    name = settings.webhook_name or name
    host = settings.webhook_host or (f"{name}.{own_namespace}.svc" if in_cluster else "127.0.0.1")
    usual = "0.0.0.0" if in_cluster else "127.0.0.1"  # noqa: S104  in a pod, the API server comes from outside
    address, port = parse_address(settings.webhook_listen or str(PORT), field="webhookListen", usual=usual)

    def make(client: Client) -> WebhookServer:
        from steersman.runtime.webhook.certificate_source import ManagedCertificates, MountedCertificates
        from steersman.runtime.webhook.server import WebhookServer

        certificates: Any
        if settings.webhook_certs is not None:
            certificates = MountedCertificates(Path(settings.webhook_certs))
        else:
            certificates = ManagedCertificates(
                client,
                namespace=own_namespace,
                secret=secret_name(name),
                names=[host.partition(":")[0]],
                configuration=name,
                definitions=converted_definitions(hooks),
            )
        return WebhookServer(hooks, certificates, host=address, port=port)

    return make


def _asked_by(settings: RunSettings) -> str | None:
    """The setting that asks for webhooks to be served: the one for that, else any other about them."""
    if settings.webhooks is not None:
        return "webhooks" if settings.webhooks else None
    return next((name for name in _SETTINGS if getattr(settings, name)), None)


def webhook_permissions(name: str, hooks: Sequence[Webhook | ConversionWebhook]) -> Permissions:
    """The rights to keep the Secret, and to put its authority into configurations and definitions."""
    from steersman.runtime.rbac import Permissions, rule
    from steersman.runtime.webhook.certificate_source import CONFIGURATIONS, DEFINITIONS, SECRETS

    secrets = SECRETS.qualified
    injected = [rule([kind.qualified for kind in CONFIGURATIONS], "get", "patch", names=[name])]
    if definitions := converted_definitions(hooks):
        injected.append(rule(DEFINITIONS.qualified, "get", "patch", names=definitions))
    return Permissions(
        own=[rule(secrets, "create"), rule(secrets, "get", "update", names=[secret_name(name)])], cluster=injected
    )


def _rights(name: str, namespace: str, hooks: Sequence[Webhook | ConversionWebhook]) -> list[dict[str, Any]]:
    """An account with these rights."""
    from steersman.runtime.rbac import Permissions

    rights = webhook_permissions(name, hooks)
    return Permissions(namespace=rights.own, cluster=rights.cluster).manifests(name, namespace, namespaces=[namespace])
