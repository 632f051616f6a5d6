"""Addresses for pods that are processes: a network of its own for every pod, and a bridge between them and us.

    this machine ── 10.x.y.1 ──┐
                             bridge ── pod 10.x.y.2 ── named, on any address and port it likes
                               └────── pod 10.x.y.3

The bridge lives in a network namespace too, and every namespace is held by a process of ours: when that ends, in
whatever way, its interfaces are gone. Needs root.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
from pathlib import Path
from typing import Self

from steersman.testing.controlplane.processes import Child

__all__ = ["PodNetwork", "PodsUnavailable", "check_pods"]

PROGRAMS = ("ip", "unshare", "nsenter", "setpriv", "mount", "chroot", "sleep")
WHERE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class PodsUnavailable(Exception):  # noqa: N818  what is wrong
    """Pods cannot be processes on this machine."""


def check_pods() -> None:
    """PodsUnavailable says what is missing."""
    if os.geteuid() != 0:
        raise PodsUnavailable("pods with an address of their own need root")
    for name in PROGRAMS:
        if shutil.which(name, path=WHERE) is None:
            raise PodsUnavailable(f"{name} is not installed (Debian: apt-get install iproute2 util-linux)")


def program(name: str) -> str:
    """The path of a program of the system."""
    found = shutil.which(name, path=WHERE)
    if found is None:
        raise PodsUnavailable(f"{name} is not installed")
    return found


async def run(*command: str) -> None:
    """Run a program of the system; what it says is the error."""
    process = await asyncio.create_subprocess_exec(
        program(command[0]), *command[1:], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise PodsUnavailable(f"{' '.join(command)}: {out.decode().strip()}")


class PodNetwork:
    """See the module: `async with PodNetwork(folder) as network`, then `await network.join()` per pod."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = 1
        self._node: Child | None = None

    async def __aenter__(self) -> Self:
        check_pods()
        self._claim_subnet()
        try:
            self._node = await self._space("node")
            holder = str(self._node.pid)
            host = f"st{self._net[0]}x{self._net[1]}"
            await run("ip", "link", "add", host, "type", "veth", "peer", "name", "host", "netns", holder)
            await run("ip", "addr", "add", f"{self._address(1)}/24", "dev", host)
            await run("ip", "link", "set", host, "up")
            await self._within(self._node, "link", "add", "bridge", "type", "bridge")
            await self._within(self._node, "link", "set", "bridge", "up")
            await self._within(self._node, "link", "set", "host", "master", "bridge", "up")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._node is not None:
            await self._node.stop(deadline=5.0)
        self._mark.close()

    async def join(self, name: str) -> tuple[Child, str]:
        """A network for one pod: the process that holds it, and its address. Stop the process to give it back."""
        assert self._node is not None
        self._numbers += 1
        number = self._numbers
        pod = await self._space(name)
        try:
            port, peer = f"pod{number}", ("peer", "name", "eth0", "netns", str(pod.pid))
            await self._within(self._node, "link", "add", port, "type", "veth", *peer)
            await self._within(self._node, "link", "set", port, "master", "bridge", "up")
            await self._within(pod, "addr", "add", f"{self._address(number)}/24", "dev", "eth0")
            await self._within(pod, "link", "set", "lo", "up")
            await self._within(pod, "link", "set", "eth0", "up")
        except BaseException:
            await pod.stop(deadline=0.0)
            raise
        return pod, self._address(number)

    def _claim_subnet(self) -> None:
        """A subnet that nobody else of these tests takes while it is held."""
        while True:
            self._net = (random.randrange(200, 250), random.randrange(1, 250))  # any will do
            self._mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._mark.bind(f"\0steersman-pods-{self._net[0]}-{self._net[1]}")
            except OSError:
                self._mark.close()
                continue
            return

    @property
    def subnet(self) -> str:
        """What all addresses begin with."""
        return f"10.{self._net[0]}.{self._net[1]}."

    def _address(self, number: int) -> str:
        return f"{self.subnet}{number}"

    async def _space(self, name: str) -> Child:
        """A process in a network namespace of its own."""
        holder = Child(
            [program("unshare"), "--net", program("sleep"), "infinity"], log=self._folder / f"{name}.log", name=name
        )
        mine = _network_of("self")
        async with asyncio.timeout(60):
            while True:
                if _network_of(str(holder.pid)) not in ("", mine):
                    return holder
                if holder.exit_code is not None:
                    raise PodsUnavailable(f"no network namespace: {holder.tail()}")
                await asyncio.sleep(0.01)

    async def _within(self, holder: Child, *command: str) -> None:
        await run("nsenter", "--target", str(holder.pid), "--net", "ip", *command)


def _network_of(process: str) -> str:
    """What tells the network of a process from others; empty when it is gone."""
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return ""
