"""Services in miniature and the toolset operator at work inside a test.

prometheus = service("prometheus", labels={"app": "prometheus"}, ports=[9090])
async with keeping(client, ToolsetSection(namespace=namespace)) as parts: ...
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.codec import codec_for
from steersman.operators.toolset.objects import ServiceLook, service_look

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from prometheus_client import CollectorRegistry

    from steersman.kube.client import Client
    from steersman.operators.toolset.probe import Prober
    from steersman.operators.toolset.types import ToolsetSection
    from steersman.runtime.manager import Manager

__all__ = ["keeping", "look", "service"]

Manifest = dict[str, Any]


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


def look(manifest: Manifest) -> ServiceLook:
    """A manifest as detection sees it."""
    body = {**manifest, "metadata": {"uid": f"uid-{manifest['metadata']['name']}", **manifest["metadata"]}}
    found: ServiceLook = codec_for(ServiceLook).object(msgspec.json.encode(body))
    return service_look(found)


@asynccontextmanager
async def keeping(
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

    from steersman.operators.toolset.controller import make_parts
    from steersman.runtime.manager import Manager
    from steersman.runtime.parts import Surroundings

    registry = registry or CollectorRegistry()
    manager = Manager(client, registry=registry, **options)
    parts = make_parts(section, Surroundings(served=served), registry=registry, prober=prober)
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
