"""`steersman dev`: an operator that follows its code, on a server that stays."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager

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

VALIDATED = (
    OPERATOR
    + """
@sm.validate(Shop)
def not_too_large(request: sm.AdmissionRequest[Shop]) -> None:
    if request.object.spec.size > 10:
        raise sm.Denied("too large", field="spec.size")
"""
)

pytestmark = pytest.mark.slow


def save(file, text):
    """As editors do: the whole file at once."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)


@asynccontextmanager
async def developing(tmp_path, text):
    """`steersman dev` at work: the file, a client of its server, its address, and its log."""
    folder = tmp_path / "code"
    folder.mkdir()
    file, kubeconfig, log = folder / "shop.py", tmp_path / "kubeconfig", tmp_path / "log"
    save(file, text)
    with ReservedPort() as port:
        listen = f"127.0.0.1:{port.number}"
        port.release()
        program = [sys.executable, "-m", "steersman", "dev", file, "--listen", listen, "--kubeconfig-out", kubeconfig]
        child = Child(program, log=log)
        try:
            await eventually(kubeconfig.exists)
            async with sm.Client.connect(sm.load_config(kubeconfig)) as client:
                yield file, client, listen, log
        finally:
            await child.stop(deadline=30)


def shop(name, **spec):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "dev.example.org/v1", "kind": "Shop", "metadata": metadata, "spec": spec}


async def test_an_operator_follows_its_code_and_objects_stay(tmp_path):
    async with developing(tmp_path, OPERATOR.replace("TEXT", "first")) as (file, client, listen, log):
        await eventually(lambda: client.create(shop("corner")))

        async def says(text):
            return (await client.get(sm.ConfigMap, "corner", namespace="default")).data == {"says": text}

        await eventually(lambda: says("first"))
        async with aiohttp.ClientSession() as session, session.get(f"http://{listen}/") as page:
            assert page.status == 200
        save(file, "def (")
        await eventually(lambda: "is not Python" in log.read_text())
        save(file, OPERATOR.replace("TEXT", "second"))
        await eventually(lambda: says("second"))
    assert "code changed; starting again" in log.read_text()


async def test_webhooks_of_the_code_are_asked_as_long_as_it_has_them(tmp_path):
    async with developing(tmp_path, VALIDATED) as (file, client, _, _):
        await eventually(lambda: client.create(shop("small", size=1)))
        with pytest.raises(sm.Invalid, match=r"spec\.size: too large"):
            await client.create(shop("large", size=11))
        save(file, OPERATOR)
        await eventually(lambda: client.create(shop("large", size=11)))
