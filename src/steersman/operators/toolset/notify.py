"""Telling the consumer that its file changed, because a stock HolmesGPT does not notice a changed URL. Off by default.

`reload` calls an admin endpoint, `template` puts a hash on the pod template of a Deployment (with the reload operator a
mounted ConfigMap does the same without this). Both wait for the kubelet to bring the files to the pods first. Which
content was told is in the cluster (an annotation of the ConfigMap, or the template itself), so a process that ends
while somebody is still to be told leaves that to the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aiohttp

from steersman.kube.errors import KubeError
from steersman.operators.toolset.apply import note, write_template_hash
from steersman.operators.toolset.plan import TOLD

if TYPE_CHECKING:
    from steersman.operators.toolset.metrics import ToolsetMetrics
    from steersman.operators.toolset.objects import TargetMap
    from steersman.operators.toolset.types import Settings
    from steersman.runtime.context import Context

__all__ = ["Notifier"]

ANNOTATION: Final = "steersman.dev/toolset-hash"  # on a pod template
_TIMEOUT: Final = 10.0
_AGAIN: Final = 30.0  # seconds after a call that failed


class Notifier:
    """Who is still to be told, and when."""

    def __init__(self, metrics: ToolsetMetrics) -> None:
        self._metrics = metrics
        self._due: dict[tuple[str, str], tuple[float, str]] = {}  # target -> when (monotonic), of which content
        self._told: dict[tuple[str, str], str] = {}

    async def run(
        self, ctx: Context, settings: Settings, target: TargetMap | None, *, digest: str
    ) -> tuple[float | None, TargetMap | None]:
        """Tell who is due: in how many seconds the next one is, and the ConfigMap when it was written on."""
        mode, key = settings.notify.mode, (settings.namespace, settings.name)
        if mode == "off" or ctx.dry_run or target is None:
            return None, None
        now, annotation = ctx.clock.monotonic(), f"{settings.prefix}{TOLD}"
        told = target.annotations.get(annotation) if mode == "reload" else self._told.get(key)
        if told == digest:
            self._due.pop(key, None)
            return None, None
        if self._due.get(key, (0, ""))[1] != digest:
            self._due[key] = (now + settings.notify_delay, digest)
        when, _ = self._due[key]
        if now < when:
            return when - now, None
        if not await self._told_it(ctx, settings, digest):
            self._due[key] = (now + _AGAIN, digest)
            return _AGAIN, None
        del self._due[key]
        self._told[key] = digest
        return None, await note(ctx, target, annotation, digest) if mode == "reload" else None

    async def _told_it(self, ctx: Context, settings: Settings, digest: str) -> bool:
        try:
            if settings.notify.mode == "template":
                fine = await write_template_hash(ctx, settings.notify.deployment, ANNOTATION, digest)
            else:
                fine = await _call(settings.notify.url)
        except (aiohttp.ClientError, OSError, TimeoutError, KubeError) as error:
            ctx.log.warning("consumer not told", component="reconciliation", error=type(error).__name__)
            fine = False
        self._metrics.notifications.labels("success" if fine else "failure").inc()
        return fine


async def _call(url: str) -> bool:
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, allow_redirects=False) as answer:
        return 200 <= answer.status < 300
