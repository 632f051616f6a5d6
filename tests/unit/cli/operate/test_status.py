"""`steersman status`: what needs a person is said, and is exit code 3."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from steersman.cli.main import _run
from steersman.cli.operate import status
from steersman.web.model import Check, Leadership, PageSnapshot, Vitals
from steersman.web.views import status_of
from tests.support.pods.streams_server import StreamsServer

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)
TROUBLE = "controller app: shop/web has failed 12 times: KeyError: [image]"


@pytest.fixture
def process():
    """A process that answers with these warnings; called, it says where."""
    servers = []

    def answering(*warnings: str, checks: tuple[Check, ...] = ()) -> str:
        who = Leadership(elected=False, leading=True)
        vitals = Vitals(version="1", started=AT, leadership=who, warnings=list(warnings), checks=list(checks))
        body = msgspec.json.encode(status_of(PageSnapshot(), vitals, [], AT))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


def test_stuck_keys_are_shown_and_need_a_person(process, capsys):
    assert _run(["status", "--url", process(TROUBLE)]) == 3
    out = capsys.readouterr().out
    assert ", ready\nFailing: controller app\n  shop/web has failed 12 times: KeyError: [image]\n" in out
    assert "  runbook: /runbooks/SteersmanReconcileStuck on the page\n" in out


def test_a_process_that_is_not_ready_needs_a_person(process, capsys):
    where = process(checks=(Check(name="caches", problem="not synced"),))
    assert _run(["status", "--url", where]) == 3
    assert ", NOT READY\nNot ready: caches\n  not synced\n" in capsys.readouterr().out


def test_when_all_is_well_the_code_is_0(process, capsys):
    assert _run(["status", "--url", process()]) == 0
    assert capsys.readouterr().out.endswith(", ready\n")


def test_a_redirect_is_not_followed_and_the_token_stays_with_the_server_that_was_asked(process, capsys):
    seen = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.server.server_address[1], self.headers["Authorization"]))
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{elsewhere.server_port}/")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    asked, elsewhere = (HTTPServer(("127.0.0.1", 0), Redirecting) for _ in range(2))
    for server in (asked, elsewhere):
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        assert _run(["status", "--url", f"http://127.0.0.1:{asked.server_port}", "--token", "t"]) == 1
        assert "answers 302" in capsys.readouterr().err
        assert seen == [(asked.server_port, "Bearer t")]
    finally:
        for server in (asked, elsewhere):
            server.shutdown()
            server.server_close()


# -- the leader in a cluster -------------------------------------------------------------------------------------------

LEASE = "/apis/coordination.k8s.io/v1/namespaces/{0}/leases/{1}"
POD = "/api/v1/namespaces/{0}/pods/steersman-7d9-x2"


@pytest.fixture
async def cluster(process, tmp_path, monkeypatch):
    """An API server whose pod `steersman-7d9-x2` holds the Lease steersman/steersman and listens on its port http."""
    async with StreamsServer() as server:
        server.objects[LEASE.format("steersman", "steersman")] = lease("steersman-7d9-x2_51f0")
        ports = [{"name": "metrics", "containerPort": 9}, {"name": "http", "containerPort": 8181}]
        server.objects[POD.format("steersman")] = pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "steersman-7d9-x2", "namespace": "steersman"},
            "spec": {"containers": [{"name": "main", "ports": ports}]},
        }
        server.objects[POD.format("ops")] = pod
        server.backends[8181] = int(process(TROUBLE).rpartition(":")[2])
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        path = tmp_path / "kubeconfig"
        path.write_bytes(msgspec.json.encode(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.setattr(status, "DEFAULT_URL", "http://127.0.0.1:1")
        yield server


def lease(holder):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "steersman"}, "spec": spec}


async def asked(*arguments):
    return await asyncio.to_thread(_run, ["status", *arguments])


async def test_where_nothing_listens_the_leader_is_asked_through_the_api_server(cluster, capsys):
    assert await asked() == 3
    assert "shop/web has failed 12 times" in capsys.readouterr().out
    assert (POD.format("steersman") + "/portforward", [("ports", "8181")]) in cluster.requests


async def test_the_lease_can_be_named_and_a_process_on_this_machine_is_not_asked_then(
    cluster, process, capsys, monkeypatch
):
    monkeypatch.setattr(status, "DEFAULT_URL", process())
    cluster.objects[LEASE.format("ops", "mine")] = lease("steersman-7d9-x2_51f0")
    assert await asked() == 0
    assert await asked("--lease", "ops/mine") == 3
    assert await asked("--lease", "mine", "-n", "ops") == 3


@pytest.mark.parametrize(
    ("holder", "message"),
    [
        (None, "there is no Lease steersman/steersman (try --lease NAMESPACE/NAME, or --url ADDRESS)"),
        ("", "no pod holds the Lease steersman/steersman (is Steersman running there?)"),
        ("gone_1", "gone_1 holds the Lease steersman/steersman and is not a pod there (try --url ADDRESS)"),
    ],
    ids=["no lease", "no holder", "no pod"],
)
async def test_a_leader_that_cannot_be_found_is_an_error_that_says_what_to_do(cluster, holder, message, capsys):
    del cluster.objects[LEASE.format("steersman", "steersman")]
    if holder is not None:
        cluster.objects[LEASE.format("steersman", "steersman")] = lease(holder)
    assert await asked() == 1
    shown = capsys.readouterr().err
    assert shown == f"error: nothing answers at http://127.0.0.1:1, and --lease: {message}\n"


async def test_without_the_right_to_forward_a_port_the_error_names_it(cluster, capsys):
    text = 'pods "steersman-7d9-x2" is forbidden: User "dev" cannot create resource "pods/portforward"'
    refused = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": text}
    cluster.objects[POD.format("steersman") + "/portforward"] = refused
    assert await asked() == 1
    shown = capsys.readouterr().err
    assert "pod/steersman-7d9-x2 in steersman leads and cannot be reached through the API server: " in shown
    assert text in shown
