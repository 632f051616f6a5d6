"""The control channel of named, in Python: what the program `rndc` speaks (there is no other client for it).

A message is a length, a version and two tables: `_auth`, which signs all that follows it, and the rest. The first
exchange fetches a nonce; every command of that connection carries it. A connection serves one command after another.
"""

from __future__ import annotations

import base64
import hmac
import random
import struct
import time
from typing import TYPE_CHECKING, Any, Final

from steersman.clock import Deadline
from steersman.errors import DriverError
from steersman.operators.dns.driver import fault_of
from steersman.operators.dns.tsig import ALGORITHMS, Key

if TYPE_CHECKING:
    import asyncio

    from steersman.clock import Clock

__all__ = ["ControlError", "ControlRefused", "Rndc"]

_NUMBERS: Final = {"hmac-sha224": 162, "hmac-sha256": 163, "hmac-sha384": 164, "hmac-sha512": 165}  # isccc's own
BINARY, TABLE = 1, 2


class ControlError(DriverError):
    """The control channel failed, or named said no: `.text` is its answer."""

    def __init__(self, message: str, *, server: str, text: str = "", retryable: bool = True) -> None:
        super().__init__(message, server=server, retryable=retryable)
        self.text = text


class ControlRefused(ControlError):  # noqa: N818  what happened
    """named closed the connection without a word: the key is wrong, or we may not talk to it at all."""


class Rndc:
    """One control channel; commands wait for each other."""

    def __init__(self, address: str, port: int, key: Key, *, clock: Clock, timeout: float) -> None:
        self.server = f"{address}:{port}"
        self._address, self._port, self._key = address, port, key
        self._clock, self._timeout = clock, timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._nonce = ""
        self._serial = random.getrandbits(31)  # a counter needs a start, not a secret

    async def command(self, text: str) -> str:
        """Have named do something, and return what it says; ControlError when it does not."""
        fresh = self._streams is None
        try:
            return await self._attempt(text)
        except (ControlRefused, OSError, EOFError):
            if fresh:
                raise
        return await self._attempt(text)  # named closes connections that were idle; a new one is not

    async def _attempt(self, text: str) -> str:
        try:
            async with Deadline(self._clock, self._timeout):
                if self._streams is None:
                    await self._connect()
                answer = await self._exchange(text, self._nonce)
        except TimeoutError:
            self.close()
            raise ControlError(f"no answer within {self._timeout:g} s", server=self.server) from None
        except ControlError:  # no answer, or not from whom we asked
            self.close()
            raise
        except (OSError, EOFError, ValueError, struct.error) as error:
            self.close()
            raise ControlError(fault_of(error, self.server), server=self.server) from None
        except BaseException:
            self.close()  # half an exchange is of no use to the next command
            raise
        data = answer.get("_data", {})
        said = data.get("text", b"").decode(errors="replace").strip()
        if "err" in data or data.get("result", b"0") != b"0":
            why = data.get("err", b"").decode(errors="replace").strip() or said or "failed"
            raise ControlError(f"{_command_of(text)}: {why}", server=self.server, text=f"{why} {said}", retryable=False)
        return str(said)

    async def _connect(self) -> None:
        import asyncio

        self._streams = await asyncio.open_connection(self._address, self._port, limit=2**22)
        self._nonce = ""
        answer = await self._exchange("null", "")
        self._nonce = answer.get("_ctrl", {}).get("_nonce", b"").decode()

    async def _exchange(self, text: str, nonce: str) -> dict[str, Any]:
        import asyncio

        assert self._streams is not None
        reader, writer = self._streams
        writer.write(self._request(text, nonce))
        try:
            await writer.drain()
            size = int.from_bytes(await reader.readexactly(4))
            if not 4 <= size <= 2**22:
                raise ValueError(f"the answer claims {size} bytes")
            body = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            raise ControlRefused(
                "the connection was closed: is the key the one of its controls?", server=self.server
            ) from None
        return self._checked(body)

    def _request(self, text: str, nonce: str) -> bytes:
        self._serial = (self._serial + 1) % 2**31
        now = int(time.time())
        control = {
            "_ser": str(self._serial).encode(),
            "_tim": str(now).encode(),
            "_exp": str(now + 60).encode(),
            **({"_nonce": nonce.encode()} if nonce else {}),
        }
        signed = _pairs({"_ctrl": control, "_data": {"type": text.encode()}})
        auth = _pairs({"_auth": {"hsha": self._signature(signed)}})
        body = struct.pack("!I", 1) + auth + signed
        return struct.pack("!I", len(body)) + body

    def _signature(self, signed: bytes) -> bytes:
        digest = hmac.digest(self._key.secret, signed, ALGORITHMS[self._key.algorithm])
        return bytes([_NUMBERS[self._key.algorithm]]) + base64.b64encode(digest).ljust(88, b"\0")

    def _checked(self, body: bytes) -> dict[str, Any]:
        table = _table(body[4:])
        start = 4 + 1 + len("_auth") + 5 + int.from_bytes(body[4 + 1 + 5 + 1 : 4 + 1 + 5 + 5])
        theirs = table.get("_auth", {}).get("hsha", b"")
        if not hmac.compare_digest(theirs, self._signature(body[start:])):
            raise ControlError("the answer is not signed with our key", server=self.server)
        return table

    def close(self) -> None:
        """Hang up; the next command calls again."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _command_of(text: str) -> str:
    """What was asked for, and of which zone; without the configuration of that."""
    return " ".join(word.strip('"') for word in text.split(" {", 1)[0].split() if not word.startswith("-"))


def _pairs(table: dict[str, Any]) -> bytes:
    parts = []
    for name, value in table.items():
        kind, data = (TABLE, _pairs(value)) if isinstance(value, dict) else (BINARY, value)
        parts.append(bytes([len(name)]) + name.encode() + bytes([kind]) + struct.pack("!I", len(data)) + data)
    return b"".join(parts)


def _table(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    place = 0
    while place < len(data):
        end = place + 1 + data[place]
        name, kind = data[place + 1 : end].decode(), data[end]
        size = int.from_bytes(data[end + 1 : end + 5])
        value = data[end + 5 : end + 5 + size]
        found[name] = _table(value) if kind == TABLE else value
        place = end + 5 + size
    return found
