"""The native driver: named's control channel, signed updates and transfers, and nothing beside the server itself."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steersman.operators.dns.datapath import DataPath
from steersman.operators.dns.driver import BadZone, Static, ZoneFileAccess
from steersman.operators.dns.names import text_of
from steersman.operators.dns.rndc import ControlError, ControlRefused, Rndc
from steersman.operators.dns.servers import PAUSE
from steersman.operators.dns.source import ZoneSource
from steersman.operators.dns.zonetext import file_name, quote, read_statements, statement_text, zone_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.clock import Clock
    from steersman.operators.dns.rrsets import Key, RRset, Soa
    from steersman.operators.dns.servers import Server
    from steersman.operators.dns.tsig import Key as TsigKey
    from steersman.operators.dns.zonetext import Statement

__all__ = ["ABSENT", "NativeDriver", "address_towards", "file_of", "room_for", "write_file", "zone_word"]

CHANNELS: Final = 4  # control connections: named works on one command at a time, but we need not wait in line to ask
CLEANING: Final = 0.25  # seconds that the files of a removed zone may still be there, though nobody can see it
FETCHES: Final = 4
USUAL: Final = 100  # values of one RRset that named takes without being told
NOT_ITS_DATA: Final = ("not found", "already exists", "permission denied")  # why named does not add a zone
UNSAID: Final = "failure"  # to showzone, of a server that adds no zones: it remembers how it has them for modzone only
OWN: Final = "reconfigurable via modzone: no"
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
            if error.text.strip() == UNSAID and OWN in await self.control(f"zonestatus {zone_word(zone)}"):
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
        if await self._write_file(zone, zone_file(zone, soa, rrsets, ttl)):
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
            except ControlError as error:  # the cleaning after an earlier zone of that name took the new file along
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
            _mind_policy(error, config)
            raise

    async def remove(self, zone: bytes) -> None:
        try:  # named would also drop a zone of its own, until it is started again
            state = await self.control(f"zonestatus {zone_word(zone)}")
            if OWN in state:
                text = f"{text_of(zone).removesuffix('.')} is part of its own configuration, and not removed"
                raise Static(text, server=self.server.title, retryable=False)
        except ControlError as error:  # a secondary that has fetched nothing yet has no status
            if any(sign in error.text for sign in ABSENT):
                return
        try:
            await self.control(f"delzone -clean {zone_word(zone)}")
        except ControlError as error:
            if not any(sign in error.text for sign in ABSENT):
                raise
            return
        for _ in range(100):  # -clean works in the background: a zone that is added meanwhile would lose its file
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

    # -- the machinery -------------------------------------------------------------------------------------------------

    async def control(self, text: str) -> str:
        """Have named do something, and return what it says; ControlError when it does not."""
        async with self._permits:
            try:
                return await self._commanded(text, self._key)
            except ControlRefused:
                previous = self.server.keys.previous
                if previous is None or previous == self._key:
                    raise
            # The server has not read the new key yet (see `renew`): it still answers to the old one.
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
        """Add a zone whose file, if it needs one, is there."""
        for attempt in range(25):
            try:
                await self.control(f"addzone {zone_word(zone)} {{ {statement_text(config)} }};")
            except ControlError as error:
                # A zone that was just removed lingers; one that is really there was added by somebody else.
                if "Not allowing new zones" in error.text:
                    raise ControlError(
                        f"{error.message}: it adds no zones (allow-new-zones yes; in its options, or have the zone in "
                        "its configuration and recordsOnly: true in the spec of the instance)",
                        server=error.server,
                        text=error.text,
                        retryable=False,
                    ) from None
                _mind_policy(error, config)
                if "already exists" not in error.text or attempt == 24 or await self.configuration(zone) is not None:
                    raise
                await self._clock.sleep(0.02)
            else:
                return

    async def _write_file(self, zone: bytes, text: str) -> bool:
        """Write the zone's file where the server looks for it, if that is a place we share; says whether."""
        directory = Path(self.server.directory)
        if not (directory.is_absolute() and _is_local(self.server.address) and os.access(directory, os.W_OK)):
            return False
        return await asyncio.to_thread(write_file, directory / file_name(zone), text)

    async def _bootstrap(self, zone: bytes, soa: Soa, rrsets: Mapping[Key, RRset], ttl: int) -> None:
        """Let the server fetch the zone from this process, and keep the file."""
        key = self.server.keys.transfer
        source = ZoneSource(zone, soa, rrsets, ttl, key)
        address = address_towards(self.server.address, self.server.dns_port)
        await source.open(address)
        try:
            config: tuple[Statement, ...] = (
                ("type", "secondary"),
                ("file", file_of(self.server, zone)),
                ("masterfile-format", "text"),
                ("primaries", ((address, "port", str(source.port), "key", key.name),)),
                ("allow-query", (("any",),)),
                ("notify", "no"),
                *room_for(max((len(rrset.values) for rrset in rrsets.values()), default=0)),
            )
            await self.add(zone, config)
            until = (
                self._clock.monotonic() + 4 * self._timeout
            )  # a first attempt of its may get lost, and it waits 15 s
            asked = False
            while (served := await self.soa(zone)) != soa.value():
                if served is not None and not asked:  # a file was left there, and named thinks it good for long
                    asked = True
                    await self.control(f"retransfer {zone_word(zone)}")
                if self._clock.monotonic() < until:
                    await self._clock.sleep(0.02)
                    continue
                await self.control(f"delzone -clean {zone_word(zone)}")
                raise ZoneFileAccess(
                    f"it cannot fetch {text_of(zone)} from {address}, and its zone directory is not ours to write "
                    "(set spec.zoneDirectory to a directory both can use)",
                    server=self.server.title,
                )
            await self.control(f"sync {zone_word(zone)}")
            await self.control(f"delzone {zone_word(zone)}")
        finally:
            await source.close()


def file_of(server: Server, zone: bytes) -> str:
    """The file of a zone as the server is told."""
    return f"{server.directory.rstrip('/')}/{file_name(zone)}" if server.directory else file_name(zone)


def room_for(widest: int) -> tuple[Statement, ...]:
    """What a server must be told of a zone that has so many values at one name and type; most have few."""
    return (("max-records-per-type", "0"),) if widest > USUAL else ()


def zone_word(zone: bytes) -> str:
    """A zone as commands name it."""
    return quote(text_of(zone).removesuffix("."))


def _mind_policy(error: ControlError, config: tuple[Statement, ...]) -> None:
    """Raise an error that names the policy, where named says no more than that something was not found."""
    policy = next((row[1] for row in config if row[0] == "dnssec-policy"), None)
    if policy and error.text.strip().startswith(ABSENT[0]):
        raise ControlError(
            f"{error.message}: does it know the dnssec-policy {policy} (spec.dnssecPolicy of the zone)?",
            server=error.server,
            text=error.text,
            retryable=False,
        ) from None


def write_file(path: Path, text: str) -> bool:
    """Put a file in its place as a whole; its journal belongs to what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.chmod(0o644)
        path.with_name(f"{path.name}.jnl").unlink(missing_ok=True)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        return False
    return True


def _is_local(address: str) -> bool:
    """Whether `address` is one of this machine's."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def address_towards(address: str, port: int) -> str:
    """Our own address as that server sees it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        found: Any = probe.getsockname()[0]
    return str(found)
