"""The sidecar process: its configuration, the driver of the local named, and serving until it is stopped."""

from __future__ import annotations

from contextlib import AsyncExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError, FormatError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.config.reloading_file import ReloadingFile
from steersman.operators.dns.bind.rndc_driver import NativeDriver
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.statements import read_keys
from steersman.operators.dns.sidecar.access import Access, AllowedUsers
from steersman.operators.dns.sidecar.local_named import LocalNamed
from steersman.operators.dns.sidecar.server import RequestLimits, Sidecar
from steersman.operators.dns.wire.tsig import Key

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.kube.client.client import Client

log = structlog.get_logger(__name__)
PAUSE = 1.0  # seconds of the circuit breaker: named is local, so retry soon


class SidecarConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a sidecar."""

    zone_dir: Path
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    control: tuple[str, int] = ("127.0.0.1", 953)
    dns_port: int = 53  # on the address of the control channel
    key_file: Path | None = None
    key: Key | None = None  # instead of a file
    signing_key: Key | None = None  # of updates, if it differs
    update_key: str = ""  # its name in the file; empty: the first key
    token_file: Path | None = None
    token: str = ""  # instead of a file
    review: bool = False
    allowed: AllowedUsers = AllowedUsers()
    open: bool = False  # no authentication
    statistics: str = ""
    timeout: float = 10.0  # seconds for one exchange with named
    limits: RequestLimits = RequestLimits()

    def __repr__(self) -> str:
        return f"SidecarConfig({str(self.zone_dir)!r}, listen={self.listen!r})"

    def check(self) -> None:
        """ConfigError when the sidecar would be open to the network, or cannot work."""
        if not self.zone_dir.is_dir():
            raise ConfigError(f"{self.zone_dir} is not a directory", field="--zone-dir")
        if self.key is None and self.key_file is None:
            raise ConfigError("the control key of named is required (or RNDC_SECRET)", field="--key-file")
        known = bool(self.token or self.token_file)
        if not (known or self.review or self.open):
            raise ConfigError(
                "choose the authentication: --token-file, --token-review or --no-auth", field="--token-file"
            )
        if _is_local(self.listen[0]):
            return
        if not (known or self.review):
            raise ConfigError("without authentication only a loopback address is allowed", field="--listen")
        if self.review and not (known or self.allowed.accounts or self.allowed.namespaces):
            raise ConfigError(
                "name the ServiceAccounts or namespaces that are allowed", field="--allow-service-account"
            )


class NamedDriver:
    """The driver of named with the current key; the previous key still works until named has loaded a new one."""

    def __init__(self, plan: SidecarConfig, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._plan, self._clock = plan, clock
        self._file = None if plan.key_file is None else ReloadingFile(plan.key_file, clock, field="--key-file")
        self._content = b""
        self._driver: NativeDriver | None = None

    def __call__(self) -> NativeDriver:
        content = b"" if self._file is None else self._file.read()
        if self._driver is None or content != self._content:
            before, self._driver = self._driver, self._new_driver(content)
            self._content = content
            if before is not None:
                before.close()
        return self._driver

    def _new_driver(self, content: bytes) -> NativeDriver:
        control, update = self._keys(content)
        before = self._driver.server.keys if self._driver is not None else None
        keys = Keys(
            control,
            update,
            update,
            previous=before.control if before is not None else None,
            previous_update=before.update if before is not None else None,
        )
        plan = self._plan
        address, port = plan.control
        name = NamespacedName("named", "")
        server = Server(name, "0", "primary", address, plan.dns_port, port, keys, str(plan.zone_dir))
        return NativeDriver(server, clock=self._clock, timeout=self._plan.timeout, pause=PAUSE)

    def _keys(self, content: bytes) -> tuple[Key, Key]:
        if self._plan.key is not None:
            return self._plan.key, self._plan.signing_key or self._plan.key
        try:
            keys = read_keys(content.decode(errors="replace"))
        except FormatError as error:
            raise ConfigError(str(error), where=str(self._plan.key_file)) from None
        first = next(iter(keys.values()))
        update = keys.get(self._plan.update_key) if self._plan.update_key else first
        if update is None:
            raise ConfigError(f'contains no key "{self._plan.update_key}"', where=str(self._plan.key_file))
        return first, update

    def close(self) -> None:
        """Close all connections."""
        if self._driver is not None:
            self._driver.close()


async def serve(
    plan: SidecarConfig, stop: asyncio.Event, *, connect: Callable[[], Client], listening: Callable[[int], None]
) -> None:
    """Serve until `stop`; calls `listening` with the port. `connect` makes a client when tokens are reviewed."""
    plan.check()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect()) if plan.review else None
        driver = NamedDriver(plan)
        stack.callback(driver.close)
        driver()  # fails now when the key is not readable
        access = Access(clock=SYSTEM_CLOCK, token=_token(plan), client=client, allowed=plan.allowed)
        named = LocalNamed(driver, plan.zone_dir, clock=SYSTEM_CLOCK, statistics=plan.statistics)
        sidecar = Sidecar(named, access, clock=SYSTEM_CLOCK, listen=plan.listen, limits=plan.limits)
        await sidecar.start()
        stack.push_async_callback(sidecar.stop)
        listening(sidecar.port)
        await stop.wait()
        log.info("stopping")


def _token(plan: SidecarConfig) -> Callable[[], str] | None:
    if plan.token_file is not None:
        file = ReloadingFile(plan.token_file, SYSTEM_CLOCK, field="--token-file")
        return lambda: file.read().decode(errors="replace").strip()
    return (lambda: plan.token) if plan.token else None


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
