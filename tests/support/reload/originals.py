"""What other reload controllers leave on a workload, for tests that take over from them and go back.

original = FromReloader(namespace)
await put_source(client, namespace, "a")
await put_workload(client, original, "a")        as if it had started the pods with {mode: a}
await restart_workload(client, original, "b")    as it does when that became {mode: b}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from steersman.kube.api.types import Deployment
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.compat.dialects.hashes import (
    ReloaderHash,
    ShipshapeHash,
    XingHash,
    wave_data,
    wave_hash,
)

if TYPE_CHECKING:
    from steersman.kube.client.client import Client

__all__ = ["CHECKSUMS", "LABELS", "ORIGINALS", "TIMES", "Original", "put_source", "put_workload", "restart_workload"]

CM = SourceKind.CONFIGMAP
LABELS = {"app": "web", "env": "test"}
CHECKSUMS = "com.xing.deployment-restart.applied-config-checksums"
TIMES = {  # marks that say when, and not what: with every restart another
    "shipshape.io/restartedAt": "2026-01-01T00:01:00Z",
    "com.xing.deployment-restart.timestamp": "Mar  5 14:04:09",
}


class Original:
    """What one program leaves on a workload that uses ConfigMap `app` with `{mode: VALUE}`."""

    dialect: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = ("Deployment", "StatefulSet", "DaemonSet")  # that it restarts

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def metadata(self, value: str) -> dict[str, str]:
        """Annotations of the workload."""
        del value
        return {}

    def template(self, value: str) -> dict[str, str]:
        """Annotations of its pod template."""
        del value
        return {}

    def variables(self, value: str) -> list[dict[str, str]]:
        """Environment variables of the container that reads the source."""
        del value
        return []


class FromShipshape(Original):
    """By labels; hashes on the template."""

    dialect = "shipshape"
    kinds = ("Deployment",)

    def template(self, value: str) -> dict[str, str]:
        hashed = ShipshapeHash()(CM, {"mode": value}, None)
        return {"shipshape.io/restartedAt": "2026-01-01T00:00:00Z", "shipshape.io/config-hash-app": hashed}


class FromXing(Original):
    """By annotation; checksums on the workload."""

    dialect = "xing"
    kinds = ("Deployment", "StatefulSet")

    def metadata(self, value: str) -> dict[str, str]:
        checksums = {f"configmap/{self.namespace}/app": XingHash()(CM, {"mode": value}, None)}
        return {"com.xing.deployment-restart": "enabled", CHECKSUMS: json.dumps(checksums, separators=(",", ":"))}

    def template(self, value: str) -> dict[str, str]:
        del value
        return {"com.xing.deployment-restart.timestamp": "Mar  5 14:03:09"}


class FromReloader(Original):
    """By annotation; a variable."""

    dialect = "reloader"

    def metadata(self, value: str) -> dict[str, str]:
        del value
        return {"reloader.stakater.com/auto": "true"}

    def variables(self, value: str) -> list[dict[str, str]]:
        return [{"name": "STAKATER_APP_CONFIGMAP", "value": ReloaderHash()(CM, {"mode": value}, None)}]


class FromWave(Original):
    """By annotation; one hash on the template."""

    dialect = "wave"

    def metadata(self, value: str) -> dict[str, str]:
        del value
        return {"wave.pusher.com/update-on-config-change": "true"}

    def template(self, value: str) -> dict[str, str]:
        return {"wave.pusher.com/config-hash": wave_hash({"app": wave_data(CM, {"mode": value}, None, None)}, {})}


ORIGINALS: tuple[type[Original], ...] = (FromShipshape, FromXing, FromReloader, FromWave)


async def put_source(client: Client, namespace: str, value: str) -> None:
    """The ConfigMap, with this value."""
    meta = {"name": "app", "namespace": namespace, "labels": LABELS}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": value}}
    await client.apply(body, field_manager="test", force=True)


async def put_workload(client: Client, original: Original, value: str, kind: str = "Deployment") -> None:
    """A workload `web` whose pods the original started with this value."""
    await client.create(_workload(original, value, kind))


async def restart_workload(client: Client, original: Original, value: str) -> None:
    """What the original does to that Deployment when the value changed to this one."""
    body = _workload(original, value, "Deployment")
    marks = body["spec"]["template"]["metadata"]["annotations"]
    marks |= {name: later for name, later in TIMES.items() if name in marks}
    change = {
        "metadata": {"annotations": body["metadata"]["annotations"]},
        "spec": {"template": body["spec"]["template"]},
    }
    await client.patch(Deployment, "web", change, namespace=original.namespace)


def _workload(original: Original, value: str, kind: str) -> dict[str, Any]:
    labels = {"app": "web", "kind": kind.lower()}
    container: dict[str, Any] = {
        "name": "main",
        "image": "web:1",
        "env": [{"name": "OWN", "value": "1"}, *original.variables(value)],
        "envFrom": [{"configMapRef": {"name": "app"}}],
    }
    template: dict[str, Any] = {
        "metadata": {"labels": labels, "annotations": {"own": "1", **original.template(value)}},
        "spec": {"containers": [{"name": "side", "image": "side:1"}, container]},
    }
    meta = {
        "name": "web",
        "namespace": original.namespace,
        "labels": LABELS,
        "annotations": {"own": "1", **original.metadata(value)},
    }
    spec = {
        "selector": {"matchLabels": labels},
        "template": template,
        **({"serviceName": "web"} if kind == "StatefulSet" else {}),
    }
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}
