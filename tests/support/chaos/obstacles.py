"""What stands in the way of every write in a namespace, until an administrator removes it.

A quota that is exhausted, and a webhook whose certificate has expired: the API server answers 403 or 500.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from base64 import b64encode
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from steersman.certificates import Authority, load_pair
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.kube.client.client import Client

__all__ = ["exhausted_quota", "expired_webhook"]

COUNTED = ("pods", "configmaps", "secrets", "services", "count/deployments.apps")
QUOTA = Kind(group="", version="v1", kind="ResourceQuota", plural="resourcequotas", namespaced=True)
WEBHOOK = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)
LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@asynccontextmanager
async def exhausted_quota(client: Client, namespace: str, name: str) -> AsyncIterator[None]:
    """A quota that allows no new object."""
    spec = {"hard": dict.fromkeys(COUNTED, "0")}
    meta = {"name": name, "namespace": namespace}
    await client.create({"apiVersion": "v1", "kind": QUOTA.kind, "metadata": meta, "spec": spec})
    try:
        yield
    finally:
        await client.delete(QUOTA, name, namespace=namespace)


@asynccontextmanager
async def expired_webhook(client: Client, namespace: str, name: str) -> AsyncIterator[None]:
    """A webhook for everything that is written, which the API server cannot ask: its certificate has expired."""
    context, trust = _expired()
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    every = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["CREATE", "UPDATE"]}
    webhook = {
        "name": "expired.example.org",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": trust},
        "rules": [every],
        "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    made = {"apiVersion": WEBHOOK.api_version, "kind": WEBHOOK.kind, "metadata": {"name": name}, "webhooks": [webhook]}
    await client.create(made)
    try:
        yield
    finally:
        await client.delete(WEBHOOK, name)
        server.close()


@cache
def _expired() -> tuple[ssl.SSLContext, str]:
    authority = Authority("chaos", now=LONG_AGO, life=dt.timedelta(days=36500))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, authority.server("127.0.0.1", now=LONG_AGO, life=dt.timedelta(days=1)))
    return context, b64encode(authority.pem).decode()
