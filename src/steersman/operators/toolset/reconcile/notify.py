"""Notifies the consumer that its file changed, because a stock HolmesGPT does not notice a changed URL. Off by default.

`reload` calls an admin endpoint, `template` puts a hash on the pod template of a Deployment (the reload operator does
the same for a mounted ConfigMap without this). Both first wait for the kubelet to update mounted files. Which content
the consumer was notified of is recorded in the cluster (an annotation of the ConfigMap, or the pod template), so a
process that ends before a notification leaves it to the next process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from steersman.kube.api.errors import KubeError
from steersman.operators.toolset.reconcile.apply import annotate, write_template_hash
from steersman.operators.toolset.reconcile.plan import NOTIFIED_HASH
from steersman.runtime.http.outbound import outbound_session, send

if TYPE_CHECKING:
    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.api.crd import TargetConfigMap
    from steersman.operators.toolset.reconcile.metrics import ToolsetMetrics
    from steersman.runtime.reconcile.context import Context

ANNOTATION: Final = "steersman.dev/toolset-hash"  # on a pod template
_RETRY_SECONDS: Final = 30.0


class ConsumerNotifier:
    """The notifications of one target."""

    def __init__(self, metrics: ToolsetMetrics) -> None:
        self._metrics = metrics
        self._due: tuple[float, str] | None = None  # when (monotonic), and the digest it is for
        self._notified = ""  # the digest on the pod template

    async def run(
        self, ctx: Context, settings: TargetSettings, target: TargetConfigMap | None, *, digest: str
    ) -> tuple[float | None, TargetConfigMap | None]:
        """Notify when due; returns the seconds until the next attempt, and the ConfigMap when it was annotated."""
        mode = settings.notify.mode
        if mode == "off" or ctx.dry_run or target is None:
            return None, None
        now, annotation = ctx.clock.monotonic(), f"{settings.prefix}{NOTIFIED_HASH}"
        notified = target.annotations.get(annotation) if mode == "reload" else self._notified
        if notified == digest:
            self._due = None
            return None, None
        if self._due is None or self._due[1] != digest:
            self._due = (now + settings.notify_delay, digest)
        if now < self._due[0]:
            return self._due[0] - now, None
        if not await self._notify(ctx, settings, digest):
            self._due = (now + _RETRY_SECONDS, digest)
            return _RETRY_SECONDS, None
        self._due, self._notified = None, digest
        return None, await annotate(ctx, target, annotation, digest) if mode == "reload" else None

    async def _notify(self, ctx: Context, settings: TargetSettings, digest: str) -> bool:
        if settings.notify.mode == "template":
            error = await self._write_hash(ctx, settings.notify.deployment, digest)
        else:
            host = str(urlsplit(settings.notify.url).hostname)
            async with outbound_session() as session:
                sent = await send(session, settings.notify.url, effect="toolset notification", target=host)
            error = sent.error or ("dry run" if sent.withheld else "")
        if error:
            ctx.log.warning("notification failed", component="reconciliation", error=error)
        self._metrics.notifications.labels("failure" if error else "success").inc()
        return not error

    async def _write_hash(self, ctx: Context, deployment: str, digest: str) -> str:
        """Write the hash to the pod template; why not, or empty."""
        try:
            found = await write_template_hash(ctx, deployment, ANNOTATION, digest)
        except KubeError as error:
            return type(error).__name__
        return "" if found else f"Deployment {deployment} not found"
