"""`steersman dev`: an operator on an embedded API server with simulated nodes, started again whenever its code changes.

The server, its objects and the simulation stay; only the operator's process ends and starts. A file that cannot be
loaded says why, and the next save is another attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.apiserver import EmbeddedServer
    from steersman.kube.client.client import Client

NAMESPACE: Final = "default"  # where the operator would run in a cluster
PROGRAM: Final = (sys.executable, "-m", "steersman")
POLL_SECONDS: Final = 0.3
STOP_SECONDS: Final = 10.0


@click.command("dev")
@click.argument("files", nargs=-1, required=True, metavar="FILE.py|MODULE...")
@click.option("--listen", default="127.0.0.1:8080", show_default=True, help="Health, metrics and the page.")
@click.option(
    "--kubeconfig-out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the kubeconfig of the server.  [default: a temporary file]",
)
def command(files: tuple[str, ...], listen: str, kubeconfig_out: Path | None) -> None:
    """Run an operator on an embedded API server, and start it again when its code is saved.

    The server simulates two nodes: workloads get pods that become ready. Definitions of the file's kinds and the
    configurations of its webhooks are installed at every start. Objects stay until Ctrl-C. While the operator starts
    again, the API server refuses what it cannot ask a webhook about.

    \b
    Examples:
      steersman dev examples/webapp.py
      steersman dev examples/webapp.py --kubeconfig-out kubeconfig
    """
    import tempfile

    from steersman.apiserver import EmbeddedServer
    from steersman.cli.install.webhooks import default_name

    folders = [_folder(name) for name in files]
    name, webhooks = default_name(files), f"127.0.0.1:{_free_port()}"
    server = EmbeddedServer(services={f"{NAMESPACE}/{name}": webhooks})
    with tempfile.TemporaryDirectory(prefix="steersman-dev-") as scratch:
        kubeconfig = (kubeconfig_out or Path(scratch) / "kubeconfig").resolve()
        options = ["--kubeconfig", str(kubeconfig), "--listen", listen]
        hooks = ["--webhook-listen", webhooks, "--webhook-host", f"{name}.{NAMESPACE}.svc"]
        operator = _Operator(files, name, options, hooks)
        asyncio.run(_serve(server, operator, folders, listen, kubeconfig))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _folder(name: str) -> Path:
    """Where the code of a file or of a module's package is."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise ConfigError("no such file", where=name)
        return Path(name).parent
    found = importlib.util.find_spec(name.partition(".")[0])
    if found is None or found.origin is None:
        raise ConfigError("no such module", where=name)
    return Path(found.origin).parent


async def _serve(
    server: EmbeddedServer, operator: _Operator, folders: Sequence[Path], listen: str, kubeconfig: Path
) -> None:
    from steersman.cli.develop.apiserver import simulated
    from steersman.kube.client.client import Client
    from steersman.kube.config.kubeconfig import load_config

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with server:
        server.write_kubeconfig(kubeconfig)
        click.echo(f"export KUBECONFIG={kubeconfig}\npage at http://{listen}")
        async with simulated(server), Client.connect(load_config(kubeconfig)) as client:
            while not stop.is_set():
                saved = _saved(folders)
                process = await operator.start(client)
                while not stop.is_set() and _saved(folders) == saved:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), POLL_SECONDS)
                await _end(process)
                if not stop.is_set():
                    click.echo("code changed; starting again")


def _saved(folders: Sequence[Path]) -> dict[Path, int]:
    """When each Python file was saved."""
    found = {}
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        with contextlib.suppress(FileNotFoundError):  # an editor replaces it just now
            found[path] = path.stat().st_mtime_ns
    return found


class _Operator(NamedTuple):
    """The operator's process, and what the API server must know for it."""

    files: Sequence[str]
    name: str  # of its webhook configurations
    options: Sequence[str]
    webhook_options: Sequence[str]  # if it has webhooks

    async def start(self, client: Client) -> asyncio.subprocess.Process | None:
        """Install the manifests and start; None when the code cannot be loaded, and stderr says why."""
        import msgspec

        printing = await asyncio.create_subprocess_exec(
            *PROGRAM, "manifests", *self.files, "--image", "dev", "-o", "json", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await printing.communicate()
        if printing.returncode != 0:
            click.echo("waiting for a change of the code")
            return None
        asked = await self._install(client, msgspec.json.decode(out)["items"])
        return await asyncio.create_subprocess_exec(
            *PROGRAM,
            *("run", *self.files, *self.options, *(self.webhook_options if asked else ())),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us, and we end it
        )

    async def _install(self, client: Client, manifests: list[dict[str, Any]]) -> bool:
        """Apply definitions and webhook configurations; whether the API server will call a webhook."""
        from steersman.kube.api.errors import NotFound
        from steersman.runtime.webhook.certificate_source import CONFIGURATIONS, DEFINITIONS

        kinds = [kind.kind for kind in (*CONFIGURATIONS, DEFINITIONS)]  # in this order: no object escapes a webhook
        chosen = sorted(
            (item for item in manifests if item["kind"] in kinds), key=lambda item: kinds.index(item["kind"])
        )
        for manifest in chosen:
            await client.apply(manifest, force=True)
        for kind in CONFIGURATIONS:  # of webhooks that the code no longer has
            if kind.kind not in {item["kind"] for item in chosen}:
                with contextlib.suppress(NotFound):
                    await client.delete(kind, self.name)
        return any("webhooks" in item or "conversion" in item.get("spec", {}) for item in chosen)


async def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is None or process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
