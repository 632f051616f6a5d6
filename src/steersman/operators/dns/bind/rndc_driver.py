"""The native driver (`driver: native`): zones by the control channel of named, data by signed DNS messages.

A new primary zone needs a file. Where the operator can write the zone directory it writes the file; elsewhere named
transfers the zone from this process first (`wire.axfr_server`).
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError
from steersman.operators.dns.bind.breaker import PAUSE
from steersman.operators.dns.bind.driver import BadZone, DataPath, Static, ZoneFileAccess
from steersman.operators.dns.bind.statements import quote, read_statements, statement_text
from steersman.operators.dns.bind.zone_file import file_name, write_file, zone_file
from steersman.operators.dns.bind.zone_statements import first_copy_config, is_made_here
from steersman.operators.dns.wire.axfr_server import AxfrServer
from steersman.operators.dns.wire.client import ask_guard
from steersman.operators.dns.wire.rndc import ControlError, ControlRefused, Rndc
from steersman.operators.dns.zone.names import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.clock import Clock
    from steersman.operators.dns.bind.servers import Server
    from steersman.operators.dns.bind.statements import Statement
    from steersman.operators.dns.wire.tsig import Key as TsigKey
    from steersman.operators.dns.zone.rdata import Key, RRset, Soa

CHANNELS: Final = 4  # control connections to one server
CLEANING: Final = 0.25  # seconds in which named may still remove the files of a removed zone
FETCHES: Final = 4  # attempts
NOT_ITS_DATA: Final = (
    "not found",
    "already exists",
    "permission denied",
)  # addzone failures without a fault in the data
SHOWZONE_FAILED: Final = "failure"  # from a server without allow-new-zones, and for a zone from a catalog
CONFIGURED: Final = "reconfigurable via modzone: no"
FROM_CATALOG: Final = "files: __catz_"  # the file name of a zone from a catalog
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._/*-]")
ABSENT: Final = ("not found", "no matching zone")


class NativeDriver(DataPath):
    """See `driver.Driver`."""

    def __init__(self, server: Server, *, clock: Clock, timeout: float, pause: float = PAUSE) -> None:
        super().__init__(server, clock=clock, timeout=timeout, pause=pause)
        self._key = server.keys.control
        self._idle: list[Rndc] = []
        self._permits = asyncio.Semaphore(CHANNELS)
        self._closed = False

    # -- zones ---------------------------------------------------------------------------------------------------------

    async def configuration(self, zone: bytes) -> tuple[Statement, ...] | None:
        try:
            shown = await self.control(f"showzone {zone_word(zone)}")
        except ControlError as error:
            if any(sign in error.text for sign in ABSENT):
                return None
            if "not a dynamically" in error.text or "not dynamically" in error.text:
                return ()
            if error.text.strip() == SHOWZONE_FAILED and _origin(await self.control(f"zonestatus {zone_word(zone)}")):
                return ()
            raise
        for statement in read_statements(shown):
            if statement[:1] == ("zone",) and isinstance(statement[-1], tuple):
                return statement[-1]
        return ()

    async def create_primary(
        self, zone: bytes, config: tuple[Statement, ...], soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> None:
        try:
            await self._create(zone, config, soa, rrsets, ttl)
        except ControlError as error:
            if not error.text or any(sign in error.text for sign in NOT_ITS_DATA):
                raise
            raise BadZone(error.message, server=self.server.title, retryable=False) from None

    async def _create(
        self, zone: bytes, config: tuple[Statement, ...], soa: Soa, rrsets: Mapping[Key, RRset], ttl: int
    ) -> None:
        if await self._write_file(zone, soa, rrsets, ttl):
            try:
                await self.add(zone, config)
            except ControlError as error:
                if "file not found" not in error.text:
                    raise
            else:
                return
        for attempt in range(FETCHES):
            await self._bootstrap(zone, soa, rrsets, ttl)
            try:
                await self.add(zone, config)
            except ControlError as error:  # -clean of an earlier zone of that name removed the new file
                if "file not found" not in error.text or attempt == FETCHES - 1:
                    raise
            else:
                return

    async def create_secondary(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        await self.add(zone, config)

    async def configure(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        try:
            await self.control(f"modzone {zone_word(zone)} {{ {statement_text(config)} }};")
        except ControlError as error:
            _check_policy(error, config)
            raise

    async def added(self, zone: bytes) -> bool:
        return is_made_here(await self.configuration(zone) or (), self.server, zone)

    async def remove(self, zone: bytes) -> None:
        try:  # named would also remove a zone of its configuration, until it restarts
            state = await self.control(f"zonestatus {zone_word(zone)}")
            if origin := _origin(state):
                text = f"{text_of(zone).removesuffix('.')} is part of {origin} and is not removed"
                raise Static(text, server=self.server.title, retryable=False)
        except ControlError as error:  # a secondary without data has no status
            if any(sign in error.text for sign in ABSENT):
                return
        try:
            await self.control(f"delzone -clean {zone_word(zone)}")
        except ControlError as error:
            if not any(sign in error.text for sign in ABSENT):
                raise
            return
        for _ in range(100):  # -clean runs in the background: a zone that is added meanwhile would lose its file
            if await self.configuration(zone) is None and await self.soa(zone) is None:
                break
            await self._clock.sleep(0.02)
        await self._clock.sleep(CLEANING)

    async def refresh(self, zone: bytes) -> None:
        await self.control(f"refresh {zone_word(zone)}")

    async def signing(self, zone: bytes) -> str:
        return await self.control(f"dnssec -status {zone_word(zone)}")

    async def load_keys(self, zone: bytes) -> None:
        await self.control(f"loadkeys {zone_word(zone)}")

    async def reconfigure(self) -> None:
        await self.control("reconfig")

    async def renew(self) -> bool:
        previous = self.server.keys.previous
        if previous is not None and not await self._knows(self._key):
            await self._commanded("reconfig", previous)
            if not await self._knows(self._key):
                return False
        if await self._transfers():
            return True
        await self.control("reconfig")
        return await self._transfers()

    async def _knows(self, key: TsigKey) -> bool:
        try:
            await self._commanded("null", key)
        except ControlRefused:
            return False
        return True

    async def ready(self) -> None:
        await self.control("null")

    def close(self) -> None:
        self._closed = True
        super().close()
        while self._idle:
            self._idle.pop().close()

    # -- control channel ---------------------------------------------------------------------------------------------

    async def control(self, text: str) -> str:
        """Run a command and return its output; ControlError when named rejects it."""
        async with self._permits:
            try:
                return await self._commanded(text, self._key)
            except ControlRefused:
                previous = self.server.keys.previous
                if previous is None or previous == self._key:
                    raise
            # The server has not loaded the new key yet (see `renew`) and still accepts the previous one.
            return await self._commanded(text, previous)

    async def _commanded(self, text: str, key: TsigKey) -> str:
        channel = self._idle.pop() if self._idle and key == self._key else None
        if channel is None:
            server = self.server
            channel = Rndc(server.address, server.rndc_port, key, clock=self._clock, timeout=self._timeout)
        try:
            answer = await self._guarded(lambda: channel.command(text), "control")
        except ControlError as error:
            self._put_back(channel, key, usable=bool(error.text))
            raise
        except BaseException:
            channel.close()
            raise
        self._put_back(channel, key)
        return answer

    def _put_back(self, channel: Rndc, key: TsigKey, *, usable: bool = True) -> None:
        if usable and key == self._key and not self._closed:
            self._idle.append(channel)
        else:
            channel.close()

    async def add(self, zone: bytes, config: tuple[Statement, ...]) -> None:
        """Add a zone; the file of a primary zone must exist."""
        for attempt in range(25):
            try:
                await self.control(f"addzone {zone_word(zone)} {{ {statement_text(config)} }};")
            except ControlError as error:
                # named still has a zone that was just removed; a zone that it really has was added by another client.
                if "Not allowing new zones" in error.text:
                    raise ControlError(
                        f"{error.message}: the server accepts no new zones (set allow-new-zones yes; in its options, "
                        "or configure the zone there and set spec.recordsOnly: true of the instance)",
                        server=error.server,
                        text=error.text,
                        retryable=False,
                    ) from None
                _check_policy(error, config)
                if "already exists" not in error.text or attempt == 24 or await self.configuration(zone) is not None:
                    raise
                await self._clock.sleep(0.02)
            else:
                return

    async def _write_file(self, zone: bytes, soa: Soa, rrsets: Mapping[Key, RRset], ttl: int) -> bool:
        """Write the zone's file if the server runs on this machine and its directory is writable; returns whether."""
        directory = Path(self.server.directory)
        if not (directory.is_absolute() and _is_local(self.server.address) and os.access(directory, os.W_OK)):
            return False
        # In a thread: the text of a zone of 100,000 records takes seconds.
        text = await asyncio.to_thread(zone_file, zone, soa, rrsets, ttl)
        ask_guard("zone file", self.server.title)  # last: leadership may have ended meanwhile
        return await asyncio.to_thread(write_file, directory / file_name(zone), text)

    async def _bootstrap(self, zone: bytes, soa: Soa, rrsets: Mapping[Key, RRset], ttl: int) -> None:
        """Have the server transfer the zone from this process and keep the file."""
        key = self.server.keys.transfer
        source = AxfrServer(zone, soa, rrsets, ttl, key)
        address = address_towards(self.server.address, self.server.dns_port)
        await source.open(address)
        try:
            widest = max((len(rrset.values) for rrset in rrsets.values()), default=0)
            await self.add(zone, first_copy_config(self.server, zone, (address, source.port), widest))
            until = self._clock.monotonic() + 4 * self._timeout  # named retries a lost query after 15 s
            asked = False
            while (served := await self.soa(zone)) != soa.value():
                if served is not None and not asked:  # an old file is there, and named considers it current
                    asked = True
                    await self.control(f"retransfer {zone_word(zone)}")
                if self._clock.monotonic() < until:
                    await self._clock.sleep(0.02)
                    continue
                await self.control(f"delzone -clean {zone_word(zone)}")
                raise ZoneFileAccess(
                    f"the server cannot transfer {text_of(zone)} from {address}, and the operator cannot write its "
                    "zone directory (set spec.zoneDirectory to a directory that both can use)",
                    server=self.server.title,
                )
            await self.control(f"sync {zone_word(zone)}")
            await self.control(f"delzone {zone_word(zone)}")
        finally:
            await source.close()


