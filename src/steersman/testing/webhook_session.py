"""Webhooks at work inside a test: the API server asks the functions of the test's own process."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from steersman.kube.api.gvk import Kind
from steersman.testing.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.kube.client.client import Client
    from steersman.runtime.webhook.admission import AdmissionRequest, Webhook
    from steersman.runtime.webhook.server import WebhookServer

__all__ = ["serving_webhooks"]

TIMEOUT = 90.0  # seconds of the machine's own time
HOST = "127.0.0.1"
PROBE = "testing.steersman.dev/probe"  # the label of ConfigMaps that only our probes are asked about
_CONFIG_MAPS = Kind(version="v1", kind="ConfigMap", plural="configmaps")


@asynccontextmanager
async def serving_webhooks(
    client: Client, *webhooks: Webhook, namespace: str, timeout: float = TIMEOUT
) -> AsyncIterator[WebhookServer]:
    """Serve webhooks until the block ends, and have the API server ask them about what happens in `namespace`.

    The block begins when the API server asks. It reaches them on this machine, with certificates of their own. Objects
    of a kind that has no namespace are asked about wherever they are written. Definitions of the kinds must exist.
    """
    from msgspec.structs import replace
    from prometheus_client import CollectorRegistry

    from steersman.kube.api.errors import NotFound
    from steersman.runtime.webhook.certificate_source import CONFIGURATIONS, SECRETS, ManagedCertificates
    from steersman.runtime.webhook.server import WebhookServer, webhook_configurations

    name = f"webhooks-{uuid.uuid4().hex[:10]}"
    asked: set[bool] = set()
    here = f"kubernetes.io/metadata.name={namespace}"
    hooks = [
        replace(
            hook,
            namespace_selector=_both(hook.namespace_selector, here),
            object_selector=_both(hook.object_selector, f"!{PROBE}"),
        )
        for hook in webhooks
    ]
    hooks += _probes(
        asked, {hook.mutating for hook in hooks}, namespace_selector=here, object_selector=f"{PROBE}={name}"
    )
    certificates = ManagedCertificates(client, namespace=namespace, secret=name, names=[HOST], configuration=name)
    server = WebhookServer(hooks, certificates, host=HOST, port=0, registry=CollectorRegistry())
    task = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(timeout):
            await _first(task, server.serving.wait())
        manifests = webhook_configurations(
            hooks, name=name, client_config=lambda path: {"url": f"https://{HOST}:{server.port}{path}"}
        )
        for manifest in manifests:
            await client.create(manifest)
        await certificates.load()  # the new configurations get the authority
        probe = {"metadata": {"name": name, "namespace": namespace, "labels": {PROBE: name}}}

        async def all_asked() -> bool:
            await client.create({"apiVersion": "v1", "kind": "ConfigMap", **probe}, dry_run=True)
            return len(asked) == len(manifests)

        await eventually(all_asked, "the API server asks the webhooks", timeout=timeout)
        yield server
    finally:
        for kind, where in (*((kind, None) for kind in CONFIGURATIONS), (SECRETS, namespace)):
            with suppress(NotFound):
                await client.delete(kind, name, namespace=where)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _both(*selectors: str) -> str:
    return ",".join(filter(None, selectors))


def _probes(asked: set[bool], roles: set[bool], **selectors: str) -> list[Webhook]:
    """A webhook per configuration that only notes that it was asked."""
    from steersman.runtime.webhook.admission import mutate, validate

    def probe(mutating: bool) -> Webhook:
        async def steersman_probe(_: AdmissionRequest[dict[str, Any]]) -> None:
            asked.add(mutating)

        decorate: Any = mutate if mutating else validate
        hook: Webhook = decorate(_CONFIG_MAPS, operations=("CREATE",), **selectors)(steersman_probe)
        return hook

    return [probe(mutating) for mutating in sorted(roles)]


async def _first(task: asyncio.Task[None], event: Any) -> None:
    """Wait for the event; a server that ends before it says why."""
    waiting = asyncio.ensure_future(event)
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiting.cancel()
        await task
