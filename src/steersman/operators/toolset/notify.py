"""Telling the consumer that its file changed, because a stock HolmesGPT does not notice a changed URL. Off by default.

`reload` calls an admin endpoint, `template` puts a hash on the pod template of a Deployment (with the reload operator a
mounted ConfigMap does the same without this). Both wait for the kubelet to bring the files to the pods first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import aiohttp

from steersman.kube.errors import KubeError
from steersman.operators.toolset.apply import write_template_hash

if TYPE_CHECKING:
    from steersman.operators.toolset.metrics import ToolsetMetrics
    from steersman.operators.toolset.types import Settings
    from steersman.runtime.context import Context

__all__ = ["Notifier"]

ANNOTATION: Final = "steersman.dev/toolset-hash"
_TIMEOUT: Final = 10.0
_AGAIN: Final = 30.0  # seconds after a call that failed


class Notifier:
    """Who is still to be told, and when."""

    def __init__(self, metrics: ToolsetMetrics) -> None:
        self._metrics = metrics
        self._due: dict[tuple[str, str], tuple[float, str]] = {}  # target -> when (monotonic), of which content
        self._told: dict[tuple[str, str], str] = {}

    async def run(self, ctx: Context, settings: Settings, *, digest: str, changed: bool) -> float | None:
        """Note a change, tell who is due, and answer in how many seconds the next one is."""
        mode, key = settings.notify.mode, (settings.namespace, settings.name)
        if mode == "off" or ctx.dry_run:
            return None
        now = ctx.clock.monotonic()
        if (
            (changed or mode == "template")
            and self._told.get(key) != digest
            and self._due.get(key, (0, ""))[1] != digest
        ):
            self._due[key] = (now + (settings.notify_delay if changed else 0.0), digest)
        if key not in self._due:
            return None
        when, content = self._due[key]
        if now < when:
            return when - now
        if not await self._told_it(ctx, settings, content):
            self._due[key] = (now + _AGAIN, content)
            return _AGAIN
        del self._due[key]
        self._told[key] = content
        return None

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
