from __future__ import annotations

import asyncio
import io
import json
import ssl
import stat
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import CredentialsFailed
from steersman.kube.api.times import format_time
from steersman.kube.config.config import AuthInfo, Config, ExecConfig
from steersman.kube.config.exec_plugin import ExecCredentials
from steersman.kube.transport.metrics import ClientMetrics
from steersman.testing.waiting import eventually
from tests.support.wire_server import reply

V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
SECRET = "s3cr3t-value"


def credential(version=V1, **status):
    return {"apiVersion": version, "kind": "ExecCredential", "status": status}


@pytest.fixture
def plugin(tmp_path):
    """Write a plugin: a value is printed, text is its source. Each run adds a line to `runs`."""

    def write(source, **options):
        if not isinstance(source, str):
            source = f"print({json.dumps(json.dumps(source))})"
        path = tmp_path / "login"
        log = f"import os, sys; open({str(tmp_path / 'runs')!r}, 'a').write('x\\n')"
        path.write_text(f"#!{sys.executable} -S\n{log}\n{source}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        options = {"api_version": V1, "interactive_mode": "Never", **options}
        return ExecConfig(command=str(path), **options)

    return write


@pytest.fixture
def runs(tmp_path):
    return lambda: len((tmp_path / "runs").read_text().splitlines())


@pytest.fixture
def credentials(clock):
    def make(plugin, **config):
        config = {"server": "https://api:6443", "source": "my.kubeconfig", **config}
        return ExecCredentials(plugin, Config(**config), clock=clock)

    return make


async def test_a_token_is_asked_for_once_and_kept(plugin, credentials, runs):
    found = credentials(plugin(credential(token="t")))
    assert await found.headers() == {"Authorization": "Bearer t"}
    assert await found.headers() is await found.headers()
    assert await found.certificate() is None
    assert runs() == 1


async def test_those_who_wait_together_share_one_run(plugin, credentials, runs):
    found = credentials(plugin(credential(token="t")))
    await asyncio.gather(*(found.headers() for _ in range(10)))
    assert runs() == 1


async def test_a_certificate_can_come_instead_of_a_token(plugin, credentials):
    found = credentials(plugin(credential(clientCertificateData="C", clientKeyData="K")))
    assert (await found.headers(), await found.certificate()) == ({}, (b"C", b"K"))


async def test_expired_credentials_are_replaced(plugin, credentials, runs, clock):
    made = plugin(credential(token="one", expirationTimestamp=format_time(clock.time() + 60)))
    found = credentials(made)
    assert await found.headers() == {"Authorization": "Bearer one"}
    await clock.advance(59)
    await found.headers()
    assert runs() == 1
    plugin(credential(token="two"))
    await clock.advance(1)
    assert await found.headers() == {"Authorization": "Bearer two"}
    assert runs() == 2


async def test_refused_credentials_are_replaced_once_however_many_were_refused(plugin, credentials, runs):
    found = credentials(plugin(credential(token="t")))
    used = await found.headers()
    assert found.invalidate(used)
    fresh = await found.headers()
    assert found.invalidate(used)  # a slower request with the old ones comes back
    assert await found.headers() is fresh
    assert runs() == 2


@pytest.mark.parametrize("version", [V1, BETA])
async def test_the_plugin_gets_its_purpose(plugin, credentials, version, monkeypatch):
    monkeypatch.setenv("INHERITED", "yes")
    source = (
        "import json; info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "seen = {'info': info, 'args': sys.argv[1:], 'own': os.environ['OWN'], 'inherited': os.environ['INHERITED']}\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential',"
        " 'status': {'token': json.dumps(seen)}}))"
    )
    made = plugin(
        source,
        api_version=version,
        args=("--a", "b"),
        env=(("OWN", "1"),),
        provide_cluster_info=True,
        cluster_extension={"audience": "x"},
    )
    found = credentials(made, ca=b"PEM", tls_server_name="k8s", proxy_url="http://p:1")
    seen = json.loads((await found.headers())["Authorization"].removeprefix("Bearer "))
    assert (seen["args"], seen["own"], seen["inherited"]) == (["--a", "b"], "1", "yes")
    assert seen["info"] == {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://api:6443",
                "tls-server-name": "k8s",
                "certificate-authority-data": "UEVN",
                "proxy-url": "http://p:1",
                "config": {"audience": "x"},
            },
        },
    }


