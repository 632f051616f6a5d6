"""The certificate watcher: a TLS context that serves with what its source has now.

The source is asked every `CHECK_SECONDS`, and a new certificate serves from the next handshake on: no connection is
closed. While the source fails, the certificate in use keeps serving. A certificate that expired, or that should have
been renewed long ago, is reported by `problem`, `warning` and the log.
"""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING

from steersman.certificates import load_pair
from steersman.clock import SYSTEM_CLOCK
from steersman.logger import FloodLog, Logger
from steersman.runtime.webhook.certificates import validity_of

if TYPE_CHECKING:
    from prometheus_client import Gauge

    from steersman.clock import Clock
    from steersman.runtime.webhook.certificate_source import CertificateSource
    from steersman.runtime.webhook.certificates import Validity

__all__ = ["CertWatcher"]

REPEAT_SECONDS = 3600.0  # between two lines about a certificate that is not renewed
CHECK_SECONDS = 30.0  # how often certificates are checked

log = Logger(__name__)


class CertWatcher:
    """Load once, serve with `context`, and `run` beside it."""

    def __init__(self, source: CertificateSource, *, expires: Gauge | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """`expires` is the metric that says when the certificate in use does."""
        self._source, self._expires, self._clock = source, expires, clock
        self._validity: Validity | None = None
        self._floods = FloodLog(log, seconds=REPEAT_SECONDS, clock=clock)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    async def load(self) -> None:
        """Serve with what the source has now; raises what is wrong with it."""
        material = await self._source.load()
        if material is not None:
            load_pair(self.context, material)
            self._validity = validity_of(material.certificate)
            if self._expires is not None:
                self._expires.set(self._validity.ends.timestamp())

    async def run(self) -> None:
        """Follow the source until cancelled."""
        while True:
            self._report()
            await self._clock.sleep(CHECK_SECONDS)
            try:
                await self.load()
            except Exception as error:  # noqa: BLE001  # the certificate in use still serves; say it and try again
                log.warning("certificates could not be refreshed", error=str(error))

    def problem(self) -> str | None:
        """Why clients refuse the certificate in use; None when they do not."""
        return None if self._validity is None else self._validity.problem(self._now())

    def warning(self) -> str | None:
        """A warning before clients refuse the certificate."""
        return None if self._validity is None else self._validity.warning(self._now())

    def _now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._clock.time(), dt.UTC)

    def _report(self) -> None:
        if (problem := self.problem()) is not None:
            self._floods.error("certificate refused by clients", problem=problem)
        elif (warning := self.warning()) is not None:
            self._floods.warning("certificate not renewed", problem=warning)
