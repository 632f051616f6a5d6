"""controller-runtime's example operators, unchanged, on the embedded server with simulated workloads.

`multiclustersync` is for several clusters, `tokenreview` for a kubelet, and `typed` does nothing that can be seen.
kubebuilder's example projects would be here too, but they are modules of their own, so its published module does not
contain them.
"""

from __future__ import annotations

import asyncio
import base64
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from steersman.kube.api.errors import Forbidden
from steersman.kube.api.gvk import Kind
from steersman.kube.api.types import Pod, ReplicaSet
from steersman.testing import eventually
from steersman.testing.controlplane.binaries import BinariesError
from steersman.testing.plugin import unavailable
from tests.support.manifests import configmap, container, crd, deployment, pod
from tests.support.programs.go_programs import EXAMPLES
from tests.support.programs.loopback_server import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from steersman.apiserver import EmbeddedServer
    from steersman.kube.client.client import Client
    from steersman.testing.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ANNOTATION = "example-mutating-admission-webhook"
GROUP = "chaosapps.metamagical.io"
CHAOS_POD = Kind(group=GROUP, version="v1", kind="ChaosPod", plural="chaospods")
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@asynccontextmanager
async def example(name: str, kubectl: Program, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The operator at work. At the end of the block it must end by itself when asked to, unless the block ended it."""
    try:
        program = EXAMPLES.build()[f"examples/{name}"]
    except BinariesError as error:
        unavailable(error)
    operator = await asyncio.create_subprocess_exec(
        str(program), env=kubectl.environment | environment, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield operator
        if operator.returncode is None:
            operator.send_signal(signal.SIGTERM)
            _, log = await operator.communicate()
            assert operator.returncode == 0, log.decode()[-3000:]
    finally:
        if operator.returncode is None:
            operator.kill()
            await operator.communicate()


async def test_the_operator_for_builtin_kinds_labels_replicasets_and_its_webhooks_are_called(
    simulated: EmbeddedServer, client: Client, namespace: str, kubectl: Program, tmp_path: Path
):
    authority = trustme.CA()
    serving = tmp_path / "k8s-webhook-server" / "serving-certs"
    serving.mkdir(parents=True)
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(serving / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(serving / "tls.crt")
    async with example("builtins", kubectl, TMPDIR=str(tmp_path)):
        await client.create(webhook("Validating", "/validate--v1-pod", namespace, authority))
        made = pod("single", namespace=namespace)

        async def refused() -> bool:
            try:
                await client.create(made, dry_run=True)
            except Forbidden as error:
                return f"missing annotation {ANNOTATION}" in str(error)
            return False

        await eventually(refused, "the validating webhook refuses a pod", timeout=PATIENCE)
        await client.create(webhook("Mutating", "/mutate--v1-pod", namespace, authority))
        await client.create(deployment("web", namespace=namespace))

        async def labelled() -> bool:
            found = await client.list(ReplicaSet, namespace=namespace, label_selector="hello=world")
            return [item.name.rpartition("-")[0] for item in found.items] == ["web"]

        await eventually(labelled, "the ReplicaSet is labelled", timeout=PATIENCE)

        async def annotated() -> bool:
            pods = (await client.list(Pod, namespace=namespace)).items
            return [item.annotations.get(ANNOTATION) for item in pods] == ["foo"]

        await eventually(annotated, "the mutating webhook annotates the pod", timeout=PATIENCE)
        for kind in ("Validating", "Mutating"):
            await client.delete(webhook_kind(kind), f"{kind.lower()}-{namespace}")


async def test_the_operator_for_a_custom_kind_replaces_a_pod_whose_time_has_come(
    simulated: EmbeddedServer, client: Client, namespace: str, kubectl: Program
):
    schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
    await client.apply(crd("ChaosPod", group=GROUP, schema=schema), field_manager="test")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "ChaosPod", "metadata": {"name": "victim", "namespace": namespace}}
    await client.create(body | {"spec": {"template": {"spec": {"containers": [container()]}}}})

    async def pod_that_waits() -> Pod:
        """The pod, once the time of its end is written down."""
        chaos = await client.get(CHAOS_POD, "victim", namespace=namespace)
        assert chaos["spec"].get("nextStop", "") > "2001", chaos
        return await client.get(Pod, "victim", namespace=namespace)

    async with example("crd", kubectl):
        first = await eventually(pod_that_waits, "the pod is made", timeout=PATIENCE)
        assert [owner.name for owner in first.metadata.owner_references] == ["victim"]
        past = {"spec": {"nextStop": "2000-01-01T00:00:00Z"}}
        await client.patch(CHAOS_POD, "victim", past, namespace=namespace)

        async def replaced() -> bool:
            return (await pod_that_waits()).metadata.uid != first.metadata.uid

        await eventually(replaced, "another pod takes its place", timeout=PATIENCE)


async def test_the_operator_with_a_priority_queue_reconciles_configmaps(
    simulated: EmbeddedServer, client: Client, namespace: str, kubectl: Program
):
    await client.create(configmap("app", namespace=namespace))
    async with example("priorityqueue", kubectl) as operator, asyncio.timeout(PATIENCE):
        assert operator.stderr is not None
        async for line in operator.stderr:
            if b'"msg":"Reconciling"' in line:
                break
        operator.kill()  # asked to end, it would finish a reconcile of ten seconds
        await operator.communicate()
    assert b'"controllerKind":"ConfigMap"' in line


def webhook(kind: str, path: str, namespace: str, authority: trustme.CA) -> dict[str, Any]:
    """The configuration that the example's own marker asks for, in one namespace."""
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    entry = {
        "name": "pod.kb.io",
        "clientConfig": {"url": f"https://127.0.0.1:9443{path}", "caBundle": bundle},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    metadata = {"name": f"{kind.lower()}-{namespace}"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": metadata,
        "webhooks": [entry],
    }


def webhook_kind(kind: str) -> Kind:
    plural = f"{kind.lower()}webhookconfigurations"
    group = "admissionregistration.k8s.io"
    return Kind(group=group, version="v1", kind=f"{kind}WebhookConfiguration", plural=plural, namespaced=False)