async def test_without_provide_cluster_info_the_cluster_is_not_shown(plugin, credentials):
    source = (
        "import json; info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], 'status': {'token': str(sorted(info['spec']))}}))"
    )
    assert await credentials(plugin(source)).headers() == {"Authorization": "Bearer ['interactive']"}


BROKEN = {
    "fails": ("print('s3cr3t-value'); sys.exit(7)", "failed with exit code 7: run it by hand to see why"),
    "is killed": ("os.kill(os.getpid(), 9)", "failed with exit code -9"),
    "prints junk": ("print('s3cr3t-value')", "that is not an ExecCredential"),
    "prints nothing": ("pass", "that is not an ExecCredential"),
    "prints without end": ("print('s3cr3t-value' * 1000000)", "that is not an ExecCredential"),
    "prints another type": (
        {**credential(), "status": {"token": 5}},
        "printed something that is not an ExecCredential",
    ),
    "speaks another version": (credential(BETA, token=SECRET), f"speaks another version than .*{V1}"),
    "gives no status": ({"apiVersion": V1}, "without a status"),
    "gives nothing": (credential(), "neither a token nor a certificate"),
    "gives half a pair": (credential(clientKeyData=SECRET), "only one of certificate and key"),
    "gives a strange time": (credential(token=SECRET, expirationTimestamp="soon"), "is not an RFC 3339 time"),
    "gives what has expired": (
        credential(token=SECRET, expirationTimestamp="2020-01-01T00:00:00Z"),
        "gave credentials that expired at 2020-01-01T00:00:00Z: log in again",
    ),
    "gives a broken token": (credential(token=f"{SECRET}\nX: y"), "the token has characters that a token cannot have"),
}


@pytest.mark.parametrize(("source", "message"), BROKEN.values(), ids=BROKEN)
async def test_a_plugin_that_is_broken_is_named_and_not_quoted(plugin, credentials, source, message):
    made = plugin(source)
    with pytest.raises(CredentialsFailed, match=message) as raised:
        await credentials(made).headers()
    text = str(raised.value)
    assert "a token cannot have" in message or (made.command in text and text.endswith("(my.kubeconfig)"))
    assert SECRET not in text + repr(raised.value) + repr(raised.value.args) + repr(raised.value.__cause__)


async def test_a_failure_is_not_kept(plugin, credentials):
    found = credentials(plugin("sys.exit(1)"))
    with pytest.raises(CredentialsFailed):
        await found.headers()
    plugin(credential(token="t"))
    assert await found.headers() == {"Authorization": "Bearer t"}


async def test_a_plugin_that_hangs_is_ended_with_everything_it_started(plugin, credentials, clock, tmp_path):
    source = (
        "import subprocess, time\n"
        f"child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}.')\n"
        "time.sleep(600)"
    )
    task = asyncio.create_task(credentials(plugin(source)).headers())
    await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("."))
    await clock.advance(59)
    assert not task.done()
    await clock.advance(1)
    with pytest.raises(CredentialsFailed, match="did not end within 60 seconds: run it by hand"):
        await task
    pids = [int(pid) for pid in (tmp_path / "pid").read_text().rstrip(".").split()]
    await eventually(lambda: not any(alive(pid) for pid in pids))


async def test_a_request_that_is_cancelled_takes_the_plugin_with_it(plugin, credentials, tmp_path):
    source = f"import time\nopen({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}.')\ntime.sleep(600)"
    task = asyncio.create_task(credentials(plugin(source)).headers())
    await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("."))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(int((tmp_path / "pid").read_text().rstrip(".")))


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a zombie is dead, whoever has yet to bury it


