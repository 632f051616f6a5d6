"""Controllers at work inside a test."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.rbac_hint import MissingRule
from steersman.testing.clock import VirtualClock
from steersman.testing.service_accounts import client_as

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from steersman.kube.client.client import Client
    from steersman.runtime.controller.builder import Controller
    from steersman.runtime.manager.manager import Manager
    from steersman.testing.raw_api import ApiServer

__all__ = ["running", "running_least_privilege"]

TIMEOUT = 90.0  # seconds of the machine's own time


@asynccontextmanager
async def running(
    client: Client,
    *controllers: Controller,
    prepare: Callable[[Manager], object] | None = None,
    timeout: float = TIMEOUT,
    **options: Any,
) -> AsyncIterator[Manager]:
    """Run controllers until the block ends; `options` are the manager's; `prepare` gets the manager before it starts.

    The block begins when every source is synced and the controllers work. A manager that fails fails the test. So does
    one that is not at work after `timeout` seconds, or not stopped so long after the block, with what it waits for.
    With a `clock` that only the test moves, lists and watches still wait by the machine's own time.
    """
    from prometheus_client import CollectorRegistry

    from steersman.runtime.manager.manager import Manager

    options.setdefault("registry", CollectorRegistry())
    if isinstance(options.get("clock"), VirtualClock):
        options.setdefault("network_clock", SYSTEM_CLOCK)
    manager = Manager(client, controllers, **options)
    if prepare is not None:
        prepare(manager)
    task = asyncio.create_task(manager.run())
    ready = asyncio.create_task(_at_work(manager, controllers))
    try:
        await asyncio.wait({task, ready}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        elif not ready.done():
            raise AssertionError(f"not at work within {timeout:g} s: {_waits_for(manager)}")
        yield manager
    finally:
        ready.cancel()
        manager.stop()
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            running_keys = _running_keys(manager)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise AssertionError(f"not stopped within {timeout:g} s: {running_keys}")
        await task


@asynccontextmanager
async def running_least_privilege(
    server: ApiServer, *controllers: Controller, namespace: str, **options: Any
) -> AsyncIterator[Manager]:
    """As `running`, as a service account with exactly the rights that `steersman rbac` derives from the controllers.

    They work in `namespace` only. A request that the API server forbids fails the test at once, with the rule to add.
    """
    from steersman.runtime.controller.permissions import derive_rules

    derived, account = derive_rules(controllers), f"controllers-{uuid.uuid4().hex[:8]}"
    rights, test, denied = derived.permissions(), asyncio.current_task(), list[MissingRule]()
    assert test is not None
    is_open = True

    def note(rule: MissingRule) -> None:
        denied.append(rule)
        if is_open and len(denied) == 1:
            test.cancel()  # whatever it waits for may never come

    try:
        async with AsyncExitStack() as stack:
            for rules, everywhere in ((rights.cluster, True), (rights.namespace, False)):
                made = client_as(server, account, *rules, namespace=namespace, everywhere=everywhere)
                client = await stack.enter_async_context(made)
            _on_denial(client, note)
            narrowed = [controller.within([namespace]) for controller in controllers]
            async with running(client, *narrowed, **options) as manager:
                try:
                    yield manager
                finally:
                    is_open = False
    except asyncio.CancelledError:
        if not denied:
            raise
        test.uncancel()
    if denied:
        unread = "".join(f"\n{call}" for call in derived.unresolved)
        raise AssertionError(
            f"the controllers need a right that is not theirs: .needs({denied[0].declaration}){unread}"
        )


def _on_denial(client: Client, note: Callable[[MissingRule], None]) -> None:
    """Have every request of `client` that a rule would allow noted, whichever way it is made."""
    transport: Any = client.transport
    refused = transport._refused  # noqa: SLF001  where requests, watches and WebSockets end when they are refused

    def noted(*arguments: Any) -> Any:
        failure = refused(*arguments)
        if (rule := getattr(failure.error, "rule", None)) is not None:
            note(rule)
        return failure

    transport._refused = noted  # noqa: SLF001


def _waits_for(manager: Manager) -> str:
    problems = [f"{name}: {problem}" for name, problem in manager.ready().items() if problem is not None]
    if not manager.working.is_set():
        problems.append("the workers have not started (is another process the leader?)")
    return "; ".join(problems) or "the sources of a controller are not synced"


def _running_keys(manager: Manager) -> str:
    """Which keys are still being reconciled, which may wait for a virtual clock that the test does not move."""
    held = {name: runner.queue.describe()["counts"]["running"] for name, runner in manager.runners.items()}
    busy = [f"{name} reconciles {count}" for name, count in held.items() if count]
    return ", ".join(busy) or "no key is being reconciled"


async def _at_work(manager: Manager, controllers: tuple[Controller, ...]) -> None:
    await manager.working.wait()
    for controller in controllers:
        await manager.runner(controller.name).wait_synced()
