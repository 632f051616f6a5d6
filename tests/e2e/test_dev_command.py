"""`steersman dev`: an operator that follows its code, on a server that stays."""

from __future__ import annotations

import sys

import aiohttp
import pytest

import steersman as sm
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child, ReservedPort

OPERATOR = """
import steersman as sm

class Shop(sm.Resource, group="dev.example.org", version="v1"):
    class Spec(sm.Struct):
        size: int = 1

    spec: Spec = Spec()

@sm.controller(Shop, owns=[sm.ConfigMap])
async def shop(ctx, shop):
    metadata = sm.ObjectMeta(name=shop.name, namespace=shop.namespace)
    await ctx.apply(sm.ConfigMap(metadata=metadata, data={"says": "TEXT"}))
"""

pytestmark = pytest.mark.slow


def save(file, text):
    """As editors do: the whole file at once."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)


async def test_an_operator_follows_its_code_and_objects_stay(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    file, kubeconfig, log = folder / "shop.py", tmp_path / "kubeconfig", tmp_path / "log"
    save(file, OPERATOR.replace("TEXT", "first"))
    with ReservedPort() as port:
        listen = f"127.0.0.1:{port.number}"
        port.release()
        program = [sys.executable, "-m", "steersman", "dev", file, "--listen", listen, "--kubeconfig-out", kubeconfig]
        child = Child(program, log=log)
        try:
            await eventually(kubeconfig.exists)
            async with sm.Client.connect(sm.load_config(kubeconfig)) as client:
                shop = {"apiVersion": "dev.example.org/v1", "kind": "Shop"}
                meta = {"metadata": {"name": "corner", "namespace": "default"}}
                await eventually(lambda: client.create({**shop, **meta}))

                async def says(text):
                    return (await client.get(sm.ConfigMap, "corner", namespace="default")).data == {"says": text}

                await eventually(lambda: says("first"))
                async with aiohttp.ClientSession() as session, session.get(f"http://{listen}/") as page:
                    assert page.status == 200
                save(file, "def (")
                await eventually(lambda: "is not Python" in log.read_text())
                save(file, OPERATOR.replace("TEXT", "second"))
                await eventually(lambda: says("second"))
        finally:
            await child.stop(deadline=30)
    assert "code changed; starting again" in log.read_text()
