"""The named of a sidecar: its zones, by the control channel and the shared zone directory.

Whether a zone exists and how it is configured is asked of named every time, so nothing here becomes stale after a
restart of either. The files of a served zone are never touched, and operations on one zone run one after another.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import structlog
from msgspec.structs import replace

from steersman.errors import DriverError, FormatError
from steersman.operators.dns.bind.rndc_driver import ABSENT, zone_word
from steersman.operators.dns.bind.zone_file import file_name, write_file, zone_file
from steersman.operators.dns.sidecar.access import Problem
from steersman.operators.dns.sidecar.messages import ZoneInfo
from steersman.operators.dns.sidecar.zone_data import key_of, read_zone, value_of
from steersman.operators.dns.sidecar.zone_settings import (
    created_settings,
    modified_settings,
    overlay,
    read_settings,
    statements,
    whole,
)
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.wire.rndc import ControlError
from steersman.operators.dns.zone.names import name_of, text_of
from steersman.operators.dns.zone.rdata import RRset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from steersman.clock import Clock
    from steersman.operators.dns.bind.rndc_driver import NativeDriver
    from steersman.operators.dns.bind.statements import Statement
    from steersman.operators.dns.sidecar.messages import AddRecord, CreateZone, ModifyZone, RemoveRecord, ReplaceRecord
    from steersman.operators.dns.zone.rdata import Key

log = structlog.get_logger(__name__)

MARK: Final = ".secondary"  # marks a secondary zone, whose file appears only with the first transfer
ASKED_AT_ONCE: Final = 4
DIRECTORY_PROBLEMS: Final = ("file not found", "permission denied")


def zone_of(text: str) -> bytes:
    """The zone of a request; Problem when the name is not valid."""
    try:
        zone = name_of(text)
        zone_word(zone)
    except FormatError as error:
        raise Problem(400, f"Invalid request: zoneName: {error}") from None
    if zone == b"\0":
        raise Problem(400, "Invalid request: zoneName: the root zone is not supported")
    return zone


class LocalNamed:
    """See the module. `driver` returns the current driver of named: its key may have been replaced."""

    def __init__(
        self, driver: Callable[[], NativeDriver], directory: Path, *, clock: Clock, statistics: str = ""
    ) -> None:
        self._driver, self._directory = driver, directory
        self._clock, self._statistics = clock, statistics
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    # -- zones ---------------------------------------------------------------------------------------------------------

    async def create(self, request: CreateZone) -> None:
        """Add a zone; Problem 409 when it exists."""
        zone = zone_of(request.zone_name)
        with _bad_request():
            settings = created_settings(request)
            now = self._clock.time()
            data = read_zone(zone, request.zone_config, now) if settings.kind == "primary" else None
        path = self._directory / file_name(zone)
        async with self._alone(zone):
            if await self._known(zone) is not None:  # before its files are touched
                raise Problem(409, f"Zone already exists: {request.zone_name}")
            ours = path if data is not None else path.with_suffix(MARK)
            text = zone_file(zone, *data, request.zone_config.ttl) if data is not None else ""
            if not await asyncio.to_thread(write_file, ours, text):
                raise Problem(500, f"{self._directory} is not writable")
            try:
                await self._driver().add(zone, (("file", str(path)), *statements(settings)))
            except ControlError as error:
                if "already exists" in error.text:
                    raise Problem(409, f"Zone already exists: {request.zone_name}") from None
                await asyncio.to_thread(ours.unlink, missing_ok=True)
                raise _rejected(error, 400) from None

    async def names(self) -> list[str]:
        """The names of all zones that named has."""
        found = await self._listed()
        if found is not None:
            return sorted(found)
        files = await asyncio.to_thread(lambda: [path.name for path in self._directory.iterdir()])
        known = {file_name_zone(name) for name in files if name.endswith((".zone", MARK))} - {None}
        permits = asyncio.Semaphore(ASKED_AT_ONCE)

        async def served(zone: bytes) -> bool:
            async with permits:
                return await self._known(zone) is not None

        zones = sorted(zone for zone in known if zone is not None)
        there = await asyncio.gather(*(served(zone) for zone in zones))
        return sorted(_title(zone) for zone, yes in zip(zones, there, strict=True) if yes)

    async def _listed(self) -> set[str] | None:
        """All zones of named from its statistics channel; None without statistics."""
        if not self._statistics:
            return None
        import aiohttp

        limit = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.get(f"http://{self._statistics}/json/v1/zones") as answer,
            ):
                views = (await answer.json(content_type=None))["views"]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError):
            return None
        rows = views.get("_default", {}).get("zones", ())
        return {str(row["name"]) for row in rows if row.get("type") in ("primary", "secondary", "master", "slave")}

    async def info(self, zone: bytes) -> ZoneInfo:
        """A zone and its settings."""
        config = await self._config(zone)
        rows = await self._state(zone)
        settings = read_settings(config)
        serial = rows.get("signed serial", rows.get("serial", ""))
        file = next((str(row[1]) for row in config if row[0] == "file"), rows.get("files") or None)
        return ZoneInfo(
            name=_title(zone),
            zone_type=settings.kind or rows.get("type", "unknown"),
            serial=int(serial) if serial.isdecimal() else None,
            file_path=file,
            steersman=replace(whole(settings), added=self._is_added(zone, config)) if settings.kind else None,
        )

    async def _state(self, zone: bytes) -> dict[str, str]:
        """The output of `zonestatus`; empty for a zone that has not been transferred yet."""
        try:
            text = await self._driver().control(f"zonestatus {zone_word(zone)}")
        except ControlError as error:
            if "not loaded" in error.text:
                return {}
            raise _rejected(error) from None
        rows = (line.partition(":") for line in text.splitlines())
        return {name.strip(): value.strip() for name, _, value in rows}

    async def modify(self, zone: bytes, request: ModifyZone) -> None:
        """Change the settings of a zone."""
        async with self._alone(zone):
            config = await self._ours(zone)
            with _bad_request():
                settings = modified_settings(read_settings(config), request)
            try:
                await self._driver().configure(zone, overlay(config, settings))
            except ControlError as error:
                raise _rejected(error, 400) from None

    async def delete(self, zone: bytes) -> None:
        """Remove a zone and its files; Problem 409 when it was not added through a sidecar."""
        async with self._alone(zone):
            if not self._is_added(zone, await self._ours(zone)):
                raise Problem(409, f"Zone {_title(zone)} was not added through this interface (use rndc delzone)")
            try:
                await self._driver().remove(zone)
            except ControlError as error:
                raise _rejected(error) from None
            mark = (self._directory / file_name(zone)).with_suffix(MARK)
            await asyncio.to_thread(mark.unlink, missing_ok=True)

    async def command(self, zone: bytes, verb: str) -> str:
        """Run a command of named on a zone and return its output."""
        try:
            return await self._driver().control(f"{verb} {zone_word(zone)}")
        except ControlError as error:
            if any(sign in error.text for sign in ABSENT):
                raise _absent(zone) from None
            raise _rejected(error) from None

    async def server(self, command: str) -> str:
        """Run a command of named without a zone and return its output."""
        try:
            return await self._driver().control(command)
        except ControlError as error:
            raise _rejected(error) from None

    async def renew(self) -> bool:
        """Have named reload its configuration; returns whether it knows the newest key now."""
        driver = self._driver()
        try:
            if driver.server.keys.previous is not None:
                return await driver.renew()
            await driver.reconfigure()
        except ControlError as error:
            raise _rejected(error) from None
        return True

    async def checks(self) -> tuple[bool, list[str]]:
        """Readiness: the zone directory, the control channel and DNS; and the result of each check."""
        rows: list[tuple[bool, str]] = []
        writable = await asyncio.to_thread(os.access, self._directory, os.W_OK | os.X_OK)
        rows.append((writable, "zone_dir"))
        driver = self._driver()

        async def control() -> None:
            await driver.ready()
            await driver.renew()  # a readiness probe also makes named load a new key

        async def answer() -> None:
            await driver.soa(b"\0")

        for name, ask in (("rndc", control), ("dns", answer)):
            try:
                await ask()
                rows.append((True, name))
            except DriverError as error:  # the probe is not authenticated and gets no details
                log.warning("not ready", check=name, problem=error.message)
                rows.append((False, name))
        return all(good for good, _ in rows), [f"{name}: {'ok' if good else 'error'}" for good, name in rows]

    # -- records -------------------------------------------------------------------------------------------------------

    async def add_record(self, zone: bytes, request: AddRecord) -> None:
        """Add a value."""
        with _bad_request():
            key = key_of(request.name, request.type, zone)
            value = value_of(key[1], request.value, request.priority, zone, absolute=True)
        await self._change(zone, key, set(), {value}, request.ttl)

    async def remove_record(self, zone: bytes, request: RemoveRecord) -> None:
        """Remove a value, or all of that type."""
        with _bad_request():
            key = key_of(request.name, request.type, zone)
            gone = None if request.value is None else {value_of(key[1], request.value, None, zone, absolute=True)}
        await self._change(zone, key, gone, set(), 0)

    async def replace_record(self, zone: bytes, request: ReplaceRecord) -> None:
        """Replace a value by another."""
        with _bad_request():
            key = key_of(request.name, request.type, zone)
            old, new = (
                value_of(key[1], text, request.priority, zone, absolute=True)
                for text in (request.current_value, request.new_value)
            )
        await self._change(zone, key, {old}, {new}, request.ttl)

    async def _change(self, zone: bytes, key: Key, gone: set[bytes] | None, new: set[bytes], ttl: int) -> None:
        """Remove and add values in one update; `gone` None means all."""
        settings = read_settings(await self._config(zone))
        if settings.kind != "primary" or not settings.allow_update:
            raise Problem(400, f"Dynamic updates not enabled: {_title(zone)} is not a primary zone with allow-update")
        have = RRset(ttl, frozenset(gone or ()))
        want = None if gone is None else RRset(ttl, frozenset(new))
        await self._driver().write(zone, None, None, 0, [RRsetChange(key, have, want)])
        served = await self._driver().values(key[0] + zone, key[1]) if new else []
        if not new <= set(served):  # named answers NOERROR and ignores other data at a CNAME
            raise Problem(
                409, f"named ignored the change: {text_of(key[0])} has a CNAME record, or other data beside a new CNAME"
            )

    def _is_added(self, zone: bytes, config: tuple[Statement, ...]) -> bool:
        """Whether the sidecar added the zone: named stores the file name that only the sidecar uses."""
        return ("file", str(self._directory / file_name(zone))) in config

    # -- named ---------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self, zone: bytes) -> AsyncIterator[None]:
        lock = self._locks.setdefault(zone, asyncio.Lock())
        async with lock:
            yield

    async def _ours(self, zone: bytes) -> tuple[Statement, ...]:
        """The configuration of a zone that was added by a command; Problem 409 for one of named's configuration."""
        config = await self._config(zone)
        if not config or (await self._state(zone)).get("reconfigurable via modzone") == "no":
            raise Problem(409, f"Zone {_title(zone)} is part of named's own configuration")
        return config

    async def _known(self, zone: bytes) -> tuple[Statement, ...] | None:
        try:
            return await self._driver().configuration(zone)
        except ControlError as error:
            raise _rejected(error) from None

    async def _config(self, zone: bytes) -> tuple[Statement, ...]:
        config = await self._known(zone)
        if config is None:
            raise _absent(zone)
        return config


