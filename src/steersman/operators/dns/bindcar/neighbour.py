"""The named beside a sidecar: its zones, by its control channel and the directory both see.

named has the last word: whether a zone exists, and how it is served, it is asked every time, so nothing here can be
wrong after a restart of either. The files of a zone that is served are never touched; one zone, one operation at once.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import structlog

from steersman.errors import DriverError, FormatError
from steersman.operators.dns.bindcar.access import Problem
from steersman.operators.dns.bindcar.data import key_of, read_zone, value_of
from steersman.operators.dns.bindcar.settings import (
    created_settings,
    modified_settings,
    overlay,
    read_settings,
    statements,
    whole,
)
from steersman.operators.dns.bindcar.wire import ZoneInfo
from steersman.operators.dns.messages import Change
from steersman.operators.dns.names import name_of, text_of
from steersman.operators.dns.native import ABSENT, write_file, zone_word
from steersman.operators.dns.rndc import ControlError
from steersman.operators.dns.rrsets import RRset
from steersman.operators.dns.zonetext import file_name, zone_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from steersman.clock import Clock
    from steersman.operators.dns.bindcar.wire import AddRecord, CreateZone, ModifyZone, RemoveRecord, ReplaceRecord
    from steersman.operators.dns.native import NativeDriver
    from steersman.operators.dns.rrsets import Key
    from steersman.operators.dns.zonetext import Statement

__all__ = ["Neighbour", "zone_of"]

log = structlog.get_logger(__name__)

MARK: Final = ".secondary"  # beside the file that a secondary gets only with its first transfer
ASKED_AT_ONCE: Final = 4
HELPLESS: Final = ("file not found", "permission denied")


def zone_of(text: str) -> bytes:
    """A zone that somebody named; Problem when it cannot be one."""
    try:
        zone = name_of(text)
        zone_word(zone)
    except FormatError as error:
        raise Problem(400, f"Invalid request: zoneName: {error}") from None
    if zone == b"\0":
        raise Problem(400, "Invalid request: zoneName: the root is not ours to serve")
    return zone


class Neighbour:
    """See the module. `driver` gives the way to named as it is now: its key may have been replaced."""

    def __init__(
        self, driver: Callable[[], NativeDriver], directory: Path, *, clock: Clock, statistics: str = ""
    ) -> None:
        self._driver, self._directory = driver, directory
        self._clock, self._statistics = clock, statistics
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    # -- zones ---------------------------------------------------------------------------------------------------------

    async def create(self, request: CreateZone) -> None:
        """Add a zone that is not there."""
        zone = zone_of(request.zone_name)
        with _readable():
            settings = created_settings(request)
            now = self._clock.time()
            data = read_zone(zone, request.zone_config, now) if settings.kind == "primary" else None
        path = self._directory / file_name(zone)
        async with self._alone(zone):
            if await self._known(zone) is not None:  # before anything of it is touched
                raise Problem(409, f"Zone already exists: {request.zone_name}")
            ours = path if data is not None else path.with_suffix(MARK)
            text = zone_file(zone, *data, request.zone_config.ttl) if data is not None else ""
            if not await asyncio.to_thread(write_file, ours, text):
                raise Problem(500, f"{self._directory} cannot be written")
            try:
                await self._driver().add(zone, (("file", str(path)), *statements(settings)))
            except ControlError as error:
                if "already exists" in error.text:
                    raise Problem(409, f"Zone already exists: {request.zone_name}") from None
                await asyncio.to_thread(ours.unlink, missing_ok=True)
                raise _said_no(error, 400) from None

    async def names(self) -> list[str]:
        """The zones that are served here."""
        found = await self._listed()
        if found is not None:
            return sorted(found)
        files = await asyncio.to_thread(lambda: [one.name for one in self._directory.iterdir()])
        known = {file_name_zone(name) for name in files if name.endswith((".zone", MARK))} - {None}
        permits = asyncio.Semaphore(ASKED_AT_ONCE)

        async def served(zone: bytes) -> bool:
            async with permits:
                return await self._known(zone) is not None

        zones = sorted(zone for zone in known if zone is not None)
        there = await asyncio.gather(*(served(zone) for zone in zones))
        return sorted(_title(zone) for zone, yes in zip(zones, there, strict=True) if yes)

    async def _listed(self) -> set[str] | None:
        """All zones that named has, whoever added them, from its statistics; None when it keeps none."""
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
        """A zone, and how it is served."""
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
            steersman=whole(settings) if settings.kind else None,
        )

    async def _state(self, zone: bytes) -> dict[str, str]:
        """What named says about a zone; nothing about one that has not been transferred yet."""
        try:
            text = await self._driver().control(f"zonestatus {zone_word(zone)}")
        except ControlError as error:
            if "not loaded" in error.text:
                return {}
            raise _said_no(error) from None
        rows = (line.partition(":") for line in text.splitlines())
        return {name.strip(): value.strip() for name, _, value in rows}

    async def modify(self, zone: bytes, request: ModifyZone) -> None:
        """Serve a zone in another way."""
        async with self._alone(zone):
            config = await self._ours(zone)
            with _readable():
                settings = modified_settings(read_settings(config), request)
            try:
                await self._driver().configure(zone, overlay(config, settings))
            except ControlError as error:
                raise _said_no(error, 400) from None

    async def delete(self, zone: bytes) -> None:
        """Serve a zone no more, and leave nothing of it."""
        async with self._alone(zone):
            await self._ours(zone)
            try:
                await self._driver().remove(zone)
            except ControlError as error:
                raise _said_no(error) from None
            mark = (self._directory / file_name(zone)).with_suffix(MARK)
            await asyncio.to_thread(mark.unlink, missing_ok=True)

    async def command(self, zone: bytes, verb: str) -> str:
        """Have named do one of its own commands to a zone, and return what it says."""
        try:
            return await self._driver().control(f"{verb} {zone_word(zone)}")
        except ControlError as error:
            if any(sign in error.text for sign in ABSENT):
                raise _absent(zone) from None
            raise _said_no(error) from None

    async def server(self, command: str) -> str:
        """Have named do something that is about no zone."""
        try:
            return await self._driver().control(command)
        except ControlError as error:
            raise _said_no(error) from None

    async def renew(self) -> bool:
        """Have named read its configuration; says whether it knows the newest key now."""
        driver = self._driver()
        try:
            if driver.server.keys.previous is not None:
                return await driver.renew()
            await driver.reconfigure()
        except ControlError as error:
            raise _said_no(error) from None
        return True

    async def checks(self) -> tuple[bool, list[str]]:
        """Whether all that is needed is there: the directory, the control channel, and answers."""
        rows: list[tuple[bool, str]] = []
        writable = await asyncio.to_thread(os.access, self._directory, os.W_OK | os.X_OK)
        rows.append((writable, "zone_dir"))
        driver = self._driver()

        async def control() -> None:
            await driver.ready()
            await driver.renew()  # whoever looks whether we are ready also sees to it that named reads a new key

        async def answer() -> None:
            await driver.soa(b"\0")

        for name, ask in (("rndc", control), ("dns", answer)):
            try:
                await ask()
                rows.append((True, name))
            except DriverError as error:  # whoever asks need not show who he is, and hears no more than that
                log.warning("not ready", check=name, why=error.message)
                rows.append((False, name))
        return all(good for good, _ in rows), [f"{name}: {'ok' if good else 'error'}" for good, name in rows]

    # -- records -------------------------------------------------------------------------------------------------------

    async def add_record(self, zone: bytes, request: AddRecord) -> None:
        """A value more."""
        with _readable():
            key = key_of(request.name, request.type, zone)
            value = value_of(key[1], request.value, request.priority, zone, absolute=True)
        await self._change(zone, key, set(), {value}, request.ttl)

    async def remove_record(self, zone: bytes, request: RemoveRecord) -> None:
        """A value less, or all of that type."""
        with _readable():
            key = key_of(request.name, request.type, zone)
            gone = None if request.value is None else {value_of(key[1], request.value, None, zone, absolute=True)}
        await self._change(zone, key, gone, set(), 0)

    async def replace_record(self, zone: bytes, request: ReplaceRecord) -> None:
        """A value in the place of another."""
        with _readable():
            key = key_of(request.name, request.type, zone)
            old, new = (
                value_of(key[1], text, request.priority, zone, absolute=True)
                for text in (request.current_value, request.new_value)
            )
        await self._change(zone, key, {old}, {new}, request.ttl)

    async def _change(self, zone: bytes, key: Key, gone: set[bytes] | None, new: set[bytes], ttl: int) -> None:
        """Values that go and values that come, in one update; `gone` None means all."""
        settings = read_settings(await self._config(zone))
        if settings.kind != "primary" or not settings.allow_update:
            raise Problem(400, f"Dynamic updates not enabled: {_title(zone)} is not a primary zone that takes them")
        have = RRset(ttl, frozenset(gone or ()))
        want = None if gone is None else RRset(ttl, frozenset(new))
        await self._driver().write(zone, None, None, 0, [Change(key, have, want)])
        served = await self._driver().values(key[0] + zone, key[1]) if new else []
        if not new <= set(served):  # beside an alias named takes nothing else, and says that all is well
            raise Problem(409, f"named did not take it: {text_of(key[0])} is an alias, or would have to be none")

    # -- the machinery -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self, zone: bytes) -> AsyncIterator[None]:
        lock = self._locks.setdefault(zone, asyncio.Lock())
        async with lock:
            yield

    async def _ours(self, zone: bytes) -> tuple[Statement, ...]:
        """The configuration of a zone that was added, and may be changed; named would also drop one of its own."""
        config = await self._config(zone)
        if not config or (await self._state(zone)).get("reconfigurable via modzone") == "no":
            raise Problem(409, f"Zone {_title(zone)} is part of named's own configuration")
        return config

    async def _known(self, zone: bytes) -> tuple[Statement, ...] | None:
        try:
            return await self._driver().configuration(zone)
        except ControlError as error:
            raise _said_no(error) from None

    async def _config(self, zone: bytes) -> tuple[Statement, ...]:
        config = await self._known(zone)
        if config is None:
            raise _absent(zone)
        return config


class _readable:  # noqa: N801  reads as a word
    """What cannot be understood is the caller's mistake."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, FormatError):
            raise Problem(400, f"Invalid request: {error}") from None


def file_name_zone(name: str) -> bytes | None:
    """The zone whose file has this name; None when it is nobody's.

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


def _said_no(error: ControlError, status: int = 409) -> Problem:
    """named refused, which asking again does not change; or it could not; or it is not there."""
    if any(sign in error.text for sign in HELPLESS):
        return Problem(500, f"named cannot use the zone directory: {error.text.strip()}")
    if error.text:
        return Problem(status, "RNDC command failed", error.text.strip())
    return Problem(503, f"named does not answer: {error.message}", retry_after=1)
