"""One control plane that keeps running in the background, for working by hand.

A supervisor process owns it, detached from the terminal that started it. The supervisor holds a lock while it lives and
writes down where the control plane is once it is ready. So "is it running" is a question to the kernel and never a
guess from a file: a supervisor that was killed takes its programs with it and leaves an open lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from steersman.errors import SteersmanError
from steersman.testing.controlplane.binaries import cache_folder
from steersman.testing.controlplane.run_folder import write_private

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from steersman.testing.controlplane.launcher import ControlPlane

__all__ = ["BackgroundControlPlane", "BackgroundError", "BackgroundOptions", "Running"]


class BackgroundError(SteersmanError):
    """The control plane in the background cannot be started or stopped."""


class BackgroundOptions(Struct, frozen=True, kw_only=True):
    """What the control plane in the background consists of."""

    full: bool = False  # all controllers, the scheduler and KWOK, with one simulated node
    apiserver_flags: tuple[str, ...] = ()


class Running(Struct, frozen=True, kw_only=True):
    """A control plane that is up."""

    pid: int  # of the supervisor
    url: str
    version: str
    kubeconfig: str
    folder: str
    processes: dict[str, int]
    since: float  # seconds since the epoch


class BackgroundControlPlane:
    """The control plane of one user on this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_folder() / "controlplane"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._state = self.folder / "state.json"
        self._kubeconfig = self.folder / "kubeconfig"
        self.log = self.folder / "supervisor.log"

    def running(self) -> Running | None:
        """What is up, if anything is."""
        with self._lock_file() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                with contextlib.suppress(FileNotFoundError):
                    return msgspec.json.decode(self._state.read_bytes(), type=Running)
        return None

    def start(self, options: BackgroundOptions) -> Running:
        """Start it, unless it is up already; return once it is ready."""
        if (running := self.running()) is not None:
            return running
        ready, tell = os.pipe()
        command = [sys.executable, "-m", __name__, str(self.folder), msgspec.json.encode(options).decode(), str(tell)]
        with self.log.open("wb") as log, open(ready, "rb") as answer:  # noqa: PTH123  (a pipe has no path)
            supervisor = subprocess.Popen(
                command, pass_fds=[tell], start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            os.close(tell)
            answered = answer.read()  # the end of the pipe without an answer means the supervisor has ended
        if not answered:
            supervisor.wait()
            raise BackgroundError(self.log.read_text(errors="replace").strip() or f"the supervisor ended; see {self.log}")
        running = self.running()
        if running is None:
            raise BackgroundError(f"the control plane ended as soon as it was up; see {self.log}")
        return running

    def stop(self, *, deadline: float = 45.0) -> Running | None:
        """Stop it and return what was up; None when nothing was."""
        running = self.running()
        if running is None:
            return None
        supervisor = os.pidfd_open(running.pid)
        try:
            signal.pidfd_send_signal(supervisor, signal.SIGTERM)
            end = time.monotonic() + deadline
            while self._is_held():
                if time.monotonic() > end:
                    signal.pidfd_send_signal(supervisor, signal.SIGKILL)  # its programs end with it
                time.sleep(0.05)
        except ProcessLookupError:
            pass  # it ended by itself in the meantime
        finally:
            os.close(supervisor)
        return running

    async def keep(self, options: BackgroundOptions, tell: int) -> None:
        """Run the control plane until asked to stop. The supervisor does nothing else."""
        with self._lock_file() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackgroundError("another control plane is starting or running in the background") from None
            stopping = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, stopping.set)
            try:
                async with _control_plane(options) as plane:
                    if options.full:
                        await plane.add_nodes("node-1")
                    write_private(self._state, msgspec.json.encode(self._describe(plane)))
                    os.write(tell, b"ready")
                    os.close(tell)
                    await _either(stopping.wait(), plane.watch())
            finally:
                for path in (self._state, self._kubeconfig):
                    path.unlink(missing_ok=True)

    def _describe(self, plane: ControlPlane) -> Running:
        return Running(
            pid=os.getpid(),
            url=plane.url,
            version=plane.version,
            kubeconfig=str(plane.write_kubeconfig(self._kubeconfig)),
            folder=str(plane.folder),
            processes=plane.processes,
            since=time.time(),
        )

    def _is_held(self) -> bool:
        with self._lock_file() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _lock_file(self) -> IO[str]:
        return (self.folder / "lock").open("a")


async def _either(*ways: Coroutine[Any, Any, object]) -> None:
    """Return or raise as the first of these does."""
    tasks = [asyncio.create_task(way) for way in ways]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    for task in done:
        task.result()


def _control_plane(options: BackgroundOptions) -> ControlPlane:
    # only who runs one pays for it: `status` and `--help` stay quick
    from steersman.testing.controlplane.launcher import ALL_CONTROLLERS, LIFECYCLE_CONTROLLERS, ControlPlane

    return ControlPlane(
        controllers=ALL_CONTROLLERS if options.full else LIFECYCLE_CONTROLLERS,
        scheduler=options.full,
        kwok=options.full,
        apiserver_flags=options.apiserver_flags,
    )


def _main(folder: str, options: str, tell: str) -> None:
    keeping = BackgroundControlPlane(Path(folder)).keep(msgspec.json.decode(options, type=BackgroundOptions), int(tell))
    try:
        asyncio.run(keeping)
    except SteersmanError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])
