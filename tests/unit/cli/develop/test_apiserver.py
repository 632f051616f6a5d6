"""`steersman apiserver` as a process."""

from __future__ import annotations

import asyncio
import base64
import signal
import socket
import sys
from pathlib import Path

import pytest
import yaml

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import configmap
from tests.support.webhooks import REGISTRATION, WebhookStub, denied, rule

pytestmark = pytest.mark.slow
COMMAND = [str(Path(sys.executable).with_name("steersman")), "apiserver"]


async def test_it_serves_until_it_is_asked_to_stop(tmp_path: Path):
    path = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--kubeconfig-out", str(path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        config = yaml.safe_load(path.read_text())
        cluster = config["clusters"][0]["cluster"]
        assert line == f"listening on {cluster['server']}, kubeconfig in {path}\n"
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        token = config["users"][0]["user"]["token"]
        async with RawApi(cluster["server"], token=token, ssl_context=ssl_context(authority)) as api:
            names = (await api.get("/api/v1/namespaces")).names
        assert "kube-system" in names
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_with_rbac_users_have_the_rights_of_their_roles(tmp_path: Path):
    path = tmp_path / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("--authorization", "rbac", "--no-tls", "--token", "t", "--kubeconfig-out", str(path)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        server = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
        async with RawApi(server, token="t") as api:
            assert (await api.get("/api/v1/nodes")).status == 200
            assert (await api.get("/api/v1/nodes", headers={"Impersonate-User": "jane"})).status == 403
    finally:
        process.kill()
        await process.wait()


async def test_a_webhook_of_a_service_is_called_at_its_address(tmp_path: Path):
    path = tmp_path / "kubeconfig"
    async with WebhookStub("hooks.shop.svc") as stub:
        stub.on("/deny", lambda _: denied("by the service"))
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *(
                "--service",
                f"shop/hooks=127.0.0.1:{stub.port}",
                "--no-tls",
                "--token",
                "t",
                "--kubeconfig-out",
                str(path),
            ),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            server = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
            by_service = {
                "service": {"namespace": "shop", "name": "hooks", "path": "/deny"},
                "caBundle": stub.ca_bundle,
            }
            webhook = stub.webhook("/deny", rule("configmaps")) | {"clientConfig": by_service}
            async with RawApi(server, token="t") as api:
                manifest = {"metadata": {"name": "hooks"}, "webhooks": [webhook]}
                made = await api.post(f"{REGISTRATION}/validatingwebhookconfigurations", manifest)
                assert made.status == 201, made.body
                got = await api.post("/api/v1/namespaces/default/configmaps", configmap("a"))
            assert "by the service" in got.body["message"]
        finally:
            process.kill()
            await process.wait()


async def test_a_port_that_is_taken_is_one_line_that_says_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "--port", str(port), stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        _, errors = await process.communicate()
    assert process.returncode == 1
    text = errors.decode()
    assert text.startswith("error: cannot listen: ")
    assert text.endswith("(try another --port)\n")
    assert text.count("\n") == 1
