"""`steersman dns sidecar`: the HTTP interface of the original's sidecar, served for the named next door."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steersman.cli.kubeoptions import kube_options

if TYPE_CHECKING:
    from steersman.operators.dns.tsig import Key

__all__ = ["sidecar"]

LEVELS = ["debug", "info", "warning", "error"]
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.option(
    "--zone-dir",
    envvar="BIND_ZONE_DIR",
    default="/var/cache/bind",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where zone files are, by the same path for named.",
)
@click.option("--rndc", envvar="RNDC_SERVER", default="127.0.0.1:953", show_default=True, help="named's controls.")
@click.option(
    "--dns-port", envvar="NSUPDATE_PORT", default=53, show_default=True, type=click.IntRange(1, 65535), help="named's."
)
@click.option(
    "--key-file",
    envvar="RNDC_KEY_FILE",
    type=FILE,
    help="named's control key, as rndc.key has it; read again when it changes.",
)
@click.option(
    "--update-key",
    envvar="NSUPDATE_KEY_NAME",
    default="",
    help="The key of that file that signs updates  [default: the first]",
)
@click.option("--listen", default="", help="ADDRESS:PORT  [default: API_PORT or 8080; in a cluster on every address]")
@click.option("--token-file", type=FILE, help="Callers show this token (or BIND_API_TOKEN).")
@click.option("--token-review", is_flag=True, help="Callers show a token that the cluster knows.")
@click.option("--audience", "audiences", multiple=True, help="Tokens must be meant for this; may be repeated.")
@click.option("--allow-service-account", "accounts", multiple=True, metavar="NS/NAME", help="Who; may be repeated.")
@click.option("--allow-namespace", "namespaces", multiple=True, help="All of its ServiceAccounts; may be repeated.")
@click.option("--no-auth", envvar="DISABLE_AUTH", is_flag=True, help="Everybody, on a loopback address.")
@click.option(
    "--statistics",
    envvar="BIND_STATISTICS",
    default="",
    metavar="ADDRESS:PORT",
    help="named's statistics, to list every zone.",
)
@click.option("--rate", default=100.0, show_default=True, type=click.FloatRange(min=0.1), help="Requests a second.")
@click.option("--burst", default=400, show_default=True, type=click.IntRange(min=1), help="Requests at once.")
@click.option("--max-body", default=64, show_default=True, type=click.IntRange(1, 1024), help="MiB of a request.")
@click.option(
    "--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning", "error"])
)
@kube_options
def sidecar(**told: Any) -> None:
    """Serve the interface of the original's sidecar beside a named, for the driver `bindcar`.

    The original's variables are understood too: BIND_ZONE_DIR, API_PORT, RNDC_SERVER, RNDC_ALGORITHM, RNDC_SECRET,
    NSUPDATE_PORT, NSUPDATE_KEY_NAME, NSUPDATE_ALGORITHM, NSUPDATE_SECRET, BIND_API_TOKEN,
    BIND_ALLOWED_SERVICE_ACCOUNTS, BIND_ALLOWED_NAMESPACES, BIND_TOKEN_AUDIENCES, DISABLE_AUTH.

    \b
    Examples:
      steersman dns sidecar --zone-dir /var/lib/bind --token-file /run/token
      steersman dns sidecar --token-review --allow-service-account dns/steersman
    """
    from steersman.cli.kubeoptions import cluster_config
    from steersman.cli.logs import configure_logging
    from steersman.kube.client import Client

    configure_logging(level=told["log_level"])
    plan = plan_of(told)
    plan.check()

    def connect() -> Client:
        return Client.connect(cluster_config(told["kubeconfig"], told["context"]))

    asyncio.run(_serve(plan, connect))


def plan_of(told: dict[str, Any]) -> Any:
    """Flags, and the original's variables where there is no flag."""
    import os

    from steersman.operators.dns.bindcar.access import Guests
    from steersman.operators.dns.bindcar.process import Plan
    from steersman.operators.dns.bindcar.server import Limits
    from steersman.runtime.health import parse_address

    accounts = [f"system:serviceaccount:{one.replace('/', ':')}" for one in told["accounts"]]
    usual = "0.0.0.0" if "KUBERNETES_SERVICE_HOST" in os.environ else "127.0.0.1"  # noqa: S104  as its help says
    listen = told["listen"] or os.environ.get("API_PORT", "8080")
    return Plan(
        zone_dir=told["zone_dir"],
        listen=parse_address(listen, usual=usual),
        control=parse_address(told["rndc"]),
        dns_port=told["dns_port"],
        key_file=told["key_file"],
        key=_key("RNDC") if told["key_file"] is None else None,
        signing_key=_key("NSUPDATE"),
        update_key=told["update_key"],
        token_file=told["token_file"],
        token=os.environ.get("BIND_API_TOKEN", "") if told["token_file"] is None else "",
        review=told["token_review"],
        guests=Guests(
            accounts=frozenset([*accounts, *_words("BIND_ALLOWED_SERVICE_ACCOUNTS")]),
            namespaces=frozenset([*told["namespaces"], *_words("BIND_ALLOWED_NAMESPACES")]),
            audiences=(*told["audiences"], *_words("BIND_TOKEN_AUDIENCES")),
        ),
        open=told["no_auth"],
        statistics=told["statistics"],
        limits=Limits(per_second=told["rate"], burst=told["burst"], body=told["max_body"] * 2**20),
    )


def _words(variable: str) -> list[str]:
    import os

    return [word.strip() for word in os.environ.get(variable, "").split(",") if word.strip()]


def _key(purpose: str) -> Key | None:
    """A key that the original's variables hold. The control channel does not care for its name."""
    import os

    from steersman.errors import ConfigError, FormatError
    from steersman.operators.dns.tsig import key_from

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
    from steersman.operators.dns.bindcar.process import serve

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(plan, stop, connect=connect, told=lambda port: click.echo(f"listening on {plan.listen[0]}:{port}"))
