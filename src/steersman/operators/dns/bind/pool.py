"""One driver per server, kept as long as the server exists.

A driver is kept by everything that makes a server what it is, so a changed key or address means a new driver. The old
one is closed a minute later; the driver of a server that is gone is closed when its instance is reconciled.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import DriverError
from steersman.kube.config.reloading_file import ReloadingFile
from steersman.operators.dns.bind.breaker import PAUSE
from steersman.operators.dns.bind.http_driver import BindcarDriver
from steersman.operators.dns.bind.rndc_driver import NativeDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from steersman.clock import Clock
    from steersman.kube.api.gvk import NamespacedName
    from steersman.operators.dns.bind.driver import Driver
    from steersman.operators.dns.bind.servers import Server

CLOSE_AFTER: Final = 60.0  # seconds after which a replaced driver is closed


class DriverPool:
    """Drivers by server."""

    def __init__(
        self,
        *,
        clock: Clock,
        timeout: float,
        pause: float = PAUSE,
        token_file: str = "",
        token_namespaces: frozenset[str] = frozenset(),
    ) -> None:
        self._clock = clock
        self._driver_options: dict[str, Any] = {"clock": clock, "timeout": timeout, "pause": pause}
        self._token_namespaces = token_namespaces
        self._token = ReloadingFile(Path(token_file), clock, field="dns.bindcarTokenFile") if token_file else None
        self._drivers: dict[Server, Driver] = {}
        self._by_id: dict[str, Server] = {}
        self._closed = False
        self._on_attempt: Callable[[Server, str, str], None] | None = None

    def listen(self, on_attempt: Callable[[Server, str, str], None]) -> None:
        """Call `on_attempt` with the result of every request: server, channel, and the problem or an empty text."""
        self._on_attempt = on_attempt

    def driver(self, server: Server) -> Driver:
        """The driver of a server as it is now."""
        found = self._drivers.get(server)
        if found is None and self._closed:
            raise DriverError("this process is stopping", server=server.title)
        older = self._by_id.get(server.id)
        if older is not None and older != server:  # requests on it may finish
            self._clock.call_at(self._clock.monotonic() + CLOSE_AFTER, partial(self._close_replaced, older))
        self._by_id[server.id] = server
        if found is None:
            made = (
                BindcarDriver(server, **self._driver_options, token=self._token_for(server))
                if server.api_port
                else NativeDriver(server, **self._driver_options)
            )
            made.on_attempt = self._on_attempt
            found = self._drivers[server] = made
        return found

    def current(self, server: Server) -> Driver | None:
        """The driver of a server, unless the server has changed or is gone."""
        return self._drivers.get(server) if self._by_id.get(server.id) == server else None

    def _gets_operator_token(self, server: Server) -> bool:
        """Whether an administrator allows the operator's own token to be sent there: a tenant chooses the address."""
        return not {"*", server.instance.namespace}.isdisjoint(self._token_namespaces)

    def _token_for(self, server: Server) -> Callable[[], str]:
        return self._operator_token if self._gets_operator_token(server) else str

    def _operator_token(self) -> str:
        return "" if self._token is None else self._token.read().decode("ascii", "replace").strip()

    def _close_replaced(self, server: Server) -> None:
        if self._by_id.get(server.id) != server and (driver := self._drivers.pop(server, None)) is not None:
            driver.close()

    def keep(self, instance: NamespacedName, servers: Iterable[Server]) -> None:
        """Close the drivers of servers that an instance no longer has."""
        kept = {server.id for server in servers}
        for gone in [server for server in self._drivers if server.instance == instance and server.id not in kept]:
            self._drivers.pop(gone).close()
            self._by_id.pop(gone.id, None)

    @property
    def servers(self) -> list[Server]:
        """The servers that have a driver."""
        return list(self._drivers)

    def close(self) -> None:
        """Close all drivers; no new ones are made."""
        self._closed = True
        while self._drivers:
            self._drivers.popitem()[1].close()
        self._by_id.clear()
