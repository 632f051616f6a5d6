"""A world to publish in: an API server, the operator as a process of its own, its name servers, and one for nsupdate.

Both name servers are real and alike. The operator's processor time is read from the kernel's books, so asking costs it
nothing; that it has come to rest is seen there too, and never asked of it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import dns.message
import dns.name
import dns.rdatatype
import msgspec
from children import Child, environment

from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.testing.controlplane.launcher import ControlPlane
from tests.support.dns.named import Named
from tests.support.dns.zones import Site, install_crds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

NAMESPACE = "bench"
HEAD = {"apiVersion": "bindy.firestoned.io/v1beta1"}
STEERSMAN = Path(sys.executable).with_name("steersman")
AT_ONCE = 64  # requests in flight
QUIET = 0.2  # seconds of which a process at rest uses less than a fiftieth…
LONG = 5  # …so many times in a row
POLL = 0.001
PATIENCE = 300.0


class Spent(msgspec.Struct, frozen=True):
    """What something took: seconds, and processor seconds of who did it."""

    seconds: float
    cpu: float


def cpu_of(pid: int) -> float:
    """Processor seconds of a process so far, to the microsecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def address(number: int) -> str:
    """The address of a host; never one ending in 0.0.0."""
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def host(number: int) -> str:
    """The name of a host; they sort as their numbers do, so the last is also written last."""
    return f"host-{number:05}"


class World:
    """See the module."""

    def __init__(self, folder: Path, *, real: bool = False, primaries: int = 1, secondaries: int = 0) -> None:
        self._folder, self._real, self._counts = folder, real, (primaries, secondaries)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        stack = self._stack
        self._folder.mkdir(parents=True)
        self._config = await stack.enter_async_context(_api(self._folder, real=self._real))
        self.client = await stack.enter_async_context(Client.connect(load_config(self._config)))
        await self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await install_crds(self.client, str(self._folder))
        names = [*(f"p{n}" for n in range(self._counts[0])), *(f"s{n}" for n in range(self._counts[1]))]
        key = base64.b64encode(os.urandom(32)).decode()  # one for all: secondaries fetch with it
        servers = [await stack.enter_async_context(Named(self._folder / name, secret=key)) for name in names]
        self.theirs = await stack.enter_async_context(Named(self._folder / "theirs", secret=key))
        self.site = Site(self.client, NAMESPACE, servers[: self._counts[0]], servers[self._counts[0] :])
        for role, group in (("primary", self.site.primaries), ("secondary", self.site.secondaries)):
            for number, server in enumerate(group):
                await self.site.instance(f"{role}-{number}", role, server, zoneDirectory=str(server.zones))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def start(self) -> None:
        """Start the operator."""
        command = [STEERSMAN, "run", "--operators", "dns", "--listen", "127.0.0.1:0", "-n", NAMESPACE]
        child = Child([*map(str, command), "--log-level", "warning"], env={"KUBECONFIG": str(self._config)})
        self._operator = self._stack.enter_context(child)

    @property
    def cpu(self) -> float:
        """What the operator has used so far."""
        return cpu_of(self._operator.pid)

    async def rest(self) -> float:
        """Wait until the operator has nothing to do; what it had used by then."""
        still, before = 0, self.cpu
        while still < LONG:
            await asyncio.sleep(QUIET)
            now = self.cpu
            still = still + 1 if now - before < QUIET / 50 else 0
            before = now
        return before

    async def add_records(self, prefixes: Iterable[str], count: int, labels: Any) -> None:
        """Make A records, so many for each prefix; `labels` gives those of each, by prefix and number.

        They come with the finalizer, as after a restart.
        """

        def one(prefix: str, number: int) -> dict[str, Any]:
            meta = {"name": f"{prefix}-{number}", "namespace": NAMESPACE, "labels": labels(prefix, number)}
            meta["finalizers"] = ["bindy.firestoned.io/arecord-finalizer"]
            spec = {"name": host(number), "ipv4Addresses": [address(number)], "ttl": 300}
            return {**HEAD, "kind": "ARecord", "metadata": meta, "spec": spec}

        await self.at_once(self.client.create(one(prefix, number)) for prefix in prefixes for number in range(count))

    async def at_once(self, requests: Iterable[Any]) -> None:
        """Many requests, some of them in flight at a time."""
        waiting = iter(list(requests))

        async def worker() -> None:
            for request in waiting:
                await request

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    async def zone(self, zone: str, label: str, value: str = "yes") -> None:
        """A zone with the records of one label, made or changed."""
        await self.site.zone(zone, recordsFrom=[{"selector": {"matchLabels": {label: value}}}])


