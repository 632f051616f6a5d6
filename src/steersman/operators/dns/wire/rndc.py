"""The control channel of named: the protocol of the program `rndc`, for which no Python client exists.

A message is a length, a version and two tables: `_auth`, which signs all that follows it, and the rest. The first
exchange fetches a nonce, which every further command of the connection repeats. Commands run one after another.

Both sides sign with the same key, so a signature alone is not enough: our own command would pass as its answer. An
answer is accepted when it is signed, is marked as a reply, repeats the serial and nonce of the command, and is recent.
Nothing is parsed before the signature is verified.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import struct
import time
from typing import TYPE_CHECKING, Any, Final

from steersman.clock import Deadline
from steersman.errors import DriverError
from steersman.operators.dns.wire.client import ask_guard, fault_of
from steersman.operators.dns.wire.tsig import ALGORITHMS, Key

if TYPE_CHECKING:
    import asyncio

    from steersman.clock import Clock

_NUMBERS: Final = {"hmac-sha224": 162, "hmac-sha256": 163, "hmac-sha384": 164, "hmac-sha512": 165}  # of ISC's protocol
BINARY, TABLE = 1, 2
QUESTIONS: Final = ("null", "status", "showzone ", "zonestatus ", "dnssec -status ")  # read-only commands
SKEW: Final = 300  # seconds between both clocks, as named allows
_SIGNATURE: Final = 89  # bytes: the algorithm and room for the longest digest


class ControlError(DriverError):
    """The control channel failed, or named rejected a command: `.text` is its answer."""

    def __init__(self, message: str, *, server: str, text: str = "", retryable: bool = True) -> None:
        super().__init__(message, server=server, retryable=retryable)
        self.text = text


class ControlRefused(ControlError):  # noqa: N818  a state
    """named closed the connection without an answer: the key is wrong, or its ACL rejects our address."""


class Rndc:
    """One connection to the control channel; commands run one after another."""

    def __init__(self, address: str, port: int, key: Key, *, clock: Clock, timeout: float) -> None:
        self.server = f"{address}:{port}"
        self._address, self._port, self._key = address, port, key
        self._clock, self._timeout = clock, timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._nonce = ""
        self._serial = secrets.randbits(31)  # so a recorded answer does not match

    async def command(self, text: str) -> str:
        """Run a command and return its output; ControlError when named rejects it or does not answer."""
        fresh = self._streams is None
        try:
            return await self._attempt(text)
        except (ControlRefused, OSError, EOFError):
            if fresh:
                raise
        return await self._attempt(text)  # named had closed the idle connection

    async def _attempt(self, text: str) -> str:
        try:
            async with Deadline(self._clock, self._timeout):
                if self._streams is None:
                    await self._connect()
                if not text.startswith(QUESTIONS):
                    ask_guard(f"rndc {_command_of(text)}", self.server)
                answer = await self._exchange(text, self._nonce)
        except TimeoutError:
            self.close()
            raise ControlError(f"no answer within {self._timeout:g} s", server=self.server) from None
        except ControlError:  # no valid answer
            self.close()
            raise
        except (OSError, EOFError, ValueError, struct.error) as error:
            self.close()
            raise ControlError(fault_of(error, self.server), server=self.server) from None
        except BaseException:
            self.close()  # the next command cannot continue an incomplete exchange
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
                raise ValueError(f"the answer announces {size} bytes")
            body = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            raise ControlRefused(
                "named closed the connection: does the key match its controls statement?", server=self.server
            ) from None
        return self._checked(body, nonce)

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

    def _checked(self, body: bytes, nonce: str) -> dict[str, Any]:
        """The tables of an answer, once it is verified as the answer to the last command."""
        head = struct.pack("!I", 1) + _pairs({"_auth": {"hsha": bytes(_SIGNATURE)}})
        start, place = len(head), len(head) - _SIGNATURE
        theirs, signed = body[place:start], body[start:]
        if body[:place] != head[:place] or not hmac.compare_digest(theirs, self._signature(signed)):
            raise ControlError("the answer is not signed with our key", server=self.server)
        table = _table(signed)
        control = table.get("_ctrl")
        if not isinstance(control, dict) or not isinstance(table.get("_data", {}), dict):
            raise ControlError("the answer has no control section", server=self.server)
        expected = {"_rpl": b"1", "_ser": str(self._serial).encode(), **({"_nonce": nonce.encode()} if nonce else {})}
        if any(control.get(name) != value for name, value in expected.items()):
            raise ControlError("the answer belongs to another command", server=self.server)
        if abs(int(time.time()) - int(control.get("_tim", b"0"))) > SKEW:
            raise ControlError(f"the answer was signed more than {SKEW} s from now", server=self.server)
        return table

    def close(self) -> None:
        """Close the connection; the next command opens a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _command_of(text: str) -> str:
    """The command and its zone, without the zone's configuration."""
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
        if end + 5 > len(data):
            raise ValueError("a table ends inside an entry")
        name, kind = data[place + 1 : end].decode(), data[end]
        size = int.from_bytes(data[end + 1 : end + 5])
        value = data[end + 5 : end + 5 + size]
        if len(value) != size:
            raise ValueError("a value is shorter than announced")
        found[name] = _table(value) if kind == TABLE else value
        place = end + 5 + size
    return found
