"""Whatever goes wrong, the text of the error, its repr, its arguments and what it was caused by hold no secret."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
import sys
import traceback

import pytest
import trustme

from steersman.kube.api.errors import KubeError
from steersman.kube.config.config import AuthInfo, Config, ExecConfig, OIDCProvider
from tests.support.wire_server import HANG_UP, STREAM, chunk, reply, reset

SECRET = "s3cr3t-value"


def chain(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def everything(error):
    parts = traceback.format_exception(error)
    for each in chain(error):
        parts += [str(each), repr(each), repr(each.args), repr(getattr(each, "__dict__", ""))]
    return "".join(parts)


@pytest.fixture
def users(tmp_path):
    login = tmp_path / "login"
    issued = {"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": SECRET}}
    login.write_text(f"#!{sys.executable} -S\nprint({json.dumps(json.dumps(issued))})\n")
    login.chmod(login.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "token").write_text(SECRET)
    version = "client.authentication.k8s.io/v1"
    return {
        "token": AuthInfo(token=SECRET),
        "tokenFile": AuthInfo(token_file=tmp_path / "token"),
        "basic": AuthInfo(username="jane", password=SECRET),
        "exec": AuthInfo(exec_plugin=ExecConfig(api_version=version, command=str(login), interactive_mode="Never")),
        "broken exec": AuthInfo(
            exec_plugin=ExecConfig(api_version=version, command="/bin/echo", args=(SECRET,), interactive_mode="Never")
        ),
        "oidc": AuthInfo(oidc=OIDCProvider(issuer="http://127.0.0.1:1", client_id="me", refresh_token=SECRET)),
        "certificate": AuthInfo(client_certificate=SECRET.encode(), client_key=SECRET.encode()),
    }


async def cut(received, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    return HANG_UP


async def huge(received, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 314572800\r\n\r\n")
    return HANG_UP


async def broken(received, writer):
    reset(writer)
    return HANG_UP


ANSWERS = {
    "401": reply(401, {"kind": "Status", "code": 401, "message": "Unauthorized"}),
    "403": reply(403, {"kind": "Status", "code": 403, "message": "no"}),
    "500": reply(500, b"oops", kind="text/plain"),
    "redirect": reply(302, Location=f"https://jane:{SECRET}@elsewhere/?token={SECRET}"),
    "not http": b"SSH-2.0\r\n\r\n",
    "cut": cut,
    "reset": broken,
    "nothing": HANG_UP,
    "too large": huge,
    "bad stream": STREAM + chunk(b"x" * 100) + b"0\r\n\r\n",
}
USERS = ["token", "tokenFile", "basic", "exec", "broken exec", "oidc", "certificate"]


async def stream(link):
    async with link.stream("/watch") as lines:
        async for _ in lines:
            pass


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("user", USERS)
async def test_no_failure_shows_a_secret(wire, transport, users, user, answer):
    server = await wire(answer)
    config = Config(server=server.url, auth=users[user])
    for attempt in (transport(server, config=config).request("GET", "/x"), stream(transport(server, config=config))):
        try:
            await attempt
        except KubeError as error:
            assert SECRET not in everything(error)  # noqa: PT017  # some combinations of user and answer succeed


@pytest.mark.parametrize("proxy", ["http", "dead"])
async def test_a_proxys_password_is_not_shown(wire, transport, proxy):
    server = await wire(reply(407, b"who are you?"))
    port = server.port if proxy == "http" else 1
    url = f"http://jane:{SECRET}@127.0.0.1:{port}"
    config = Config(server="https://api.example", proxy_url=url, source="my.kubeconfig")
    with pytest.raises(KubeError, match=rf"proxy http://127\.0\.0\.1:{port}.*\(my.kubeconfig\)") as raised:
        await transport(server, config=config).request("GET", "/")
    assert SECRET not in everything(raised.value)


async def test_a_wrong_ca_shows_no_secret(wire, transport):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server = await wire(reply(200), tls=context)
    config = Config(server=server.url, auth=AuthInfo(token=SECRET), ca=trustme.CA().cert_pem.bytes())
    with pytest.raises(KubeError, match="does not match the CA") as raised:
        await transport(server, config=config).request("GET", "/")
    assert SECRET not in everything(raised.value)


async def test_a_timeout_shows_no_secret(wire, transport, clock):
    async def never(received, writer):
        await asyncio.Event().wait()
        return HANG_UP

    server = await wire(never)
    config = Config(server=server.url, auth=AuthInfo(token=SECRET))
    task = asyncio.create_task(transport(server, config=config, clock=clock).request("POST", "/"))
    await server.arrived.wait()
    await clock.advance(61)
    with pytest.raises(KubeError) as raised:
        await task
    assert SECRET not in everything(raised.value)


def test_the_search_for_secrets_finds_one():
    def fail():
        try:
            int(SECRET)
        except ValueError as error:
            raise KubeError("no") from error

    with pytest.raises(KubeError) as raised:
        fail()
    assert SECRET in everything(raised.value)