@asynccontextmanager
async def _api(folder: Path, *, real: bool) -> AsyncIterator[Path]:
    """An API server; yields a kubeconfig."""
    config = folder / "kubeconfig"
    if real:
        async with ControlPlane() as plane:
            yield plane.write_kubeconfig(config)
        return
    server = subprocess.Popen(  # noqa: ASYNC220  # before anything is measured
        [STEERSMAN, "apiserver", "--kubeconfig-out", str(config)], stdout=subprocess.DEVNULL, env=environment()
    )
    try:
        while not (config.exists() and config.stat().st_size):  # noqa: ASYNC110  # a process writes it
            await asyncio.sleep(0.05)
        yield config
    finally:
        server.terminate()
        server.wait()


# -- asking ------------------------------------------------------------------------------------------------------------


def answer(server: Named, name: str, kind: str = "A") -> tuple[set[str], int] | None:
    """The values and TTL a server has for a name and type; None when it does not say."""
    question = dns.message.make_query(name, kind)
    question.flags = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1.0)
        channel.connect((server.address, server.dns_port))
        channel.send(question.to_wire())
        try:
            found = dns.message.from_wire(channel.recv(65535))
        except (TimeoutError, ConnectionError):
            return None
    if found.rcode() not in (0, 3):
        return None
    wanted = dns.rdatatype.from_text(kind), dns.name.from_text(name)  # name servers of a delegation are no answer
    rows = [rrset for rrset in (*found.answer, *found.authority) if (rrset.rdtype, rrset.name) == wanted]
    return {row.to_text() for rrset in rows for row in rrset}, min((rrset.ttl for rrset in rows), default=0)


def until_served(servers: Iterable[Named], name: str, kind: str, wanted: set[str], ttl: int = 0) -> None:
    """Ask again and again, until every server has exactly that. Nothing else is done meanwhile."""
    until = time.monotonic() + PATIENCE
    for server in servers:
        while (found := answer(server, name, kind)) is None or found[0] != wanted or (ttl and found[1] != ttl):
            if time.monotonic() > until:
                raise TimeoutError(f"{name} {kind} is {found} and not {wanted} after {PATIENCE:g} s")
            time.sleep(POLL)


# -- the other way -----------------------------------------------------------------------------------------------------


def add_zone(server: Named, zone: str) -> None:
    """Make a zone by `rndc addzone`."""
    _write_zone(server, zone, 0)
    rndc = shutil.which("rndc", path="/usr/sbin:/usr/bin") or "rndc"
    conf = server.folder / "rndc.conf"
    conf.write_text(
        f'key "{server.key_name}" {{ algorithm hmac-sha256; secret "{server.secret}"; }};\n'
        f'options {{ default-key "{server.key_name}"; default-server 127.0.0.1; default-port {server.rndc_port}; }};\n'
    )
    command = [rndc, "-c", str(conf), "addzone", zone, _zone_config(server, zone)]
    subprocess.run(command, check=True, capture_output=True)


async def have_zone(server: Named, zone: str, hosts: int = 0) -> None:
    """Have a zone with some hosts, where nobody looks at the time."""
    _write_zone(server, zone, hosts)
    await server.control(f"addzone {zone} {_zone_config(server, zone)}")


def _write_zone(server: Named, zone: str, hosts: int) -> None:
    rows = "".join(f"{host(number)} 300 IN A {address(number)}\n" for number in range(hosts))
    head = f"$ORIGIN {zone}.\n$TTL 300\n@ IN SOA ns1 hostmaster 1 3600 600 604800 60\n@ IN NS ns1\n"
    (server.zones / f"{zone}.zone").write_text(f"{head}ns1 IN A 192.0.2.53\n{rows}")


def _zone_config(server: Named, zone: str) -> str:
    return f'{{ type primary; file "{zone}.zone"; update-policy {{ grant {server.key_name} zonesub ANY; }}; }};'


def preamble(server: Named) -> list[str]:
    """What nsupdate must be told first."""
    return [f"key hmac-sha256:{server.key_name} {server.secret}", f"server 127.0.0.1 {server.dns_port}"]


def nsupdate(server: Named, commands: list[str]) -> Spent:
    """What nsupdate takes for these commands, which are in a file: from its start to its end."""
    path = server.folder / "commands"
    path.write_text("\n".join([*preamble(server), *commands, ""]))
    began = time.perf_counter()
    pid = os.posix_spawnp("nsupdate", ["nsupdate", str(path)], os.environ)
    _, code, usage = os.wait4(pid, 0)
    assert code == 0, f"nsupdate failed: {code}"
    return Spent(time.perf_counter() - began, usage.ru_utime + usage.ru_stime)


class Kept:
    """An nsupdate that waits for commands: no start, no end, no reading of files."""

    def __init__(self, server: Named) -> None:
        self._server = server

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(["nsupdate"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0)
        self._tell(preamble(self._server))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def change(self, commands: list[str], name: str, value: str) -> Spent:
        """Until the server answers with the new value, as with ours."""
        before, began = cpu_of(self._process.pid), time.perf_counter()
        self._tell(commands)
        until_served([self._server], name, "A", {value})
        return Spent(time.perf_counter() - began, cpu_of(self._process.pid) - before)

    def _tell(self, lines: list[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