class _bad_request:  # noqa: N801  used as a function
    """Turns a FormatError into a Problem 400."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, FormatError):
            raise Problem(400, f"Invalid request: {error}") from None


def file_name_zone(name: str) -> bytes | None:
    """The zone of a file name; None when it is not the file of a zone.

    >>> file_name_zone("0%2f25.org.zone"), file_name_zone("a b.zone")
    (b'\\x040/25\\x03org\\x00', None)
    """
    from urllib.parse import unquote

    stem = name.removesuffix(MARK) if name.endswith(MARK) else name.removesuffix(".zone")
    try:
        zone = name_of(unquote(stem))
        return zone if file_name(zone).removesuffix(".zone") == stem else None
    except FormatError:
        return None


def _title(zone: bytes) -> str:
    return text_of(zone).removesuffix(".")


def _absent(zone: bytes) -> Problem:
    return Problem(404, f"Zone not found: {_title(zone)}")


def _rejected(error: ControlError, status: int = 409) -> Problem:
    """The Problem for a failed command: rejected by named, a problem of the directory, or no answer."""
    if any(sign in error.text for sign in DIRECTORY_PROBLEMS):
        return Problem(500, f"named cannot use the zone directory: {error.text.strip()}")
    if error.text:
        return Problem(status, "RNDC command failed", error.text.strip())
    return Problem(503, f"named does not answer: {error.message}", retry_after=1)
