"""A kubelet whose containers are processes here: what a pod describes is really run, at an address of its own.

    async with ProcessKubelet(client, namespace, tmp_path) as kubelet:
        ...
        kubelet.crash("web-0")              # kill -9 of its containers, or of one; they are started again
        await kubelet.move("web-0")         # the same with another address

It takes every pod of its namespace. ConfigMaps, Secrets, projected volumes, emptyDirs and claims become folders,
mounted where the container wants them in a root of its own; ConfigMaps and Secrets are kept up to date as kubelets do
it, by swapping one link. The program is the one of that name on this machine (images are not pulled; `images` says what
one runs that a pod gives no command), with the user, the groups and no more rights than the pod says. A pod is Ready
when its probes succeed and its gates are open. What a pod leaves behind when it is deleted is lost, except its claims.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.errors import Conflict, KubeError, NotFound
from steersman.kube.api.patches import PatchType
from steersman.kube.api.times import format_micro_time, format_time
from steersman.kube.api.types.core import ConfigMap, Secret
from steersman.kube.api.types.pods import Pod
from steersman.testing.controlplane.processes import Child
from tests.support.pods.network import WHERE, PodNetwork, PodsUnavailable, program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.kube.api.types.pods import Container
    from steersman.kube.api.types.volumes import Volume
    from steersman.kube.client.client import Client

__all__ = ["Image", "ProcessKubelet"]

NODE = "process-node"
PAUSE = 0.1  # seconds between two looks
IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}  # every container is told
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "usr", "dev", "proc")  # what a container's root has of this machine


class Image(NamedTuple):
    """What an image would run, and the folders of this machine that it needs for that."""

    entrypoint: tuple[str, ...]
    folders: tuple[Path, ...] = ()


class _Missing(Exception):  # noqa: N818  a state, not a fault
    """A volume's source is not there yet."""


class _Run:
    """One pod that runs here."""

    def __init__(self, pod: Pod, folder: Path, holder: Child, address: str) -> None:
        self.pod, self.folder, self.holder, self.address = pod, folder, holder, address
        self.containers: dict[str, Child] = {}
        self.first: dict[str, Child] = {}  # init containers, in their order
        self.restarts: dict[str, int] = {}
        self.began = format_time(SYSTEM_CLOCK.time())
        self.told: object = None
        self.ending: asyncio.Task[None] | None = None
        self.moving = False


