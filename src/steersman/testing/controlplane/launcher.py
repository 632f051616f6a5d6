"""A real Kubernetes control plane on this machine, for as long as a `with` block lasts.

    async with ControlPlane() as plane:
        plane.url, plane.token, plane.ca_pem          # talk to it
        plane.write_kubeconfig(path)                  # or let kubectl talk to it

Everything of a run (data, certificates, logs, kubeconfigs) lives in one temporary folder; ports are chosen free and
held until the program they were promised to listens there, so any number of control planes run side by side. Access is
by RBAC, as in a real cluster. When the block ends, or this process dies in whatever way, nothing keeps running.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from typing import TYPE_CHECKING, NoReturn, Self

import aiohttp
import msgspec

from steersman.certificates import Authority, new_key
from steersman.errors import SteersmanError
from steersman.testing.controlplane import components
from steersman.testing.controlplane.audit_log import AUDIT_POLICY, AuditLog
from steersman.testing.controlplane.binaries import Progress, find_program
from steersman.testing.controlplane.identities import Identities, Rule, kubeconfig
from steersman.testing.controlplane.processes import LOOPBACK, ReservedPort
from steersman.testing.controlplane.processes import Child
from steersman.testing.raw_api import RawApi, ssl_context
from steersman.testing.controlplane.run_folder import RunFolder, write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["ALL_CONTROLLERS", "LIFECYCLE_CONTROLLERS", "ControlPlane", "ControlPlaneError"]

LIFECYCLE_CONTROLLERS = (
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
)
"""What keeps the API itself tidy, and leaves workloads alone."""

ALL_CONTROLLERS = ("*", "-node-ipam-controller", "-node-lifecycle-controller")
"""A whole cluster, except what needs real nodes."""

_POLL = 0.02  # seconds between questions whether a program is ready
_SERVER = ("kube-apiserver", "etcd")  # in the order they are stopped, after everything else


class ControlPlaneError(SteersmanError):
    """A program of the control plane does not start, or has ended."""


class ControlPlane:
    """etcd and kube-apiserver, and what else is asked for."""

    url: str
    ca_pem: str
    version: str  # what the server says it is
    audit: AuditLog

    def __init__(
        self,
        *,
        controllers: Sequence[str] = (),  # for kube-controller-manager; none means it is not started
        scheduler: bool = False,
        kwok: bool = False,  # simulates the nodes of add_nodes(), and the pods bound to them
        service_account_admission: bool | None = None,  # None: only where the service account controller runs
        apiserver_flags: Sequence[str] = (),  # come last, so they win
        etcd_flags: Sequence[str] = (),
        folder: Path | None = None,  # where the run's own folder is made; the system's temporary folder if None
        patience: float = 180.0,  # seconds a program may take to become ready
        progress: Progress | None = None,  # told about a first build
    ) -> None:
        self._controllers = tuple(controllers)
        self._wanted = ["etcd", "kube-apiserver"]
        self._wanted += ["kube-controller-manager"] if controllers else []
        self._wanted += ["kube-scheduler"] if scheduler else []
        self._wanted += ["kwok"] if kwok else []
        if service_account_admission is None:
            service_account_admission = bool({"*", "serviceaccount-controller"} & set(controllers))
        self._service_account_admission = service_account_admission
        self._apiserver_flags = apiserver_flags
        self._etcd_flags = etcd_flags
        self._parent = folder
        self._patience = patience
        self._progress = progress
        self._children: dict[str, Child] = {}
        self._commands: dict[str, list[str | Path]] = {}
        self.token = secrets.token_urlsafe(24)

    async def __aenter__(self) -> Self:
        programs = await asyncio.to_thread(lambda: {name: find_program(name, self._progress) for name in self._wanted})
        self._run = RunFolder(self._parent)
        self.audit = AuditLog(self._run.path / "audit.log")
        try:
            await self._start(programs)
        except BaseException:
            await self._stop(deadline=0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop(deadline=10.0)

    @property
    def folder(self) -> Path:
        """Everything of this run."""
        return self._run.path

    @property
    def processes(self) -> dict[str, int]:
        """The running programs and their process ids."""
        return {name: child.pid for name, child in self._children.items() if child.exit_code is None}

    def api(self, *, user_agent: str = "steersman-testing") -> RawApi:
        """Plain HTTP with full access: `async with plane.api() as api`."""
        return RawApi(self.url, token=self.token, ssl_context=ssl_context(self.ca_pem), user_agent=user_agent)

    def kubeconfig(self) -> str:
        """Full access, as YAML."""
        return kubeconfig(self.url, self.ca_pem, name="admin", user={"token": self.token})

    def write_kubeconfig(self, path: Path) -> Path:
        """Write full access to a file only this user can read."""
        return write_private(path, self.kubeconfig())

    async def user(self, name: str, rules: Sequence[Rule], *, namespace: str | None = None) -> Path:
        """The kubeconfig of a new user with these rights, in one namespace or everywhere."""
        async with self.api() as api:
            return await self._identities.user(api, name, rules, namespace=namespace)

    async def service_account(
        self, name: str, rules: Sequence[Rule], *, namespace: str = "default", everywhere: bool = False
    ) -> Path:
        """The kubeconfig of a new service account with these rights, in its namespace or everywhere."""
        async with self.api() as api:
            return await self._identities.service_account(api, name, rules, namespace=namespace, everywhere=everywhere)

    async def add_nodes(self, *names: str) -> None:
        """Make nodes for KWOK to simulate, and wait until they are ready."""
        key, _, value = components.SIMULATED.partition("=")
        async with self.api() as api:
            for name in names:
                metadata = {"name": name, "annotations": {key: value}, "labels": {"kubernetes.io/hostname": name}}
                answer = await api.post("/api/v1/nodes", {"metadata": metadata})
                if answer.status != 201:
                    raise ControlPlaneError(f"node {name}: {answer.status}: {answer.body.get('message', '')}")
            for name in names:
                await api.eventually(f"/api/v1/nodes/{name}", lambda answer: answer.body["status"].get("conditions"))

    def check(self) -> None:
        """Raise if a program has ended, with the end of its log."""
        for child in self._children.values():
            if (code := child.exit_code) is not None:
                raise ControlPlaneError(f"{child.name} ended with code {code}; its last lines:\n{child.tail()}")

    async def watch(self) -> NoReturn:
        """Raise as soon as a program ends, with the end of its log."""
        waits = [asyncio.create_task(child.wait()) for child in self._children.values()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self.check()
        raise AssertionError("a program has ended, and none has")

    async def _start(self, programs: dict[str, Path]) -> None:
        authority = Authority("steersman control plane")
        self._make_secrets(authority)
        with ReservedPort() as store, ReservedPort() as peer, ReservedPort() as port:
            self.url = f"https://{port.address}"
            self._launch(programs["etcd"], components.etcd(self.folder, store, peer), self._etcd_flags)
            flags = components.apiserver(self.folder, store, port, service_accounts=self._service_account_admission)
            self._launch(programs["kube-apiserver"], flags, self._apiserver_flags)
            await self._ready("kube-apiserver", f"{self.url}/readyz", ssl_context(self.ca_pem))
        async with self.api() as api:
            self.version = (await api.get("/version")).body["gitVersion"]
        self._identities = Identities(self.url, authority, self._run)
        await asyncio.gather(*(self._follow(name, programs[name]) for name in programs if name not in _SERVER))

    async def restart_server(self) -> None:
        """kill -9 of kube-apiserver; return when it serves again, at the same address and with everything it stored."""
        name = "kube-apiserver"
        old = self._children[name]
        with ReservedPort(int(self.url.rpartition(":")[2])):
            old.kill()
            await old.wait()
            self._children[name] = Child(self._commands[name], log=old.log)
            await self._ready(name, f"{self.url}/readyz", ssl_context(self.ca_pem))

    def _make_secrets(self, authority: Authority) -> None:
        serving = authority.server(LOOPBACK, "localhost", "kubernetes.default.svc", "10.96.0.1")
        self.ca_pem = authority.pem.decode()
        self._run.write("pki/ca.crt", authority.pem)
        self._run.write("pki/apiserver.crt", serving.certificate)
        self._run.write("pki/apiserver.key", serving.key)
        self._run.write("pki/service-accounts.key", new_key())
        self._run.write("pki/tokens.csv", f'{self.token},admin,admin,"system:masters"\n')
        self._run.write("audit-policy.json", msgspec.json.encode(AUDIT_POLICY))

    async def _follow(self, name: str, program: Path) -> None:
        """Start a program that is a client of the API server, and wait until it is healthy."""
        groups = ["system:masters"] if name == "kwok" else []
        config = self._identities.certificate(f"system:{name}", groups=groups)
        with ReservedPort() as port:
            scheme = "https"
            match name:
                case "kube-controller-manager":
                    flags = components.controller_manager(self.folder, port, config, self._controllers)
                case "kube-scheduler":
                    flags = components.scheduler(self.folder, port, config)
                case _:
                    flags, scheme = components.kwok(port, config), "http"
                    port.release()  # kwok cannot share it
            self._launch(program, flags)
            await self._ready(name, f"{scheme}://{port.address}/healthz", _trust_anything())

    def _launch(self, program: Path, flags: Sequence[str], more: Sequence[str] = ()) -> None:
        log = self._run.folder("logs") / f"{program.name}.log"
        self._commands[program.name] = [program, *flags, *more]
        self._children[program.name] = Child(self._commands[program.name], log=log)

    async def _ready(self, name: str, url: str, context: ssl.SSLContext) -> None:
        answer = "none"
        try:
            async with (
                asyncio.timeout(self._patience),
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            ):
                while True:
                    self.check()
                    with contextlib.suppress(aiohttp.ClientConnectionError):
                        async with session.get(url) as response:
                            answer = f"{response.status} {(await response.text())[-500:]}"
                            if response.status == 200:
                                return
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            tail = self._children[name].tail()
            raise ControlPlaneError(
                f"{name} is not ready after {self._patience:g} s (last answer: {answer}); its last lines:\n{tail}"
            ) from None

    async def _stop(self, *, deadline: float) -> None:
        """Clients first, then the server, then its store: a server without its store hangs when asked to end."""
        if "etcd" not in self.processes:
            deadline = 0.0
        clients = [name for name in self._children if name not in _SERVER]
        for names in (clients, *([name] for name in _SERVER)):
            children = [self._children[name] for name in names if name in self._children]
            await asyncio.gather(*(child.stop(deadline=deadline) for child in children))
        self._run.remove()


def _trust_anything() -> ssl.SSLContext:
    """For health checks of programs that serve a certificate of their own making."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
