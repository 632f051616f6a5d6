"""`steersman run` converts the versions of a file's kind: installed as it is printed, with the rights it prints."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from steersman.cli.python_files import load_python
from steersman.kube.api.objects import ObjectMeta
from steersman.runtime.webhook.certificate_source import DEFINITIONS
from steersman.testing import eventually
from steersman.testing.controlplane.processes import Child, ReservedPort

PROGRAM = """
import steersman as sm

class Rope(sm.Resource, group="{group}", version="v2"):
    class Spec(sm.Struct):
        length: str
    spec: Spec

class RopeV1(sm.Resource, group="{group}", version="v1", kind="Rope", hub=Rope):
    class Spec(sm.Struct):
        size: int
    spec: Spec

    def convert_to(self):
        return Rope(spec=Rope.Spec(length=f"{{self.spec.size}}cm"))

    @classmethod
    def convert_from(cls, hub):
        return cls(spec=cls.Spec(size=int(hub.spec.length.removesuffix("cm"))))
"""


def printed(*arguments: str) -> list[dict]:
    program = [sys.executable, "-m", "steersman", *arguments, "-o", "json"]
    return json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)["items"]


@pytest.fixture
async def process(real, client, namespace, tmp_path):
    """The file's definition and rights as they are printed, and the process that serves its conversion."""
    file = tmp_path / "rope.py"
    file.write_text(PROGRAM.format(group=f"{namespace}.example.org"))
    account = await real.service_account("rope", [], namespace=namespace)
    with ReservedPort() as port:
        address = f"127.0.0.1:{port.number}"
        definitions = printed("crds", str(file), "--host", address)
        for manifest in [*definitions, *printed("webhooks", str(file), "-n", namespace, "--host", address, "--rights")]:
            await client.apply(manifest)
        port.release()  # the process cannot share it
        arguments = ["--webhook-host", "127.0.0.1", "--webhook-listen", address, "--listen", "127.0.0.1:0"]
        child = Child(
            [sys.executable, "-m", "steersman", "run", file, "--kubeconfig", account, *arguments], log=tmp_path / "log"
        )
        yield child, load_python(str(file))
    await child.stop(deadline=30)
    await client.delete(DEFINITIONS, definitions[0]["metadata"]["name"])


async def test_a_process_converts_the_versions_of_its_file(process, client, namespace):
    child, types = process
    meta = ObjectMeta(name="a", namespace=namespace)

    async def made() -> bool:
        await client.apply(types.RopeV1(metadata=meta, spec=types.RopeV1.Spec(size=7)))
        return True

    await eventually(made, "the API server trusts the process, which has put its authority into the definition")
    assert (await client.get(types.Rope, "a", namespace=namespace)).spec.length == "7cm"
    await client.apply(types.Rope(metadata=meta, spec=types.Rope.Spec(length="8cm")), force=True)
    assert [rope.spec.size for rope in (await client.list(types.RopeV1, namespace=namespace)).items] == [8]
    child.signal(signal.SIGTERM)
    assert await child.wait() == 0