class ProcessKubelet:
    """See the module."""

    def __init__(
        self, client: Client, namespace: str, folder: Path, *, images: Mapping[str, Image] | None = None
    ) -> None:
        self.client, self.namespace, self.folder = client, namespace, folder
        self._images = dict(images or {})
        self._network = PodNetwork(folder)
        self._runs: dict[str, _Run] = {}
        self._task: asyncio.Task[None] | None = None
        self.started: list[str] = []  # pods in the order in which they were started
        self.journal: list[str] = []  # what was done and what went wrong, for who looks for a cause

    async def __aenter__(self) -> Self:
        await self._network.__aenter__()
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._task is not None:
                self._task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await self._task
        finally:
            for run in list(self._runs.values()):
                if run.ending is not None:
                    run.ending.cancel()
                    await asyncio.gather(run.ending, return_exceptions=True)
                await self._stop(run, grace=0.0)
            await self._network.__aexit__()

    @property
    def subnet(self) -> str:
        """What the addresses of all pods begin with."""
        return self._network.subnet

    def address(self, pod: str) -> str:
        """Where a pod is."""
        return self._run(pod).address

    def log(self, pod: str, container: str = "bind9") -> str:
        """What a container said."""
        return (self._run(pod).folder / f"{container}.log").read_text(errors="replace")

    def pids(self, pod: str) -> dict[str, int]:
        """The processes of a pod, by container."""
        return {name: child.pid for name, child in self._run(pod).containers.items()}

    def crash(self, pod: str, *names: str) -> None:
        """kill -9 of every container of a pod, or of those."""
        for name, child in self._run(pod).containers.items():
            if not names or name in names:
                child.kill()

    async def move(self, pod: str) -> None:
        """A pod loses its address: its containers and its network are made anew, and its volumes stay."""
        run = self._run(pod)
        run.moving = True
        try:
            await self._stop(run, grace=0.0)
            run.holder, run.address = await self._network.join(f"{pod}-network")
            self._note(f"{pod}: moved to {run.address}")
        finally:
            run.moving = False

    def _run(self, name: str) -> _Run:
        return next(run for run in self._runs.values() if run.pod.name == name)

    # -- the loop ------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            try:
                await self._look()
            except KubeError as error:
                self._note(f"looking: {error}")
            await asyncio.sleep(PAUSE)

    async def _look(self) -> None:
        space = self.namespace
        pods = (await self.client.list(Pod, namespace=space)).items
        maps = {one.name: one for one in (await self.client.list(ConfigMap, namespace=space)).items}
        secrets = {secret.name: secret for secret in (await self.client.list(Secret, namespace=space)).items}
        sources = _Sources(maps, secrets)
        await asyncio.gather(*(self._cared(pod, sources) for pod in pods))
        known = {pod.metadata.uid for pod in pods}
        for run in [run for uid, run in self._runs.items() if uid not in known and run.ending is None]:
            run.ending = asyncio.create_task(self._end(run, run.pod))

    async def _cared(self, pod: Pod, sources: _Sources) -> None:
        """What fails with one pod concerns no other, and is tried again at the next look."""
        try:
            await self._care(pod, sources)
        except (KubeError, PodsUnavailable, OSError) as error:
            self._note(f"{pod.name}: {type(error).__name__}: {error}")

    async def _care(self, pod: Pod, sources: _Sources) -> None:
        run = self._runs.get(pod.metadata.uid)
        if pod.deleting:
            if run is None:
                await self._forget(pod)
            elif run.ending is None:
                run.ending = asyncio.create_task(self._end(run, pod))
            return
        if not pod.spec.node_name:
            await self._bind(pod)
            return
        if run is None:
            try:
                run = await self._start(pod, sources)
            except _Missing as missing:
                self._note(f"{pod.name}: waits for {missing}")
                return
        if run.moving:
            return
        run.pod = pod
        try:
            self._renew(run, sources)
        except _Missing as missing:  # of the environment of a container that is not started yet
            self._note(f"{pod.name}: waits for {missing}")
        await self._tell(run)

    def _note(self, text: str) -> None:
        """Keep a line; one that says the same as the last about the same thing says nothing."""
        if not self.journal or self.journal[-1].partition(" ")[2] != text:
            self.journal.append(f"{format_micro_time(SYSTEM_CLOCK.time())} {text}")

    async def _bind(self, pod: Pod) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        with contextlib.suppress(NotFound, Conflict):
            await self.client.raw_post(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding", body)

    # -- a pod's life --------------------------------------------------------------------------------------------------

    async def _start(self, pod: Pod, sources: _Sources) -> _Run:
        for volume in pod.spec.volumes or ():
            sources.files(volume)  # _Missing before anything is made
        folder = self.folder / f"{pod.name}-{pod.metadata.uid[:8]}"
        (folder / "root").mkdir(parents=True, exist_ok=True)
        holder, address = await self._network.join(f"{pod.name}-network")
        run = self._runs[pod.metadata.uid] = _Run(pod, folder, holder, address)
        self.started.append(pod.name)
        self._note(f"{pod.name}: started at {address}")
        return run

    def _renew(self, run: _Run, sources: _Sources) -> None:
        """Volumes as they should be, and containers that run."""
        pod = run.pod
        group = int((pod.spec.security_context or {}).get("fsGroup", 0))
        for volume in pod.spec.volumes or ():
            folder = self._folder(run, volume)
            if not folder.exists():
                folder.mkdir(parents=True)
                shutil.chown(folder, group=group)
                folder.chmod(0o2775)
            with contextlib.suppress(_Missing):  # what was mounted stays when its source goes
                if (files := sources.files(volume)) is not None:
                    _swap(folder, files)
        if not self._begun(run, sources):
            return
        for container in pod.spec.containers or ():
            child = run.containers.get(container.name)
            if child is not None and child.exit_code is None:
                continue
            if child is not None:
                run.restarts[container.name] = run.restarts.get(container.name, 0) + 1
                self._note(f"{pod.name}: {container.name} ended with {child.exit_code} and is started again")
            run.containers[container.name] = self._launch(run, container, sources)

    def _begun(self, run: _Run, sources: _Sources) -> bool:
        """Whether every init container of a pod has done its work; the next one is started when the last has."""
        for container in run.pod.spec.init_containers or ():
            child = run.first.get(container.name)
            if child is None or child.exit_code:
                run.first[container.name] = self._launch(run, container, sources)
                return False
            if child.exit_code is None:
                return False
        return True

    def _folder(self, run: _Run, volume: Volume) -> Path:
        claim = volume.persistent_volume_claim
        if claim is not None:
            return self.folder / "claims" / claim.claim_name
        return run.folder / "volumes" / volume.name

    def _launch(self, run: _Run, container: Container, sources: _Sources) -> Child:
        environment = {"PATH": WHERE, **IN_CLUSTER, **sources.environment(container)}
        image = self._images.get(container.image, Image(()))
        root = run.folder / "root"
        folders = {volume.name: self._folder(run, volume) for volume in run.pod.spec.volumes or ()}
        lines = ["set -e", f"root={shlex.quote(str(root))}", "mount -t tmpfs tmpfs $root"]
        for name in SYSTEM:
            place = Path("/") / name
            if place.is_symlink():
                lines.append(f"cp -P /{name} $root/{name}")
            elif place.exists():
                lines.append(f"mkdir $root/{name}; mount --rbind /{name} $root/{name}")
        lines.append("mkdir -m 1777 $root/tmp; mkdir $root/etc; cp /etc/ld.so.cache $root/etc/ 2>/dev/null || true")
        for folder in image.folders:
            where = f"$root{shlex.quote(str(folder))}"
            lines.append(f"mkdir -p {where}; mount --bind {shlex.quote(str(folder))} {where}")
        for mount in container.volume_mounts or ():
            where = f"$root{shlex.quote(mount.mount_path)}"
            lines.append(f"mkdir -p {where}; mount --bind {shlex.quote(str(folders[mount.name]))} {where}")
            if mount.read_only:
                lines.append(f"mount -o remount,bind,ro {where}")
        security = {**(run.pod.spec.security_context or {}), **(container.security_context or {})}
        if security.get("readOnlyRootFilesystem"):
            lines.append("mount -o remount,ro $root")
        user, group = int(security.get("runAsUser", 0)), int(security.get("runAsGroup", 0))
        rights = ["--reuid", str(user), "--regid", str(group), "--groups", str(security.get("fsGroup", group))]
        rights += ["--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs", "--pdeathsig", "KILL"]
        command = ["chroot", "$root", "setpriv", *rights, *(container.command or image.entrypoint), *container.args]
        lines.append("exec " + " ".join(part if part == "$root" else shlex.quote(part) for part in command))
        spaces = [program("nsenter"), f"--net=/proc/{run.holder.pid}/ns/net", program("unshare"), "--mount"]
        return Child(
            [*spaces, "--propagation", "private", program("sh"), "-c", "\n".join(lines)],
            log=run.folder / f"{container.name}.log",
            name=f"{run.pod.name}/{container.name}",
            environment=environment,
        )

    async def _end(self, run: _Run, pod: Pod) -> None:
        grace = pod.metadata.deletion_grace_period_seconds
        self._note(f"{pod.name}: ends")
        await self._stop(run, grace=float(30 if grace is None else grace))
        shutil.rmtree(run.folder / "volumes", ignore_errors=True)
        while True:
            try:
                await self._forget(pod)
            except KubeError:
                await asyncio.sleep(PAUSE)
            else:
                break
        self._runs.pop(pod.metadata.uid, None)
        self._note(f"{pod.name}: gone")

    async def _stop(self, run: _Run, *, grace: float) -> None:
        await asyncio.gather(*(child.stop(deadline=grace) for child in run.containers.values()))
        await run.holder.stop(deadline=5.0)

    async def _forget(self, pod: Pod) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self.client.delete(
                Pod, pod.name, namespace=pod.namespace, uid=pod.metadata.uid, grace_period_seconds=0
            )

    # -- telling -------------------------------------------------------------------------------------------------------

    async def _tell(self, run: _Run) -> None:
        pod = run.pod
        if not run.containers:
            return
        ready = {container.name: await self._probe(run, container) for container in pod.spec.containers or ()}
        rows = {row.type: row.status for row in pod.status.conditions or ()}
        gates = [gate.get("conditionType", "") for gate in pod.spec.readiness_gates or ()]
        contained = all(ready.values())
        open_ = contained and all(rows.get(gate) == "True" for gate in gates)
        facts = {"PodScheduled": True, "Initialized": True, "ContainersReady": contained, "Ready": open_}
        address = run.address
        told = (address, ready, facts, dict(run.restarts))
        if told == run.told:
            return
        now = format_time(SYSTEM_CLOCK.time())
        conditions = [
            {"type": name, "status": str(fact), "lastTransitionTime": now}
            for name, fact in facts.items()
            if rows.get(name) != str(fact)
        ]
        containers = [
            {
                "name": container.name,
                "image": container.image,
                "imageID": container.image,
                "ready": ready[container.name],
                "started": True,
                "restartCount": run.restarts.get(container.name, 0),
                "state": {"running": {"startedAt": run.began}},
            }
            for container in pod.spec.containers or ()
        ]
        status: dict[str, Any] = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"$patch": "replace"}, {"ip": address}],
            "startTime": run.began,
            "containerStatuses": containers,
            "conditions": conditions,
        }
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        with contextlib.suppress(NotFound, Conflict):
            await self.client.patch(
                Pod, pod.name, patch, type=PatchType.STRATEGIC, namespace=pod.namespace, subresource="status"
            )
            run.told = told
            self._note(f"{pod.name}: told {', '.join(name for name, fact in facts.items() if fact)}")

    async def _probe(self, run: _Run, container: Container) -> bool:
        """Whether a container is ready; probes come at every look, whatever they say about delays."""
        child = run.containers.get(container.name)
        if child is None or child.exit_code is not None:
            return False
        probe = container.readiness_probe or {}
        try:
            async with asyncio.timeout(30):
                if (asked := probe.get("httpGet")) is not None:
                    return await _answers(f"http://{run.address}:{asked['port']}{asked.get('path', '/')}")
                if (socket := probe.get("tcpSocket")) is not None:
                    _, writer = await asyncio.open_connection(run.address, int(socket["port"]))
                    writer.close()
        except (OSError, TimeoutError):
            return False
        return True


