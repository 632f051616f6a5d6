"""Services in miniature and the toolset operator at work inside a test.

prometheus = service("prometheus", labels={"app": "prometheus"}, ports=[9090])
async with running_toolset(client, ToolsetSection(namespace=namespace)) as parts: ...
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from steersman.kube.client.codec import codec_for
from steersman.operators.toolset.api.config import OVERRIDES_KEY
from steersman.operators.toolset.api.crd import ServiceSummary, summarize_service
from steersman.operators.toolset.reconcile.current import Backup, CurrentState
from steersman.operators.toolset.reconcile.desired import DesiredState, desired_state

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.kube.client.client import Client
    from steersman.operators.toolset.api.config import TargetSettings, ToolsetSection
    from steersman.operators.toolset.discovery.probe import Prober
    from steersman.runtime.manager.manager import Manager

__all__ = ["desired_from", "parsed", "running_toolset", "service"]

Manifest = dict[str, Any]

SPEED = 20.0  # of the operator's clock: its quiet periods and retries keep their proportions


def service(
    name: str,
    *,
    namespace: str = "monitoring",
    labels: Manifest | None = None,
    annotations: Manifest | None = None,
    ports: Sequence[int | tuple[str, int] | Manifest] = (),
    **spec: Any,
) -> Manifest:
    """A Service as a manifest; a port is a number, a name and a number, or all of it."""
    rows: list[Manifest] = []
    for port in ports:
        if isinstance(port, dict):
            rows.append(port)
        elif isinstance(port, tuple):
            rows.append({"name": port[0], "port": port[1]})
        else:
            rows.append({"port": port})
    meta: Manifest = {"name": name, "namespace": namespace}
    if labels:
        meta["labels"] = labels
    if annotations:
        meta["annotations"] = {key if "/" in key else f"kubernaut.io/{key}": text for key, text in annotations.items()}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": rows, **spec}}


def parsed(manifest: Manifest) -> ServiceSummary:
    """A manifest as the cache holds it."""
    body = {**manifest, "metadata": {"uid": f"uid-{manifest['metadata']['name']}", **manifest["metadata"]}}
    found: ServiceSummary = codec_for(ServiceSummary).object(msgspec.json.encode(body))
    return summarize_service(found)


def desired_from(
    services: Iterable[ServiceSummary],
    settings: TargetSettings,
    *,
    overrides: str | None = None,
    last_valid: str | None = None,
    current: CurrentState = CurrentState(),  # noqa: B008  # frozen
    health: Any = None,
) -> DesiredState:
    """The desired state for these Services, with overrides in the target ConfigMap."""
    if overrides is not None:
        current = replace(current, foreign={**current.foreign, OVERRIDES_KEY: overrides})
    if last_valid is not None:
        current = replace(current, backup=Backup(last_valid=last_valid))
    return desired_state(replace(current, services=tuple(services)), settings, health=health)


@asynccontextmanager
async def running_toolset(
    client: Client,
    section: ToolsetSection,
    *,
    registry: CollectorRegistry | None = None,
    prober: Prober | None = None,
    served: frozenset[Any] | None = None,
    **options: Any,
) -> AsyncIterator[Manager]:
    """Run the operator until the block ends; `options` are the manager's."""
    from prometheus_client import CollectorRegistry

    from steersman.operators.toolset.reconcile.setup import make_bundle
    from steersman.runtime.manager.manager import Manager
    from steersman.runtime.manager.operator_bundle import RuntimeEnvironment
    from steersman.testing import FastClock

    registry = registry or CollectorRegistry()
    options.setdefault("clock", FastClock(SPEED))
    manager = Manager(client, registry=registry, **options)
    parts = make_bundle(section, RuntimeEnvironment(served=served), registry=registry, prober=prober)
    manager.include("toolset", parts)
    task = asyncio.create_task(manager.run())
    try:
        working = asyncio.create_task(manager.working.wait())
        await asyncio.wait({task, working}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            working.cancel()
            await task
        yield manager
    finally:
        manager.stop()
        await task
