"""The sidecar as a process: its configuration, the way to the named next door, and a life until it is told to stop."""

from __future__ import annotations

from contextlib import AsyncExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import ConfigError, FormatError
from steersman.kube.resources import ObjectRef
from steersman.kube.rotation import RotatingFile
from steersman.operators.dns.bindcar.access import Access, Guests
from steersman.operators.dns.bindcar.neighbour import Neighbour
from steersman.operators.dns.bindcar.server import Limits, Sidecar
from steersman.operators.dns.keyfile import keys_in
from steersman.operators.dns.native import NativeDriver
from steersman.operators.dns.servers import Keys, Server
from steersman.operators.dns.tsig import Key

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from steersman.clock import Clock
    from steersman.kube.client import Client

__all__ = ["Plan", "Way", "serve"]

log = structlog.get_logger(__name__)
PAUSE = 1.0  # seconds; named is next door, and whoever asks whether it is back wants to know


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a sidecar is told."""

    zone_dir: Path
    listen: tuple[str, int] = ("127.0.0.1", 8080)
    control: tuple[str, int] = ("127.0.0.1", 953)
    dns_port: int = 53  # at the same address
    key_file: Path | None = None
    key: Key | None = None  # instead of a file
    signing_key: Key | None = None  # of updates, if it is another
    update_key: str = ""  # of the file; empty: the first
    token_file: Path | None = None
    token: str = ""  # instead of a file
    review: bool = False
    guests: Guests = Guests()
    open: bool = False  # to whoever reaches it
    statistics: str = ""
    timeout: float = 10.0  # seconds for one exchange with named
    limits: Limits = Limits()

    def __repr__(self) -> str:
        return f"Plan({str(self.zone_dir)!r}, listen={self.listen!r})"

    def check(self) -> None:
        """ConfigError when this would be open to the world, or cannot work."""
        if not self.zone_dir.is_dir():
            raise ConfigError(f"{self.zone_dir} is no directory", field="--zone-dir")
        if self.key is None and self.key_file is None:
            raise ConfigError("named's control key is needed (or RNDC_SECRET)", field="--key-file")
        known = bool(self.token or self.token_file)
        if not (known or self.review or self.open):
            raise ConfigError("say who may call: --token-file, --token-review or --no-auth", field="--token-file")
        if _is_local(self.listen[0]):
            return
        if not (known or self.review):
            raise ConfigError("without a token only a loopback address may be served", field="--listen")
        if self.review and not (known or self.guests.accounts or self.guests.namespaces):
            raise ConfigError("name the ServiceAccounts or namespaces that may call", field="--allow-service-account")


class Way:
    """The way to named with the key of now. After the key was replaced, the one before still opens an old named."""

    def __init__(self, plan: Plan, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._plan, self._clock = plan, clock
        self._file = None if plan.key_file is None else RotatingFile(plan.key_file, clock, field="--key-file")
        self._content = b""
        self._driver: NativeDriver | None = None

    def __call__(self) -> NativeDriver:
        content = b"" if self._file is None else self._file.read()
        if self._driver is None or content != self._content:
            before, self._driver = self._driver, self._new(content)
            self._content = content
            if before is not None:
                before.close()
        return self._driver

    def _new(self, content: bytes) -> NativeDriver:
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
        name = ObjectRef("named", "")
        server = Server(name, "0", "primary", address, plan.dns_port, port, keys, str(plan.zone_dir))
        return NativeDriver(server, clock=self._clock, timeout=self._plan.timeout, pause=PAUSE)

    def _keys(self, content: bytes) -> tuple[Key, Key]:
        if self._plan.key is not None:
            return self._plan.key, self._plan.signing_key or self._plan.key
        try:
            keys = keys_in(content.decode(errors="replace"))
        except FormatError as error:
            raise ConfigError(str(error), where=str(self._plan.key_file)) from None
        first = next(iter(keys.values()))
        update = keys.get(self._plan.update_key) if self._plan.update_key else first
        if update is None:
            raise ConfigError(f'holds no key "{self._plan.update_key}"', where=str(self._plan.key_file))
        return first, update

    def close(self) -> None:
        """Hang up."""
        if self._driver is not None:
            self._driver.close()


async def serve(plan: Plan, stop: asyncio.Event, *, connect: Callable[[], Client], told: Callable[[int], None]) -> None:
    """Serve until `stop`; `told` hears the port. `connect` gives a client of the cluster, if tokens are reviewed."""
    plan.check()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect()) if plan.review else None
        way = Way(plan)
        stack.callback(way.close)
        way()  # a key that cannot be read ends the process now
        access = Access(clock=SYSTEM_CLOCK, token=_token(plan), client=client, guests=plan.guests)
        neighbour = Neighbour(way, plan.zone_dir, clock=SYSTEM_CLOCK, statistics=plan.statistics)
        sidecar = Sidecar(neighbour, access, clock=SYSTEM_CLOCK, listen=plan.listen, limits=plan.limits)
        await sidecar.start()
        stack.push_async_callback(sidecar.stop)
        told(sidecar.port)
        await stop.wait()
        log.info("stopping")


def _token(plan: Plan) -> Callable[[], str] | None:
    if plan.token_file is not None:
        file = RotatingFile(plan.token_file, SYSTEM_CLOCK, field="--token-file")
        return lambda: file.read().decode(errors="replace").strip()
    return (lambda: plan.token) if plan.token else None


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