def _origin(state: str) -> str:
    """The origin of a zone that was not added by a command, from the output of `zonestatus`; else empty."""
    if CONFIGURED in state:
        return "its own configuration"
    return "a catalog" if FROM_CATALOG in state else ""


def zone_word(zone: bytes) -> str:
    """A zone as commands name it; FormatError for a name with other characters than zones have."""
    text = text_of(zone).removesuffix(".")
    if _UNUSUAL.search(text):
        raise FormatError(f'"{text}" is not a name for a zone (letters, digits, dots and - _ / * only)')
    return quote(text)


def _check_policy(error: ControlError, config: tuple[Statement, ...]) -> None:
    """Raise an error that names the policy when named reports only `not found`."""
    policy = next((row[1] for row in config if row[0] == "dnssec-policy"), None)
    if policy and error.text.strip().startswith(ABSENT[0]):
        raise ControlError(
            f"{error.message}: is dnssec-policy {policy} (spec.dnssecPolicy of the zone) in its configuration?",
            server=error.server,
            text=error.text,
            retryable=False,
        ) from None


def _is_local(address: str) -> bool:
    """Whether `address` belongs to this machine."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def address_towards(address: str, port: int) -> str:
    """Our own address on the route to a server."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        found: Any = probe.getsockname()[0]
    return str(found)
