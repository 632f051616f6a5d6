"""The real program on the real control plane: every reference and every kind of workload restarts once for a change."""

from __future__ import annotations

import asyncio
import signal
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from steersman.kube.api.gvk import Kind
from steersman.operators.reload.planning.state import read_state
from steersman.testing import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEERSMAN = Path(sys.executable).with_name("steersman")
CONFIG = """
reload:
  quietPeriod: 2s
  maxDelay: 60s
  budget: {restarts: 0}
  namespaces: [%s]
"""
LONG = 180.0
KINDS = {
    "Deployment": Kind(group="apps", version="v1", kind="Deployment", plural="deployments"),
    "StatefulSet": Kind(group="apps", version="v1", kind="StatefulSet", plural="statefulsets"),
    "DaemonSet": Kind(group="apps", version="v1", kind="DaemonSet", plural="daemonsets"),
    "CronJob": Kind(group="batch", version="v1", kind="CronJob", plural="cronjobs"),
}
FROM_MAP = {"configMapKeyRef": {"name": "app", "key": "mode"}}
FROM_SECRET = {"secretKeyRef": {"name": "app", "key": "mode"}}
ITEMS = {"secret": {"name": "app", "items": [{"key": "mode", "path": "m"}]}}


def main(**parts):
    return {"containers": [{"name": "main", "image": "web:1", **parts}]}


def volume(**source):
    return {**main(), "volumes": [{"name": "v", **source}]}


def init(**parts):
    return {**main(), "initContainers": [{"name": "init", "image": "web:1", **parts}]}


REFERENCES = {
    "env": main(env=[{"name": "X", "valueFrom": FROM_MAP}]),
    "env-secret": main(env=[{"name": "X", "valueFrom": FROM_SECRET}]),
    "env-from": main(envFrom=[{"configMapRef": {"name": "app"}}]),
    "env-from-secret": main(envFrom=[{"secretRef": {"name": "app"}}]),
    "volume": volume(configMap={"name": "app"}),
    "volume-secret": volume(secret={"secretName": "app"}),
    "projected": volume(projected={"sources": [ITEMS]}),
    "csi": volume(csi={"driver": "d.example.org", "nodePublishSecretRef": {"name": "app"}}),
    "pull-secret": {**main(), "imagePullSecrets": [{"name": "app"}]},
    "init": init(env=[{"name": "X", "valueFrom": FROM_MAP}]),
    "sidecar": init(env=[{"name": "X", "valueFrom": FROM_MAP}], restartPolicy="Always"),
    "sub-path": {
        **volume(configMap={"name": "app"}),
        **main(volumeMounts=[{"name": "v", "mountPath": "/etc/mode", "subPath": "mode"}]),
    },
}
WORKLOADS = [("Deployment", name) for name in REFERENCES] + [(kind, "env") for kind in KINDS if kind != "Deployment"]


def workload(namespace, kind, name):
    labels = {"app": name, "kind": kind.lower()}
    template = {"metadata": {"labels": labels}, "spec": REFERENCES[name]}
    spec: dict[str, Any] = {"template": template, "selector": {"matchLabels": labels}}
    if kind in ("Deployment", "StatefulSet"):
        spec["replicas"] = 0
    if kind == "StatefulSet":
        spec["serviceName"] = name
    if kind == "CronJob":
        job = {"spec": {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}}
        spec = {"schedule": "@yearly", "jobTemplate": job}
    return {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto"}},
        "spec": spec,
    }


async def put_sources(client, namespace, mode):
    meta = {"name": "app", "namespace": namespace}
    for kind, value in (("ConfigMap", mode), ("Secret", b64encode(mode.encode()).decode())):
        body = {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": {"mode": value}}
        await client.apply(body, field_manager="test", force=True)


async def restarts(client, namespace, kind, name):
    found = await client.get(KINDS[kind], name, namespace=namespace)
    state = read_state(found["metadata"]["annotations"].get("steersman.dev/applied")).applied
    return None if state is None else len(state.restarts)


async def test_every_reference_and_every_kind_of_workload_restarts_once(full, client, namespace, tmp_path):
    full.write_kubeconfig(tmp_path / "kubeconfig")
    (tmp_path / "steersman.yaml").write_text(CONFIG % namespace)
    await put_sources(client, namespace, "a")
    for kind, name in WORKLOADS:
        await client.create(workload(namespace, kind, name))
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            STEERSMAN,
            *("run", "--operators", "reload", "--config", str(tmp_path / "steersman.yaml"), "--listen", "127.0.0.1:0"),
            env={"KUBECONFIG": str(tmp_path / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            stderr=log,
        )
    try:

        async def counts():
            return [await restarts(client, namespace, kind, name) for kind, name in WORKLOADS]

        async def all_are(number):
            return all(count == number for count in await counts())

        await eventually(lambda: all_are(0), "all are seeded", timeout=LONG)
        await put_sources(client, namespace, "b")
        await eventually(lambda: all_are(1), "each is restarted once", timeout=LONG)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert set(await counts()) == {1}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        print((tmp_path / "log").read_text()[-3000:])  # noqa: T201  # shown when the test fails
