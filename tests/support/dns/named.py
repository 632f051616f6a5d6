"""A real `named` on the loopback address: a directory, two ports and a key of its own, and a life that tests control.

async with Named(tmp_path / "ns1") as ns1:
    ...
    await ns1.kill()                    # kill -9; `start` brings it back on the same ports
    ns1.wipe()                          # its disk is lost
"""

from __future__ import annotations

import base64
import os
import shutil
from typing import TYPE_CHECKING, Any

from steersman.testing.controlplane.processes import LOOPBACK
from tests.support.programs.loopback_server import PATIENCE, LoopbackServer, PortClaim

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Named", "NamedUnavailable", "find_named"]


class NamedUnavailable(Exception):  # noqa: N818  what is wrong
    """There is no named on this machine."""


def find_named() -> str:
    """The path of named."""
    found = shutil.which("named", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NamedUnavailable("named is not installed (Debian: apt-get install bind9)")
    return found


class Named(LoopbackServer):
    """See the module. `options` are further statements of the options block, `extra` of the file.

    `new_zones`: whether zones can be added while it runs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: str = "",
        extra: str = "",
        key_name: str = "operator",
        secret: str = "",
        new_zones: bool = True,
    ) -> None:
        self.folder = folder
        self.zones = folder / "zones"
        self.key_name = key_name
        self.secret = secret or base64.b64encode(os.urandom(32)).decode()
        self._new_zones = "yes" if new_zones else "no"
        self._options, self.extra = options, extra  # read at every start
        self._dns, self._rndc = PortClaim(), PortClaim()
        super().__init__(self._dns, self._rndc)

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
  allow-new-zones {self._new_zones}; allow-transfer {{ none; }}; notify explicit; recursion no; dnssec-validation no;
  lock-file none; pid-file none; session-keyfile "{self.folder}/session.key"; {self._options}
}};
controls {{ inet {LOOPBACK} port {self.rndc_port} allow {{ localhost; }} keys {{ "{self.key_name}"; }}; }};
logging {{ channel all {{ stderr; severity info; print-time yes; }}; category default {{ all; }}; }};
{self.extra}
"""

    async def start(self) -> None:
        """Start, and return when it answers."""
        self.zones.mkdir(parents=True, exist_ok=True)
        path = self.folder / "named.conf"
        path.write_text(self.configuration())
        await self._launch(find_named(), "-c", str(path), "-f", "-n", "1", log=self.folder / "log")

    async def control(self, command: str) -> str:
        """What it answers to a command of rndc."""
        from steersman.clock import SYSTEM_CLOCK
        from steersman.operators.dns.wire.rndc import Rndc
        from steersman.operators.dns.wire.tsig import Key

        key = Key(self.key_name, "hmac-sha256", base64.b64decode(self.secret))
        channel = Rndc(self.address, self.rndc_port, key, clock=SYSTEM_CLOCK, timeout=PATIENCE)
        try:
            return await channel.command(command)
        finally:
            channel.close()

    def wipe(self) -> None:
        """Lose the disk; only while it does not run."""
        shutil.rmtree(self.zones, ignore_errors=True)
