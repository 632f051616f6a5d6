"""controller-runtime's example operator for built-in kinds, unchanged, on the embedded server with simulated workloads.

It labels every ReplicaSet and serves webhooks for pods. kubebuilder's example projects would be here too, but they are
modules of their own, so its published module does not contain them.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import pytest
import trustme

from steersman.testing import eventually
from steersman.testing.controlplane.binaries import BinariesError
from steersman.testing.plugin import unavailable
from tests.support.manifests import deployment
from tests.support.programs.go_programs import EXAMPLES
from tests.support.programs.loopback_server import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.apiserver import EmbeddedServer
    from steersman.testing.programs import Program


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_operator_for_builtin_kinds_labels_every_replicaset(
    simulated: EmbeddedServer, namespace: str, kubectl: Program, tmp_path: Path
):
    try:
        program = EXAMPLES.build()["examples/builtins"]
    except BinariesError as error:
        unavailable(error)
    serving = tmp_path / "k8s-webhook-server" / "serving-certs"
    serving.mkdir(parents=True)
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(serving / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(serving / "tls.crt")
    operator = await asyncio.create_subprocess_exec(
        str(program), env=kubectl.environment | {"TMPDIR": str(tmp_path)}, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        body = deployment("web") | {"apiVersion": "apps/v1", "kind": "Deployment"}
        await kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(body))

        async def labelled() -> bool:
            found = await kubectl("get", "replicasets", "-n", namespace, "-l", "hello=world", "-o", "name")
            return found.out.startswith("replicaset.apps/web-")

        await eventually(labelled, timeout=PATIENCE)
        operator.send_signal(signal.SIGTERM)
        assert await operator.wait() == 0
    finally:
        if operator.returncode is None:
            operator.kill()
            await operator.wait()
