"""Logs, commands and ports of pods on both servers, as far as servers without a kubelet answer.

What comes after the upgrade (channels, exit codes, the end of stdin) is in tests/unit/kube/client/test_pod_streams.py,
against a server that speaks the protocol of a kubelet.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from steersman.kube.api.errors import BadRequest, Forbidden, NotFound, ServerError
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import ConfigMap
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.controller.builder import Controller
from steersman.runtime.rbac import rule
from steersman.runtime.reconcile.write_guard import NotInDryRun
from steersman.testing import eventually, running
from tests.support.docs.pages import blocks_of


@pytest.fixture
async def connected(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as made:
        yield made


async def open_port(client: Client, name: str, namespace: str) -> None:
    async with client.port_forward(name, 80, namespace=namespace) as local, local.open():
        pass


def ways(client: Client, namespace: str, name: str = "web") -> list[Any]:
    return [
        partial(client.exec, name, ["true"], namespace=namespace),
        partial(open_port, client, name, namespace),
        partial(client.logs, name, namespace=namespace),
    ]


async def test_a_pod_that_does_not_exist_is_not_found(connected, namespace):
    for way in ways(connected, namespace):
        with pytest.raises(NotFound):
            await way()


async def test_a_client_gets_to_know_which_right_it_lacks(steersman_client_as, cluster, namespace):
    reader = await steersman_client_as("reader", rule("pods", "get"))
    for way, subresource in zip(ways(reader, namespace), ("exec", "portforward", "log"), strict=True):
        with pytest.raises(Forbidden) as caught:
            await way()
        assert f"pods/{subresource}" in str(caught.value)


async def test_a_pod_without_a_node_is_a_bad_request_with_the_servers_message(connected, namespace):
    client = connected
    spec = {"containers": [{"name": "main", "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}, "spec": spec}
    await client.create(pod)
    for way in ways(client, namespace)[:2]:
        with pytest.raises(BadRequest, match="does not have a host assigned"):
            await way()
    with pytest.raises(BadRequest, match="container other is not valid for pod web"):
        await client.exec("web", ["true"], namespace=namespace, container="other")


@pytest.mark.parametrize("first", [[], ["setup"]])
async def test_a_pod_with_several_containers_needs_the_name_of_one(connected, namespace, first):
    containers, init = ([{"name": name, "image": "none"} for name in names] for names in (["main", "proxy"], first))
    spec = {"containers": containers, "initContainers": init}
    meta = {"name": "web", "namespace": namespace}
    await connected.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    choices = " ".join([*first, "main", "proxy"])
    why = rf"a container name must be specified for pod web, choose one of: \[{choices}\]"
    for way in ways(connected, namespace)[::2]:
        with pytest.raises(BadRequest, match=why):
            await way()


async def test_in_a_dry_run_a_reconcile_reads_logs_and_runs_no_command(connected, namespace):
    outcomes: asyncio.Queue[Any] = asyncio.Queue()

    async def reconcile(ctx, obj):
        async def forward():
            async with ctx.port_forward(obj, 80):
                pass

        for way in (partial(ctx.exec, obj, ["true"]), forward, partial(ctx.logs, obj)):
            try:
                await way()
            except (NotInDryRun, NotFound) as error:
                outcomes.put_nowait(type(error))

    meta = ObjectMeta(name="parent", namespace=namespace, labels={"role": "parent"})
    await connected.create(ConfigMap(metadata=meta))
    controller = Controller(ConfigMap, reconcile, "logs").select(namespaces=[namespace], label_selector="role=parent")
    async with running(connected, controller, dry_run=True):
        await eventually(lambda: outcomes.qsize() >= 3)
    assert [outcomes.get_nowait() for _ in range(3)] == [NotInDryRun, NotInDryRun, NotFound]


@pytest.fixture
async def web_pod(embedded, client, namespace):
    """A pod on a node of the embedded server."""
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}, "spec": spec}
    await client.create(pod)
    return partial(embedded.pods.answer, "web", namespace=namespace)


async def test_on_the_embedded_server_a_pod_answers_what_the_test_sets(web_pod, client, namespace):
    async def shout(reader, writer):
        writer.write((await reader.readline()).upper())
        writer.close()

    def run(command, stdin):
        return (0, stdin, b"") if command == ["cat"] else (127, b"", f"{command[0]}: not found".encode())

    async with await asyncio.start_server(shout, "127.0.0.1", 0) as listening:
        web_pod(log="one\ntwo\nthree\n", exec=run, ports={80: listening.sockets[0].getsockname()[1]})
        assert await client.logs("web", namespace=namespace, tail_lines=2) == "two\nthree\n"
        assert await client.logs("web", namespace=namespace, limit_bytes=3) == "one"
        with pytest.raises(BadRequest, match='tailLines: "-1" is not a whole number'):
            await client.logs("web", namespace=namespace, tail_lines=-1)
        async with client.follow_logs("web", namespace=namespace) as lines:
            assert [line async for line in lines] == ["one", "two", "three"]
        assert (await client.exec("web", ["cat"], namespace=namespace, stdin=b"hello")).stdout == b"hello"
        failed = await client.exec("web", ["tar"], namespace=namespace)
        assert (failed.exit_code, failed.stderr) == (127, b"tar: not found")
        async with client.port_forward("web", 80, namespace=namespace) as local:
            reader, writer = await asyncio.open_connection(local.host, local.port)
            writer.write(b"hello\n")
            assert await reader.readline() == b"HELLO\n"
            writer.close()


async def test_the_example_of_the_documentation_works_on_the_embedded_server(web_pod, embedded, client, namespace):
    page = Path(__file__).parents[2] / "docs" / "howto" / "pods.md"
    *_, block = [block for block in blocks_of(page, page.parents[2]) if block.language == "python"]
    text = block.text.replace('"shop"', f'"{namespace}"').replace('"db-0"', '"web"')
    exec(compile(text, str(page), "exec"), {"server": embedded, "port": 1})
    assert (await client.exec("web", ["psql", "-c", "select 42"], namespace=namespace)).stdout == b"42\n"
    assert await client.logs("web", namespace=namespace) == "ready\n"


async def test_on_the_embedded_server_a_command_without_an_answer_says_how_to_set_one(web_pod, client, namespace):
    assert not await client.logs("web", namespace=namespace)
    for way, option in zip(ways(client, namespace)[:2], ("exec", "ports"), strict=True):
        with pytest.raises(ServerError, match=rf'server\.pods\.answer\("web", namespace="{namespace}", {option}=…\)'):
            await way()
