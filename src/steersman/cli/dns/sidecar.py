"""`steersman dns sidecar`: the HTTP interface of the original sidecar for the local named."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kube_options import kube_options

if TYPE_CHECKING:
    from steersman.operators.dns.wire.tsig import Key

LEVELS = ["debug", "info", "warning", "error"]
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option(
    "--zone-dir",
    envvar="BIND_ZONE_DIR",
    default="/var/cache/bind",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Directory of zone files, with the same path for named.",
)
@click.option(
    "--rndc", envvar="RNDC_SERVER", default="127.0.0.1:953", show_default=True, help="Control channel of named."
)
@click.option(
    "--dns-port",
    envvar="NSUPDATE_PORT",
    default=53,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="DNS port of named.",
)
@click.option(
    "--key-file",
    envvar="RNDC_KEY_FILE",
    type=FILE,
    help="File with the control key of named, such as rndc.key; reloaded when it changes.",
)
@click.option(
    "--update-key",
    envvar="NSUPDATE_KEY_NAME",
    default="",
    help="Key of that file that signs updates  [default: the first]",
)
@click.option("--listen", default="", help="ADDRESS:PORT  [default: API_PORT or 8080; on all addresses in a cluster]")
@click.option("--token-file", type=FILE, help="File with the bearer token of callers (or BIND_API_TOKEN).")
@click.option("--token-review", is_flag=True, help="Accept bearer tokens that the cluster authenticates (TokenReview).")
@click.option("--audience", "audiences", multiple=True, help="Required audience of tokens; may be repeated.")
@click.option(
    "--allow-service-account",
    "accounts",
    multiple=True,
    metavar="NS/NAME",
    help="ServiceAccount that may call; may be repeated.",
)
@click.option(
    "--allow-namespace", "namespaces", multiple=True, help="Namespace whose ServiceAccounts may call; may be repeated."
)
@click.option("--no-auth", envvar="DISABLE_AUTH", is_flag=True, help="No authentication; only on a loopback address.")
@click.option(
    "--statistics",
    envvar="BIND_STATISTICS",
    default="",
    metavar="ADDRESS:PORT",
    help="Statistics channel of named, to list all zones.",
)
@click.option(
    "--rate",
    default=100.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Requests per second of one caller.",
)
@click.option(
    "--burst", default=400, show_default=True, type=click.IntRange(min=1), help="Burst of requests of one caller."
)
@click.option(
    "--max-body", default=64, show_default=True, type=click.IntRange(1, 1024), help="Largest request body in MiB."
)
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The least severe lines to log.",
)
@kube_options
def sidecar(**flags: Any) -> None:
    """Serve the HTTP interface of the original sidecar for the local named, for instances with `driver: bindcar`.

    Environment variables of the original: BIND_ZONE_DIR, API_PORT, RNDC_SERVER, RNDC_ALGORITHM, RNDC_SECRET,
    NSUPDATE_PORT, NSUPDATE_KEY_NAME, NSUPDATE_ALGORITHM, NSUPDATE_SECRET, BIND_API_TOKEN,
    BIND_ALLOWED_SERVICE_ACCOUNTS, BIND_ALLOWED_NAMESPACES, BIND_TOKEN_AUDIENCES, DISABLE_AUTH.

    \b
    Examples:
      steersman dns sidecar --zone-dir /var/lib/bind --token-file /run/token
      steersman dns sidecar --token-review --allow-service-account dns/steersman
    """
    from steersman.cli.kube_options import cluster_config
    from steersman.cli.log_format import configure_logging
    from steersman.kube.client.client import Client

    configure_logging(level=flags["log_level"])
    plan = plan_of(flags)
    plan.check()

    def connect() -> Client:
        return Client.connect(cluster_config(flags["kubeconfig"], flags["context"]))

    asyncio.run(_serve(plan, connect))


def plan_of(flags: dict[str, Any]) -> Any:
    """The configuration from flags, and from the variables of the original without a flag."""
    import os

    from steersman.operators.dns.sidecar.access import AllowedUsers
    from steersman.operators.dns.sidecar.process import SidecarConfig
    from steersman.operators.dns.sidecar.server import RequestLimits
    from steersman.runtime.observability.health import parse_address

    accounts = [f"system:serviceaccount:{account.replace('/', ':')}" for account in flags["accounts"]]
    usual = "0.0.0.0" if "KUBERNETES_SERVICE_HOST" in os.environ else "127.0.0.1"  # noqa: S104  as its help says
    listen = flags["listen"] or os.environ.get("API_PORT", "8080")
    return SidecarConfig(
        zone_dir=flags["zone_dir"],
        listen=parse_address(listen, usual=usual),
        control=parse_address(flags["rndc"]),
        dns_port=flags["dns_port"],
        key_file=flags["key_file"],
        key=_key("RNDC") if flags["key_file"] is None else None,
        signing_key=_key("NSUPDATE"),
        update_key=flags["update_key"],
        token_file=flags["token_file"],
        token=os.environ.get("BIND_API_TOKEN", "") if flags["token_file"] is None else "",
        review=flags["token_review"],
        allowed=AllowedUsers(
            accounts=frozenset([*accounts, *_words("BIND_ALLOWED_SERVICE_ACCOUNTS")]),
            namespaces=frozenset([*flags["namespaces"], *_words("BIND_ALLOWED_NAMESPACES")]),
            audiences=(*flags["audiences"], *_words("BIND_TOKEN_AUDIENCES")),
        ),
        open=flags["no_auth"],
        statistics=flags["statistics"],
        limits=RequestLimits(per_second=flags["rate"], burst=flags["burst"], body=flags["max_body"] * 2**20),
    )


def _words(variable: str) -> list[str]:
    import os

    return [word.strip() for word in os.environ.get(variable, "").split(",") if word.strip()]


def _key(purpose: str) -> Key | None:
    """A key from the variables of the original. The control channel ignores its name."""
    import os

    from steersman.errors import ConfigError, FormatError
    from steersman.operators.dns.wire.tsig import key_from

    secret = os.environ.get(f"{purpose}_SECRET", "")
    if not secret:
        return None
    algorithm = os.environ.get(f"{purpose}_ALGORITHM", "sha256").lower().removeprefix("hmac-")
    name = os.environ.get("NSUPDATE_KEY_NAME", "bindy-operator")
    try:
        return key_from(
            {"key-name": name.encode(), "algorithm": f"hmac-{algorithm}".encode(), "secret": secret.encode()}
        )
    except FormatError as error:
        raise ConfigError(str(error), where=f"{purpose}_SECRET") from None


async def _serve(plan: Any, connect: Any) -> None:
    from steersman.operators.dns.sidecar.process import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(plan, stop, connect=connect, listening=lambda port: click.echo(f"listening on {plan.listen[0]}:{port}"))
