"""A walk through a page of documentation: its commands, typed one after the other into one shell.

    async with Walk(folder, environment) as walk:
        for step in steps:
            await walk.take(step)

A command that stays (`steersman run`, `steersman apiserver`) holds its terminal, so what follows is typed into another
one; it is ready before the next step, and ended with Ctrl-C when the page starts another that stays, or ends. The
address of this machine, 127.0.0.1, is another of the sixteen million it has, so that walks do not meet. `named` listens
only on addresses that an interface has: its ports are others instead, in files too. Nothing outlives a walk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shlex
import shutil
import signal
from typing import TYPE_CHECKING, Final, Self

import aiohttp

from steersman.testing.controlplane.processes import LOOPBACK
from steersman.testing.waiting import eventually
from tests.support.docs.pages import Command, File, agree
from tests.support.programs.loopback_server import PortClaim

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.docs.pages import Step

__all__ = ["Walk"]

DEFAULT: Final = 8080  # the port of `steersman run`
NAMED_PORTS: Final = re.compile(r"\b(5300|9530)\b")  # of the name server that pages start
PATIENCE: Final = 120.0  # seconds for a command, on a machine that has other things to do

_STAYS: Final = re.compile(r"^(kubectl )?steersman (run|apiserver|reload --profile)\b")
_LISTENS: Final = re.compile(r"^(kubectl )?steersman (run|reload --profile)\b")


class Walk:
    """One shell in one folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._notes = folder.with_name(f"{folder.name}.walk")
        self._address = ".".join(["127", *(str(random.randint(1, 254)) for _ in range(3))])
        self._environment = {
            **environment,
            "STEERSMAN_LISTEN": f"{self._address}:{DEFAULT}",
            "STEERSMAN_URL": f"http://{self._address}:{DEFAULT}",
        }
        self._shell: asyncio.subprocess.Process | None = None
        self._staying: tuple[str, int] | None = None  # number and process id
        self._number = 0
        self._ports: dict[str, PortClaim] = {}  # by the port that the page shows

    async def __aenter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        self._notes.mkdir()
        shell = shutil.which("bash")
        if shell is None:
            raise FileNotFoundError("a walk needs bash")
        self._shell = await asyncio.create_subprocess_exec(
            *(shell, "--noprofile", "--norc"),
            cwd=self.folder,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,
        )
        await self._say("set -o pipefail; echo")
        return self

    async def __aexit__(self, *_: object) -> None:
        shell = self._shell
        assert shell is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                await shell.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        await shell.wait()
        for claim in self._ports.values():
            claim.release()

    async def take(self, step: Step) -> None:
        """Do it; AssertionError when it does not go as the page says."""
        if isinstance(step, File):
            path = self.folder / step.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._with_own_ports(step.text), encoding="utf-8")
        elif isinstance(step, Command):
            text = self._with_own_ports(step.text).replace(LOOPBACK, self._address)
            if _STAYS.match(text):
                await self._begin(step, text)
            else:
                await self._run(step, text)

    async def end(self) -> None:
        """End what stays, as Ctrl-C does; it must end well."""
        if self._staying is None:
            return
        number, pid = self._staying
        self._staying = None
        os.kill(pid, signal.SIGINT)
        code = await self._say(f"wait {pid}; echo $?")
        assert code == "0", f"after Ctrl-C it ended with {code}:\n{self._printed(number)}"

    # -- commands ----------------------------------------------------------------------------------------------------

    async def _run(self, step: Command, text: str) -> None:
        """Until it prints what is shown: a controller may need a moment. Commands that show something only read."""
        complaint = ""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    number = self._noted(text)
                    code = int(await self._say(f". {number}.sh > {number}.out 2>&1 < /dev/null; echo $?"))
                    printed = self._printed(number)
                    assert code == step.code, (
                        f"{step.place}: {step.text}\nended with {code} instead of {step.code}:\n{printed}"
                    )
                    complaint = agree(step.shown, printed) if step.shown else ""
                    if not complaint:
                        return
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(
                f"{step.place}: {step.text}\n{complaint or 'it did not end'}\n{self._printed(number)}"
            ) from None

    async def _begin(self, step: Command, text: str) -> None:
        """Start what stays, and return when it can be used."""
        await self.end()
        text, number = text.removesuffix("&").rstrip(), self._noted(f"exec {text.removesuffix('&').rstrip()}")
        pid = int(await self._say(f"(. {number}.sh) > {number}.out 2>&1 < /dev/null & echo $!"))
        if not step.text.rstrip().endswith("&"):
            self._staying = number, pid
        words = shlex.split(text, comments=True)
        where = words[words.index("--listen") + 1] if "--listen" in words else self._environment["STEERSMAN_LISTEN"]

        async def ready() -> bool:
            assert await self._say(f"kill -0 {pid} 2> /dev/null; echo $?") == "0", self._printed(number)
            if not _LISTENS.match(text):
                return bool(self._printed(number))
            with contextlib.suppress(aiohttp.ClientError):
                async with asked.get(f"http://{where}/readyz") as answer:
                    return answer.status == 200
            return False

        async with aiohttp.ClientSession() as asked:
            try:
                await eventually(ready, f"{step.place}: {step.text}", timeout=PATIENCE)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self._printed(number)}") from None

    def _with_own_ports(self, text: str) -> str:
        def own(shown: re.Match[str]) -> str:
            if shown[0] not in self._ports:
                self._ports[shown[0]] = PortClaim()
            return str(self._ports[shown[0]].number)

        return NAMED_PORTS.sub(own, text)

    # -- the shell ---------------------------------------------------------------------------------------------------

    def _noted(self, text: str) -> str:
        """Write a command down as a script; the path of it, without its ending."""
        self._number += 1
        path = self._notes / str(self._number)
        path.with_suffix(".sh").write_text(f"{text}\n", encoding="utf-8")
        return shlex.quote(str(path))

    def _printed(self, number: str) -> str:
        path = self._notes / f"{shlex.split(number)[0]}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    async def _say(self, line: str) -> str:
        """Type one line that prints one line."""
        assert self._shell is not None
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{line}\n".encode())
        await self._shell.stdin.drain()
        answer = await self._shell.stdout.readline()
        assert answer, f"the shell has gone: {line}"
        return answer.decode().strip()
