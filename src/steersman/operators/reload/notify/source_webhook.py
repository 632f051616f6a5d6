"""A call in the place of every restart, as Reloader makes it with `--webhook-url`: whenever a source changes.

Nothing is restarted then, and no workload is read. What is sent is always the same and does not say what changed. A
change that comes while a call for the same source waits is one call. What is not delivered when the process ends is
not sent later, as with Reloader: there is no workload to record it on.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog

from steersman.errors import ConfigError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.reload.planning.snapshot import NamespaceSettings
from steersman.operators.reload.sources.csi import ProviderStatus, status_transform
from steersman.operators.reload.sources.digest import ConfigMapSource, SecretSource, source_transform
from steersman.runtime.http.outbound import outbound_session, send

if TYPE_CHECKING:
    from steersman.cache.interfaces import HandlerRegistration, Informer
    from steersman.clock import Clock
    from steersman.operators.reload.api.config import ReloadOptions, SourceRef, WebhookConfig
    from steersman.operators.reload.sources.digest import Source
    from steersman.runtime.cluster import Cluster

BODY: Final = b'{"webhook":"update successful"}'  # Reloader's, to the byte
ATTEMPTS: Final = 6  # the first and five more, as Reloader has it

log = structlog.get_logger(__name__)


class SourceWebhook:
    """The task that watches sources and calls."""

    def __init__(self, options: ReloadOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._url = _url(options.webhook)
        self._pending: dict[SourceRef, None] = {}
        self._changed = asyncio.Event()
        self._namespaces: Informer[Any] | None = None

    async def run(self, cluster: Cluster) -> None:
        """Watch and call until cancelled."""
        if self._options.namespace_selector is not None and self._options.namespaces is None:
            self._namespaces = cluster.caches.informer(NamespaceSettings)
            await self._namespaces.wait_synced()
        registrations = self._watch(cluster)
        try:
            async with outbound_session() as session:
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    while self._pending:
                        source = next(iter(self._pending))
                        del self._pending[source]
                        await self._call(session, source)
        finally:
            for registration in registrations:
                registration.remove()

    def _watch(self, cluster: Cluster) -> list[HandlerRegistration]:
        options, informer = self._options, partial(cluster.caches.informer, namespaces=self._options.namespaces)
        watched: list[Informer[Any]] = []
        digested = partial(informer, label_selector=options.source_selector, transform=source_transform(frozenset()))
        if options.watch_configmaps:
            watched.append(digested(ConfigMapSource))
        if options.watch_secrets:
            watched.append(digested(SecretSource))
        if options.watch_providers:
            watched.append(informer(ProviderStatus, transform=status_transform(()), optional=True))
        return [informer.add_handler(self._observe) for informer in watched]

    def _observe(self, old: Source | None, new: Source | None, initial: bool) -> None:
        source = old if new is None else new
        if initial or source is None or not self._takes_part(source.namespace):
            return
        if old is not None and new is not None:
            calls = old.digests != new.digests
        else:
            wanted = self._options.reload_on_delete if new is None else self._options.reload_on_create
            calls = wanted and not isinstance(source, ProviderStatus)
        if calls:
            self._pending[source.source] = None
            self._changed.set()

    def _takes_part(self, namespace: str) -> bool:
        selector = self._options.namespace_selector
        if namespace in self._options.ignored_namespaces:
            return False
        if self._namespaces is None or selector is None:
            return True
        with self._namespaces.snapshot() as namespaces:
            found = namespaces.get(NamespacedName(namespace))
        return found is not None and selector.matches(found.labels)

    async def _call(self, session: Any, source: SourceRef) -> None:
        host = str(urlsplit(self._url).hostname)
        sent = await send(
            session,
            self._url,
            effect="webhook",
            target=host,
            attempts=ATTEMPTS,
            clock=self._clock,
            data=BODY,
            headers={"Content-Type": "application/json"},
        )
        if sent.error:
            log.warning("webhook not delivered", source=str(source), receiver=host, error=sent.error)
        elif not sent.withheld:
            log.info("webhook called", source=str(source), receiver=host)


def _url(webhook: WebhookConfig) -> str:
    """The address; it may contain a secret and is never logged."""
    url = webhook.url or os.environ.get(webhook.url_from, "").strip()
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"the variable {webhook.url_from} does not hold a URL (https://…)", field="reload.webhook.urlFrom"
        )
    return url