@pytest.mark.parametrize(
    ("hint", "message"),
    [("", "No such file or directory; install it or correct"), ("brew install x", "or directory; brew install x")],
)
async def test_a_plugin_that_is_not_installed_says_how_to_get_it(credentials, hint, message):
    missing = ExecConfig(api_version=V1, command="/nowhere/login", interactive_mode="Never", install_hint=hint)
    with pytest.raises(CredentialsFailed, match=f"the credential plugin /nowhere/login cannot be started: .*{message}"):
        await credentials(missing).headers()


async def test_a_plugin_that_needs_a_terminal_says_so_when_there_is_none(plugin, credentials, runs, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(CredentialsFailed, match=r"needs a terminal \(interactiveMode: Always\) and there is none"):
        await credentials(plugin(credential(token="t"), interactive_mode="Always")).headers()


@pytest.mark.parametrize(
    ("mode", "terminal", "interactive"),
    [("Never", True, False), ("IfAvailable", False, False), ("IfAvailable", True, True), ("Always", True, True)],
)
async def test_a_plugin_is_interactive_when_it_may_and_can_be(
    plugin, credentials, monkeypatch, mode, terminal, interactive
):
    stdin = io.StringIO()
    stdin.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", stdin)
    source = (
        "import json; info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], 'status': {'token': str(info['spec'])}}))"
    )
    found = credentials(plugin(source, interactive_mode=mode))
    assert await found.headers() == {"Authorization": f"Bearer {{'interactive': {interactive}}}"}


async def test_a_refused_token_of_a_plugin_is_replaced_within_the_request(wire, transport, plugin, runs):
    async def answer(received, writer):
        if received.headers["authorization"] == "Bearer two":
            return reply(200, {})
        plugin(credential(token="two"))
        return reply(401, {"kind": "Status", "code": 401, "message": "Unauthorized"})

    server = await wire(answer)
    config = Config(server=server.url, auth=AuthInfo(exec_plugin=plugin(credential(token="one"))))
    assert (await transport(server, config=config).request("POST", "/", body=b"{}")).status == 200
    assert runs() == 2


async def test_a_certificate_of_a_plugin_is_shown_to_the_server(wire, transport, plugin, authority):
    seen = []

    async def answer(received, writer):
        seen.append(writer.get_extra_info("peercert")["subjectAltName"])
        return reply(200, {})

    issued = authority.issue_cert("jane.example")
    pair = {
        "clientCertificateData": issued.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": issued.private_key_pem.bytes().decode(),
    }
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    server = await wire(answer, tls=context)
    user = AuthInfo(exec_plugin=plugin(credential(**pair)))
    config = Config(server=server.url, ca=authority.cert_pem.bytes(), auth=user)
    assert (await transport(server, config=config).request("GET", "/")).status == 200
    assert seen == [(("DNS", "jane.example"),)]


async def test_a_plugin_that_fails_fails_the_request_once_and_names_both(wire, transport, plugin, runs):
    server = await wire(reply(200, {}))
    config = Config(server=server.url, auth=AuthInfo(exec_plugin=plugin("sys.exit(1)")), source="my.kubeconfig")
    with pytest.raises(CredentialsFailed, match=r"failed with exit code 1: .*\(my.kubeconfig\) \(GET .*/version\)"):
        await transport(server, config=config).request("GET", "/version")
    assert (runs(), server.requests) == (1, [])


async def test_runs_are_counted(plugin, clock):
    registry = CollectorRegistry()
    config = Config(server="https://x")
    ok = ExecCredentials(plugin(credential(token="t")), config, clock=clock, metrics=ClientMetrics.of(registry))
    await ok.headers()
    failing = ExecCredentials(plugin("sys.exit(3)"), config, clock=clock, metrics=ClientMetrics.of(registry))
    with pytest.raises(CredentialsFailed):
        await failing.headers()
    name = "rest_client_exec_plugin_call_total"
    assert registry.get_sample_value(name, {"code": "0", "call_status": "no_error"}) == 1
    assert registry.get_sample_value(name, {"code": "3", "call_status": "plugin_execution_error"}) == 1
