"""Logs, commands and ports of pods, against a small server that speaks the protocols of a kubelet."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import structlog

import steersman as sm
from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.errors import BadResponse, ConnectionFailed, NotFound, ResponseTooLarge, ServerError
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.pods import Pod
from steersman.kube.client.client import Client
from steersman.kube.client.pod_streams import STDOUT
from steersman.kube.config.config import Config
from steersman.kube.transport.transport import TransportOptions
from steersman.runtime.cluster import Cluster, ClusterSnapshot
from steersman.runtime.reconcile.blocking_context import run_blocking
from steersman.runtime.reconcile.context import Context
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NotInDryRun, NotLeading, WriteGuard
from tests.support.docs.pages import blocks_of
from tests.support.pods.streams_server import StreamsServer


@pytest.fixture
async def server():
    async with StreamsServer() as made:
        yield made


@pytest.fixture
async def client(server):
    async with Client.connect(Config(server=server.url, namespace="shop")) as connected:
        yield connected


# -- logs -------------------------------------------------------------------------------------------------------------


async def test_logs_are_the_text_of_the_container_with_kubectls_options(server, client):
    assert await client.logs("web", container="main", tail_lines=5, previous=True) == "first\n\nthird\nunfinished"
    path, query = server.requests[0]
    assert path == "/api/v1/namespaces/shop/pods/web/log"
    assert dict(query) == {"container": "main", "tailLines": "5", "previous": "true"}


@pytest.mark.parametrize("end", [b"", b"unfinished"])
async def test_followed_logs_are_all_lines_also_blank_ones_and_one_without_an_end(server, client, end):
    server.log = b"first\n\nthird\n" + end
    async with client.follow_logs("web") as lines:
        assert [line async for line in lines] == ["first", "", "third", *([end.decode()] if end else [])]
    assert ("follow", "true") in server.requests[0][1]


# -- exec -------------------------------------------------------------------------------------------------------------


async def test_a_command_gets_its_input_and_the_end_of_it(server, client):
    data = bytes(range(256)) * 500
    done = await client.exec("web", ["cat"], stdin=data)
    assert (done.exit_code, done.stdout, done.stderr) == (0, data, b"")
    assert server.offered == ["v5.channel.k8s.io,v4.channel.k8s.io"]
    assert sorted(server.requests[0][1]) == [
        ("command", "cat"),
        ("stderr", "true"),
        ("stdin", "true"),
        ("stdout", "true"),
    ]


async def test_outputs_are_kept_apart_and_an_exit_code_is_not_an_error(client):
    done = await client.exec("web", ["both"])
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    assert (await client.exec("web", ["exit", "3"])).exit_code == 3


async def test_a_command_that_could_not_run_is_an_error_with_the_servers_message(client):
    with pytest.raises(ServerError, match="no such file"):
        await client.exec("web", ["fail"])


async def test_a_connection_that_ends_without_a_status_is_never_taken_as_success(client):
    with pytest.raises(ConnectionFailed, match="before the command said how it ended"):
        await client.exec("web", ["hangup"])


async def test_a_refusal_before_the_upgrade_says_what_the_server_answered(client):
    with pytest.raises(NotFound, match='pods "missing" not found'):
        await client.exec("missing", ["cat"])


async def test_a_redirect_is_not_followed(client):
    with pytest.raises(BadResponse, match="redirects are not followed"):
        await client.exec("moved", ["cat"])


async def test_errors_do_not_repeat_the_command_which_may_hold_a_secret(client):
    with pytest.raises(NotFound) as caught:
        await client.exec("missing", ["login", "--password=hunter2"])
    assert "hunter2" not in str(caught.value)


async def test_a_terminal_can_be_resized(client):
    async with client.open_exec("web", ["size"], stdin=True, tty=True) as stream:
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = stream.exit_code
        await stream.resize(120, 40)
        assert [item async for item in stream] == [(STDOUT, b'{"Width":120,"Height":40}')]
        assert stream.exit_code == 0


async def test_a_command_is_typed_to_as_it_answers(client):
    async with client.open_exec("web", ["cat"], stdin=True) as stream:
        await stream.send(b"one")
        assert await anext(stream) == (STDOUT, b"one")
        await stream.close_stdin()
        assert [item async for item in stream] == []


async def test_an_old_server_that_cannot_close_stdin_is_an_error_and_not_a_wait_for_ever():
    async with (
        StreamsServer(protocols=("v4.channel.k8s.io",)) as old,
        Client.connect(Config(server=old.url)) as client,
    ):
        with pytest.raises(BadResponse, match="stdin cannot be closed"):
            await client.exec("web", ["cat"], stdin=b"x")


async def test_output_without_end_does_not_fill_the_memory(server):
    options = TransportOptions(max_response_bytes=100_000)
    async with Client.connect(Config(server=server.url), options=options) as client:
        with pytest.raises(ResponseTooLarge):
            await client.exec("web", ["cat"], stdin=b"x" * 200_000)


# -- port-forward -----------------------------------------------------------------------------------------------------


async def test_a_local_port_leads_to_the_port_of_the_pod_for_every_connection(server, client):
    async with client.port_forward("web", 8080) as local:
        for word in (b"hello", b"again"):
            reader, writer = await asyncio.open_connection(local.host, local.port)
            writer.write(word)
            assert await reader.readexactly(5) == word.upper()
            writer.close()
    assert [query for _, query in server.requests] == [[("ports", "8080")]] * 2


async def test_a_port_that_refuses_closes_the_local_connection_and_says_why(client):
    async with client.port_forward("web", 1) as local:
        reader, writer = await asyncio.open_connection(local.host, local.port)
        assert await reader.read() == b""
        writer.close()
        assert "connection refused" in str(local.error)


async def test_a_reconciler_that_blocks_reads_logs_runs_commands_and_reaches_ports(client):
    caches: Any = None
    cluster = Cluster(client, caches)
    pod = Pod(metadata=ObjectMeta(name="web", namespace="shop"))

    def reconcile(ctx, obj):
        with ctx.port_forward(obj, 8080) as local, socket.create_connection((local.host, local.port)) as connection:
            connection.sendall(b"hello")
            answer = connection.recv(5)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((local.host, local.port))
        return ctx.logs(obj), ctx.exec(obj, ["exit", "3"]).exit_code, answer

    with ClusterSnapshot([], user="test") as cache:
        context = Context(
            cluster,
            cache,
            key="a",
            reconcile_id="id",
            field_manager="test",
            clock=SYSTEM_CLOCK,
            log=structlog.get_logger(),
        )
        assert await run_blocking(reconcile, context, pod) == ("first\n\nthird\nunfinished", 3, b"HELLO")


# -- the guard --------------------------------------------------------------------------------------------------------


async def test_in_a_dry_run_no_command_and_no_port_is_opened_but_logs_are_read(server, client):
    guarded = client.guarded(WriteGuard(dry_run=True))
    with pytest.raises(NotInDryRun):
        await guarded.exec("web", ["exit", "0"])
    with pytest.raises(NotInDryRun):
        async with guarded.port_forward("web", 8080):
            pass
    assert server.requests == []
    assert await guarded.logs("web")


async def test_a_process_that_lost_its_lease_can_neither_open_a_shell_nor_go_on_typing(server, client):
    guard = WriteGuard()
    guarded = client.guarded(guard)
    async with guarded.open_exec("web", ["cat"], stdin=True) as stream:
        await stream.send(b"one")
        guard.fence = lambda _key: NOT_LEADER
        with pytest.raises(NotLeading):
            await stream.send(b"two")
    with pytest.raises(NotLeading):
        await guarded.exec("web", ["exit", "0"])
    assert len(server.requests) == 1


# -- what the documentation shows -------------------------------------------------------------------------------------


async def test_the_example_of_the_documentation_works(server, client):
    page = Path(__file__).parents[4] / "docs" / "howto" / "pods.md"
    block, *_ = [block for block in blocks_of(page, page.parents[2]) if block.language == "python"]
    shown: dict[str, Any] = {"sm": sm, "asyncio": asyncio}
    exec(block.text, shown)
    assert await shown["back_up"](client, "db-0") == b"CREATE TABLE orders;"
    await shown["restore"](client, "db-0", b"dump")
    server.log = b"fine\nERROR disk\n"
    assert await shown["errors_in"](client, "db-0") == ["ERROR disk"]
    assert await shown["ask"](client, "db-0", b"hello") == b"HELLO"
