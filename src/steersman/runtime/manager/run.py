"""A program of controllers: everything between `python operator.py` and its exit code.

    sm.run(webapp)                                    what kubectl would use, until a signal comes
    sm.run(webapp, listen="0.0.0.0:8080", lease="ops/webapp")
    sm.run(database, webhooks=lambda client: sm.WebhookServer([no_latest], sm.ManagedCertificates(client, …)))

The first SIGTERM or SIGINT ends gracefully, the second at once, with 128 + signal where work had to be left. An error
ends the process with one line and code 1. `steersman run FILE` does the same, with options and a configuration file.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from steersman.errors import ConfigError, SteersmanError
from steersman.kube.client.client import Client
from steersman.logger import Logger
from steersman.runtime.leaderelection.elector import LeaderElector, LeaseLock
from steersman.runtime.manager.loop_watchdog import watched
from steersman.runtime.manager.manager import Manager
from steersman.runtime.sharding.member import KubeShards

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping

    from steersman.kube.config.config import Config
    from steersman.runtime.controller.builder import Controller
    from steersman.runtime.manager.operator_bundle import OperatorBundle
    from steersman.runtime.webhook.server import WebhookServer

__all__ = ["name_and_namespace", "run", "run_main", "serve", "stopped_by_signals"]

T = TypeVar("T")

LAST_SECONDS = 5.0  # for what is still there when the program is over

log = Logger(__name__)


def run_main(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, but tasks that do not end when they are cancelled are left behind instead of waited for.

    A reconcile that swallows its cancellation would otherwise keep a process alive that has stopped long ago.
    """

    async def ended() -> T:
        try:
            return await main
        finally:
            await _leave_behind(asyncio.all_tasks() - {asyncio.current_task()})

    return asyncio.run(ended())


async def _leave_behind(tasks: set[Any]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        _, stuck = await asyncio.wait(tasks, timeout=LAST_SECONDS)
        for task in stuck:
            log.error("task did not end when cancelled; exiting without it", task=task.get_name())
            asyncio._unregister_task(task)  # noqa: SLF001  # documented, for those who make tasks: it is not waited for
            task._log_destroy_pending = False  # noqa: SLF001  # as asyncio does with its own: it has been reported


def run(*controllers: Controller, config: Config | None = None, lease: str | None = None, **options: Any) -> None:
    """Run controllers until a signal comes. `lease` is NAMESPACE/NAME; `options` are those of `serve` and `Manager`."""
    try:
        run_main(serve(*controllers, config=config, lease=lease, **options))
    except SteersmanError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201  a program's last word belongs on its terminal
        raise SystemExit(1) from error


async def serve(
    *controllers: Controller,
    config: Config | None = None,
    clusters: Mapping[str, Config] | None = None,
    lease: str | None = None,
    share: str | None = None,
    webhooks: WebhookServer | Callable[[Client], WebhookServer] | None = None,
    include: Callable[[Client], Awaitable[Mapping[str, OperatorBundle]]] | None = None,
    prepare: Callable[[Manager], object] | None = None,
    dry_run: bool = False,
    **options: Any,
) -> None:
    """The same on a running event loop, `clusters` being further ones by name; raises what went wrong.

    `lease` and `share` are NAMESPACE/NAME: of the Lease to lead by, or of the group to share the namespaces with.
    `webhooks` may be made when there is a client, for certificates that are kept in the cluster.
    `include` makes whole operators, by name, when the cluster can be asked what it serves. `prepare` gets the manager
    with everything in it, before it starts.

    With `dry_run` nothing at all is written: this process stands for no Lease, takes no share, and serves no webhooks,
    whose certificates are kept in the cluster.
    """
    async with contextlib.AsyncExitStack() as connections:
        client = await connections.enter_async_context(Client.connect(config))
        others = {
            name: await connections.enter_async_context(Client.connect(other))
            for name, other in (clusters or {}).items()
        }
        elector = None if lease is None else LeaderElector(LeaseLock(client, *name_and_namespace(lease, "lease")))
        served = webhooks(client) if callable(webhooks) else webhooks
        manager = Manager(
            client, controllers, clusters=others, elector=elector, webhooks=served, dry_run=dry_run, **options
        )
        if share is not None:
            manager.share(KubeShards(client, *name_and_namespace(share, "share")))
        for name, parts in (await include(client) if include is not None else {}).items():
            manager.include(name, parts)
        if prepare is not None:
            prepare(manager)
        with stopped_by_signals(manager):
            await manager.run()


@contextlib.contextmanager
def stopped_by_signals(manager: Manager) -> Iterator[None]:
    """SIGTERM and SIGINT stop the manager: gracefully the first time, at once the second, whatever blocks the loop."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, _stop, manager, number)
    try:
        with watched(manager.late, signals):
            yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _stop(manager: Manager, number: signal.Signals) -> None:
    manager.stop()  # first: nothing that can go wrong with saying so may keep it from happening
    log.info("stopping", signal=number.name)


def name_and_namespace(text: str, field: str) -> tuple[str, str]:
    """The two parts of NAMESPACE/NAME, the other way round."""
    namespace, _, name = text.partition("/")
    if not (namespace and name):
        raise ConfigError(f'"{text}" is not NAMESPACE/NAME', field=field)
    return name, namespace