async def _answers(url: str) -> bool:
    import aiohttp

    try:
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as answer:
            return 200 <= answer.status < 400
    except aiohttp.ClientError:
        return False


class _Sources:
    """ConfigMaps and Secrets as files."""

    def __init__(self, maps: Mapping[str, ConfigMap], secrets: Mapping[str, Secret]) -> None:
        self._maps, self._secrets = maps, secrets

    def files(self, volume: Volume) -> dict[str, bytes] | None:
        """What belongs into a volume; None when that is not for us to say."""
        if volume.config_map is not None:
            return self._picked(self._of_map(volume.config_map.name), volume.config_map.items)
        if volume.secret is not None:
            return self._picked(self._of_secret(volume.secret.secret_name), volume.secret.items)
        if volume.projected is not None:
            found: dict[str, bytes] = {}
            for part in volume.projected.sources or ():
                if part.config_map is not None:
                    found |= self._picked(self._of_map(part.config_map.name), part.config_map.items)
                if part.secret is not None:
                    found |= self._picked(self._of_secret(part.secret.name), part.secret.items)
            return found
        return None

    def environment(self, container: Container) -> dict[str, str]:
        """The variables of a container, as its pod and what that refers to say now."""
        found: dict[str, str] = {}
        for row in container.env or ():
            source = row.value_from
            if source is None:
                found[row.name] = row.value
            elif source.secret_key_ref is not None:
                found[row.name] = self._one(self._of_secret(source.secret_key_ref.name), source.secret_key_ref.key)
            elif source.config_map_key_ref is not None:
                found[row.name] = self._one(self._of_map(source.config_map_key_ref.name), source.config_map_key_ref.key)
        return found

    def _one(self, files: dict[str, bytes], key: str) -> str:
        if key not in files:
            raise _Missing(key)
        return files[key].decode()

    def _of_map(self, name: str) -> dict[str, bytes]:
        if name not in self._maps:
            raise _Missing(name)
        return {key: value.encode() for key, value in (self._maps[name].data or {}).items()}

    def _of_secret(self, name: str) -> dict[str, bytes]:
        if name not in self._secrets:
            raise _Missing(name)
        return {key: bytes(value or b"") for key, value in (self._secrets[name].data or {}).items()}

    def _picked(self, files: dict[str, bytes], items: Any) -> dict[str, bytes]:
        if not items:
            return files
        if any(item.key not in files for item in items):
            raise _Missing(str(items))
        return {item.path: files[item.key] for item in items}


def _swap(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the files of a folder so, all at once: readers see the old ones or the new ones."""
    link = folder / "..data"
    before = {path.name: path.read_bytes() for path in link.iterdir()} if link.exists() else None
    if before == dict(files):
        return
    old = link.resolve() if link.exists() else None
    number = int(old.name.removeprefix("..")) + 1 if old is not None else 1
    fresh = folder / f"..{number}"
    fresh.mkdir()
    for name, value in files.items():
        (fresh / name).write_bytes(value)
    new = folder / "..new"
    new.symlink_to(fresh.name)
    new.replace(link)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    for name in (before or {}).keys() - files.keys():
        (folder / name).unlink(missing_ok=True)
    if old is not None:
        shutil.rmtree(old)
