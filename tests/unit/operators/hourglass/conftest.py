"""Builders that say only what matters."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.kube.api.objects import ObjectMeta, OwnerReference
from steersman.kube.api.types.pods import Pod, PodCondition
from steersman.operators.hourglass.api.types import (
    APP,
    PERFORMER,
    PERFORMER_APP,
    REVISION,
    TEMPLATE_HASH,
    StoredExecutor,
    StoredPerformer,
)


def make_pod(name: str, template: str = "", *, phase: str = "Running", ready: bool = True, **options: Any) -> Pod:
    """A pod of performer `p` with a template's hash."""
    labels = {APP: PERFORMER_APP, PERFORMER: "p"} | ({REVISION: template[:10]} if template else {})
    pod = Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=options.get("uid", f"uid-{name}"),
            labels=labels,
            annotations={TEMPLATE_HASH: template} if template else None,
            creation_timestamp=options.get("created", "2026-01-01T00:00:00Z"),
            deletion_timestamp="2026-01-01T00:01:00Z" if options.get("deleting") else None,
            owner_references=[
                OwnerReference(
                    api_version="hourglass.eigenlayer.io/v1alpha1",
                    kind="Performer",
                    name="p",
                    uid="owner",
                    controller=True,
                )
            ],
        )
    )
    pod.status.phase = phase
    if phase == "Running":
        pod.status.conditions = [PodCondition(type="Ready", status="True" if ready else "False")]
    if image := options.get("image"):
        from steersman.kube.api.types.pods import Container

        pod.spec.containers = [Container(name="performer", image=image)]
    return pod


def performer(name: str = "p", *, status: dict[str, Any] | None = None, **spec: Any) -> StoredPerformer:
    """A performer as the server stores it."""
    meta = ObjectMeta(name=name, namespace="ns", uid="owner", generation=1, resource_version="1")
    return StoredPerformer(metadata=meta, spec={"avsAddress": "0x1", "image": "avs:1"} | spec, status=status)


CONFIG = {
    "aggregatorEndpoint": "aggregator:9090",
    "operatorKeys": {"ecdsa": "key-material-1", "bls": "key-material-2"},
    "chains": [{"name": "ethereum", "rpc": "https://rpc", "chainId": 1, "taskMailboxAddress": "0x..."}],
}


def executor(name: str = "e", *, config: dict[str, Any] | None = None, **spec: Any) -> StoredExecutor:
    """An executor as the server stores it."""
    meta = ObjectMeta(name=name, namespace="ns", uid="owner", generation=1, resource_version="1")
    return StoredExecutor(metadata=meta, spec={"image": "executor:1", "config": CONFIG | (config or {})} | spec)


@pytest.fixture
def pod():
    """`pod("name", "hash", …)`."""
    return make_pod


@pytest.fixture(name="performer")
def performer_fixture():
    """`performer(image="avs:2", …)`."""
    return performer


@pytest.fixture(name="executor")
def executor_fixture():
    """`executor(replicas=2, config={…})`."""
    return executor
