"""The cluster that Reloader's suites expect: Argo Rollouts, the secrets store CSI driver, and a Vault to write to.

The control plane is real, KWOK runs the pods. Rollouts become ready and mounted secrets are reported by two small
controllers here. Helm is real too: what its chart installs is what the cluster gets, and when the Deployment of
Reloader is there, its container is started as a process of this machine, with the arguments, the variables and the
ServiceAccount that the chart gives it, and no other rights.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import yaml
from aiohttp import web
from msgspec import Struct

from steersman.errors import SteersmanError
from steersman.testing.controlplane import components
from steersman.testing.controlplane.binaries import find_program
from steersman.testing.controlplane.identities import kubeconfig
from steersman.testing.controlplane.launcher import ALL_CONTROLLERS, ControlPlane
from steersman.testing.controlplane.processes import LOOPBACK, Child
from steersman.testing.programs import Program
from steersman.testing.raw_api import MERGE_PATCH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from steersman.testing.raw_api import RawResponse

__all__ = ["Candidate", "SuiteCluster", "SuiteError"]

CSI = "secrets-store.csi.k8s.io"
STORE = "/apis/secrets-store.csi.x-k8s.io/v1"
ROLLOUTS = "/apis/argoproj.io/v1alpha1"
STAGES = Path(components.__file__).with_name("kwok.yaml")
READY = 0.5  # seconds until a Rollout is ready
ROTATION = 2.0  # seconds between two looks into Vault, as the suites set up the driver
STARTING = 120.0  # seconds a process may take until it answers
# A program that asks this process: it is started by the suites (helm) or by KWOK's kubelet (vault).
PROXY = """#!{python} -IS
import json, sys, urllib.request
request = urllib.request.Request("{url}/{name}", json.dumps(sys.argv[1:]).encode(), {{"Content-Type": "text/json"}})
answer = json.load(urllib.request.urlopen(request))
print(answer["out"])
sys.exit(answer["code"])
"""


class SuiteError(SteersmanError):
    """The cluster cannot be made as the suites need it."""


class Candidate(Struct, frozen=True, kw_only=True):
    """What runs in the place of the image of the chart."""

    command: tuple[str, ...]
    port: int = 0  # where it listens; 0: where STEERSMAN_LISTEN says


class SuiteCluster:
    """`async with SuiteCluster(…) as cluster`: everything runs until the block ends."""

    def __init__(self, candidate: Candidate, definitions: Sequence[Path], folder: Path) -> None:
        self.candidate = candidate
        self.folder = folder
        self._definitions = definitions
        self._vault: dict[str, dict[str, str]] = {}
        self._running: dict[str, Child] = {}

    async def __aenter__(self) -> Self:
        self._stack = stack = contextlib.AsyncExitStack()
        try:
            self.plane = await stack.enter_async_context(
                ControlPlane(controllers=ALL_CONTROLLERS, scheduler=True, kwok=True)
            )
            self._api = await stack.enter_async_context(self.plane.api())
            self._admin = self.plane.write_kubeconfig(self.folder / "kubeconfig")
            self._helm = Program(find_program("helm"), self._admin, home=self.folder)
            stack.push_async_callback(self._stop_all)
            await self._install_proxies()
            await self.plane.add_nodes("node-1")
            for definition in self._definitions:
                await self._create_all(definition.read_text())
            await self._install_vault()
            for controller, period in ((self._report_rollouts, READY), (self._report_mounts, ROTATION)):
                task = asyncio.create_task(_forever(controller, period))
                stack.push_async_callback(_cancel, task)
        except BaseException:
            await stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def environment(self) -> dict[str, str]:
        """What a suite needs to reach the cluster, and to call our `helm`."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
        path = f"{self.folder / 'bin'}{os.pathsep}{inherited['PATH']}"
        return {**inherited, "KUBECONFIG": str(self._admin), "PATH": path}

    # The programs that the suites call

    async def _install_proxies(self) -> None:
        application = web.Application()
        application.router.add_post("/helm", self._answer_helm)
        application.router.add_post("/vault", self._answer_vault)
        runner = web.AppRunner(application)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("helm", "vault"):
            program = programs / name
            program.write_text(PROXY.format(python=sys.executable, url=url, name=name))
            program.chmod(0o755)
        (programs / "kubectl").symlink_to(find_program("kubectl"))

    async def _answer_helm(self, request: web.Request) -> web.Response:
        arguments: list[str] = await request.json()
        release = arguments[1] if arguments[0] == "uninstall" else arguments[2]
        await self._stop(release)
        output = await self._helm(*arguments, check=False)
        said = output.out + output.err
        if output.code == 0 and arguments[0] == "upgrade":
            try:
                await self._start(release, arguments[arguments.index("--namespace") + 1])
            except SuiteError as error:
                return web.json_response({"code": 1, "out": f"{said}\n{error}"})
        return web.json_response({"code": output.code, "out": said})

    async def _answer_vault(self, request: web.Request) -> web.Response:
        match await request.json():
            case ["kv", "put", path, *pairs]:
                self._vault[path] = dict(pair.split("=", 1) for pair in pairs)
            case ["kv", "metadata", "delete", path]:
                self._vault.pop(path, None)
            case other:
                return web.json_response({"code": 2, "out": f"vault: unknown command {other}"})
        return web.json_response({"code": 0, "out": ""})

    # The process in the place of the container

    async def _start(self, release: str, namespace: str) -> None:
        deployment = (await self._get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{release}-reloader")).body
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        account = pod["serviceAccountName"]
        asked = {"spec": {"expirationSeconds": 3600 * 4}}
        answer = await self._api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked)
        config = self.folder / f"{release}.kubeconfig"
        user = {"token": answer.body["status"]["token"]}
        config.write_text(kubeconfig(self.plane.url, self.plane.ca_pem, name=account, user=user, namespace=namespace))
        port = self.candidate.port or _free_port()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "KUBECONFIG": str(config),
            "STEERSMAN_LISTEN": f"{LOOPBACK}:{port}",
            **await self._variables(container, namespace, f"{release}-reloader-0"),
        }
        command = [*self.candidate.command, *container.get("args", ())]
        log = self.folder / f"{release}.log"
        with log.open("a") as file:
            file.write(f"$ {' '.join(command)}\n")
        child = self._running[release] = Child(command, log=log, environment=environment)
        try:
            await _answers(child, f"http://{LOOPBACK}:{port}/metrics")
        except (SuiteError, TimeoutError) as error:
            raise SuiteError(f"{' '.join(command)}: {error}; its last lines:\n{child.tail()}") from error

    async def _variables(self, container: dict[str, Any], namespace: str, pod: str) -> dict[str, str]:
        """What the kubelet would give the container; limits of a container that has none are left out."""
        fields = {"metadata.namespace": namespace, "metadata.name": pod}
        variables: dict[str, str] = {}
        for row in container.get("env", ()):
            match row:
                case {"name": name, "value": value}:
                    variables[name] = value
                case {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}:
                    variables[name] = fields[path]
        return variables

    async def _stop(self, release: str) -> None:
        if child := self._running.pop(release, None):
            await child.stop(deadline=10.0)

    async def _stop_all(self) -> None:
        for release in list(self._running):
            await self._stop(release)

    # What the cluster has besides

    async def _install_vault(self) -> None:
        """A pod `vault-0` in which `vault kv put …` can be run, and the DaemonSet by which the suites know Vault."""
        port = _free_port()
        metadata = {"name": "vault"}
        config = self.folder / "kubelet.yaml"
        document: dict[str, Any] = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterExec", "metadata": metadata}
        config.write_text(
            f"{STAGES.read_text()}\n---\n{yaml.safe_dump({**document, 'spec': {'execs': [{'local': {}}]}})}"
        )
        await self._create("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": [_taint("vault")]}})
        status = {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
        await self._api.patch("/api/v1/nodes/vault/status", {"status": status})
        labels = {"app": "vault-csi-provider"}
        pods = {"containers": [{"name": "vault", "image": "vault"}]}
        await self._create("/api/v1/namespaces", {"metadata": metadata})
        accounts = "/api/v1/namespaces/vault/serviceaccounts/default"
        await self._api.eventually(accounts, lambda answer: answer.status == 200)
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pods}}
        await self._create(
            "/apis/apps/v1/namespaces/vault/daemonsets", {"metadata": {"name": "vault-csi-provider"}, "spec": spec}
        )
        pod = {"metadata": {"name": "vault-0"}, "spec": {**pods, "nodeName": "vault"}}
        await self._create("/api/v1/namespaces/vault/pods", pod)
        flags = [
            *(f"--kubeconfig={self._admin}", f"--config={config}", "--manage-single-node=vault"),
            *(f"--node-ip={LOOPBACK}", f"--server-address={LOOPBACK}:{port}"),
        ]
        kubelet = Child([find_program("kwok"), *flags], log=self.folder / "kubelet.log", environment=self.environment)
        self._stack.push_async_callback(kubelet.stop, deadline=5.0)
        await self._api.eventually(
            "/api/v1/namespaces/vault/pods/vault-0", lambda answer: answer.body["status"].get("phase") == "Running"
        )

    async def _report_rollouts(self) -> None:
        """A pod for each Rollout, and then a status that says it is ready."""
        for rollout in (await self._get(f"{ROLLOUTS}/rollouts")).body["items"]:
            meta, spec = rollout["metadata"], rollout["spec"]
            if (rollout.get("status") or {}).get("readyReplicas") or "deletionTimestamp" in meta:
                continue
            owner = {"apiVersion": rollout["apiVersion"], "kind": "Rollout", "name": meta["name"], "uid": meta["uid"]}
            labels = spec["template"]["metadata"]["labels"]
            pod = {"name": f"{meta['name']}-0", "labels": labels, "ownerReferences": [owner]}
            pods = f"/api/v1/namespaces/{meta['namespace']}/pods"
            await self._api.post(pods, {"metadata": pod, "spec": spec["template"]["spec"]})
            path = f"{ROLLOUTS}/namespaces/{meta['namespace']}/rollouts/{meta['name']}/status"
            await self._api.patch(path, {"status": {"readyReplicas": spec["replicas"]}}, MERGE_PATCH)

    async def _report_mounts(self) -> None:
        """One SecretProviderClassPodStatus per pod and class that it mounts, as the driver writes it."""
        for pod in (await self._get("/api/v1/pods")).body["items"]:
            for volume in pod["spec"].get("volumes", ()):
                if (mounted := volume.get("csi") or {}).get("driver") == CSI:
                    await self._report_mount(pod["metadata"], mounted["volumeAttributes"]["secretProviderClass"])

    async def _report_mount(self, pod: dict[str, Any], mounted: str) -> None:
        namespace = pod["namespace"]
        answer = await self._api.get(f"{STORE}/namespaces/{namespace}/secretproviderclasses/{mounted}")
        if answer.status != 200 or "deletionTimestamp" in pod:
            return
        objects = [
            {"id": f"secret/{wanted['objectName']}", "version": self._version(wanted)}
            for wanted in yaml.safe_load(answer.body["spec"]["parameters"]["objects"])
        ]
        statuses = f"{STORE}/namespaces/{namespace}/secretproviderclasspodstatuses"
        name = f"{pod['name']}-{namespace}-{mounted}"
        status = {"podName": pod["name"], "secretProviderClassName": mounted, "mounted": True, "objects": objects}
        current = await self._api.get(f"{statuses}/{name}")
        if current.status == 404:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
            kind = {"apiVersion": "secrets-store.csi.x-k8s.io/v1", "kind": "SecretProviderClassPodStatus"}
            metadata = {"name": name, "ownerReferences": [owner]}
            await self._api.post(statuses, {**kind, "metadata": metadata, "status": status})
        elif current.body["status"] != status:
            await self._api.patch(f"{statuses}/{name}", {"status": status}, MERGE_PATCH)

    def _version(self, wanted: dict[str, str]) -> str:
        stored = self._vault.get(wanted["secretPath"].replace("secret/data/", "secret/", 1), {})
        return hashlib.sha256(stored.get(wanted["secretKey"], "").encode()).hexdigest()[:12]

    async def _create_all(self, manifests: str) -> None:
        for body in yaml.safe_load_all(manifests):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await self._create(path, body)
            name = body["metadata"]["name"]
            await self._api.eventually(f"{path}/{name}", _is_established)

    async def _create(self, path: str, body: dict[str, Any]) -> None:
        answer = await self._api.post(path, body)
        if answer.status != 201:
            raise SuiteError(f"POST {path}: {answer.status}: {answer.body.get('message', '')}")

    async def _get(self, path: str) -> RawResponse:
        answer = await self._api.get(path)
        if answer.status != 200:
            raise SuiteError(f"GET {path}: {answer.status}: {answer.body}")
        return answer


def _is_established(answer: RawResponse) -> bool:
    conditions = answer.body.get("status", {}).get("conditions") or ()
    return any(row["type"] == "Established" and row["status"] == "True" for row in conditions)


def _taint(key: str) -> dict[str, str]:
    return {"key": key, "value": "true", "effect": "NoSchedule"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


async def _answers(child: Child, url: str) -> None:
    async with asyncio.timeout(STARTING), aiohttp.ClientSession() as session:
        while True:
            if child.exit_code is not None:
                raise SuiteError(f"ended with code {child.exit_code}")
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


async def _forever(controller: Callable[[], Awaitable[None]], period: float) -> None:
    while True:
        with contextlib.suppress(SuiteError, aiohttp.ClientError):
            await controller()
        await asyncio.sleep(period)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
