"""A real `named` on the loopback address: a directory, two ports and a key of its own, and a life that tests control.

    async with Named(tmp_path / "ns1") as ns1:
        ...
        await ns1.kill()                    # kill -9; `start` brings it back on the same ports
        ns1.wipe()                          # its disk is lost

Ports lie below those that the kernel gives away, and stay claimed while the object lives, so a server that was killed
finds its ports free again.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import shutil
import socket
from typing import TYPE_CHECKING, Any, Self

from steersman.testing.ports import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Named", "NamedUnavailable", "PortClaim", "find_named"]

FIRST, LAST = 15_000, 30_000
PATIENCE = 180  # seconds for a server to start, on a machine that has much else to do


class NamedUnavailable(Exception):  # noqa: N818  what is wrong
    """There is no named on this machine."""


def find_named() -> str:
    """The path of named."""
    found = shutil.which("named", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NamedUnavailable("named is not installed (Debian: apt-get install bind9)")
    return found


class PortClaim:
    """A port that nobody else of these tests takes while it is held."""

    def __init__(self) -> None:
        for _ in range(500):
            self.number = random.randrange(FIRST, LAST)  # noqa: S311  # any will do
            self._mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._mark.bind(f"\0steersman-port-{self.number}")
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    with socket.socket(socket.AF_INET, kind) as probe:
                        probe.bind((LOOPBACK, self.number))
            except OSError:
                self._mark.close()
                continue
            return
        raise OSError("no port is free")

    def release(self) -> None:
        self._mark.close()


class Named:
    """See the module. `options` are further statements of the options block, `extra` of the file."""

    def __init__(
        self, folder: Path, *, options: str = "", extra: str = "", key_name: str = "operator", secret: str = ""
    ) -> None:
        self.folder = folder
        self.zones = folder / "zones"
        self.key_name = key_name
        self.secret = secret or base64.b64encode(os.urandom(32)).decode()
        self._options, self._extra = options, extra
        self._dns, self._rndc = PortClaim(), PortClaim()
        self._process: asyncio.subprocess.Process | None = None

    address = LOOPBACK

    @property
    def dns_port(self) -> int:
        """Where it answers."""
        return self._dns.number

    @property
    def rndc_port(self) -> int:
        """Where it is controlled."""
        return self._rndc.number

    @property
    def endpoint(self) -> dict[str, Any]:
        """An entry of `spec.endpoints`."""
        return {"address": LOOPBACK, "dnsPort": self.dns_port, "rndcPort": self.rndc_port}

    def configuration(self) -> str:
        """named.conf."""
        return f"""
key "{self.key_name}" {{ algorithm hmac-sha256; secret "{self.secret}"; }};
options {{
  directory "{self.zones}"; listen-on port {self.dns_port} {{ {LOOPBACK}; }}; listen-on-v6 {{ none; }};
  allow-new-zones yes; allow-transfer {{ none; }}; notify explicit; recursion no; dnssec-validation no;
  lock-file none; pid-file none; session-keyfile "{self.folder}/session.key"; {self._options}
}};
controls {{ inet {LOOPBACK} port {self.rndc_port} allow {{ localhost; }} keys {{ "{self.key_name}"; }}; }};
logging {{ channel all {{ stderr; severity info; print-time yes; }}; category default {{ all; }}; }};
{self._extra}
"""

    async def start(self) -> None:
        """Start, and return when it answers."""
        self.zones.mkdir(parents=True, exist_ok=True)
        path = self.folder / "named.conf"
        path.write_text(self.configuration())
        log = (self.folder / "log").open("ab")
        try:
            self._process = await asyncio.create_subprocess_exec(
                find_named(), "-c", str(path), "-f", "-n", "1", stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL
            )
        finally:
            log.close()
        async with asyncio.timeout(PATIENCE):
            while not (_listens(self.dns_port) and _listens(self.rndc_port)):
                if self._process.returncode is not None:
                    raise RuntimeError(f"named ended: {(self.folder / 'log').read_text()[-2000:]}")
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            self._process = None

    async def control(self, command: str) -> str:
        """What it answers to a command of rndc."""
        from steersman.clock import SYSTEM_CLOCK
        from steersman.operators.dns.rndc import Rndc
        from steersman.operators.dns.tsig import Key

        key = Key(self.key_name, "hmac-sha256", base64.b64decode(self.secret))
        channel = Rndc(self.address, self.rndc_port, key, clock=SYSTEM_CLOCK, timeout=PATIENCE)
        try:
            return await channel.command(command)
        finally:
            channel.close()

    def wipe(self) -> None:
        """Lose the disk; only while it does not run."""
        shutil.rmtree(self.zones, ignore_errors=True)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.kill()
        finally:
            self.release()

    def release(self) -> None:
        """Let its ports go; only when it no longer runs."""
        self._dns.release()
        self._rndc.release()


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
