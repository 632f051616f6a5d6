"""`steersman migrate-storage` on both API servers: after it, the old version can be removed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

from steersman.cli.install.migrate_storage import migrate
from steersman.cli.main import cli
from steersman.kube.api.errors import Invalid, NotFound
from steersman.kube.api.gvk import Kind
from steersman.runtime.webhook.certificate_source import DEFINITIONS
from steersman.testing import eventually
from tests.contract.conftest import WORKER

SCHEMA = {
    "openAPIV3Schema": {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
}
# A rule about a transition holds for unchanged objects too.
RULES = [{"rule": "oldSelf.metadata.name != 'odd'", "message": "odd may not change"}]
STRICT = {"openAPIV3Schema": {**SCHEMA["openAPIV3Schema"], "x-kubernetes-validations": RULES}}


def version(name: str, *, storage: bool, schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    return {"name": name, "served": True, "storage": storage, "schema": schema}


class Crates:
    """A kind whose storage version was v1 and became v2, after objects were stored."""

    def __init__(self, client: Any, number: str) -> None:
        self.client = client
        self.group = f"crates-{WORKER}-{number}.example.org"
        self.name = f"crates.{self.group}"
        self.v2 = Kind(group=self.group, version="v2", kind="Crate", plural="crates")

    async def set_versions(self, *versions: dict[str, Any]) -> None:
        await self.client.patch(DEFINITIONS, self.name, {"spec": {"versions": list(versions)}})

    async def stored_versions(self) -> list[str]:
        return (await self.client.get(DEFINITIONS, self.name))["status"]["storedVersions"]


@pytest.fixture
async def crates(cluster, client, namespace):
    crates = Crates(client, namespace)
    names = {"kind": "Crate", "plural": "crates", "listKind": "CrateList", "singular": "crate"}
    spec = {"group": crates.group, "names": names, "scope": "Namespaced", "versions": [version("v1", storage=True)]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    await client.create({**body, "metadata": {"name": crates.name}})
    for name in ("a", "b", "odd"):
        meta = {"name": name, "namespace": namespace}
        await eventually(lambda meta=meta: created(client, crates.group, meta), timeout=60)
    await crates.set_versions(version("v1", storage=False), version("v2", storage=True))

    async def served() -> bool:
        try:
            return len((await client.list(crates.v2, namespace=namespace)).items) == 3
        except NotFound:
            return False

    await eventually(served, timeout=60)
    yield crates
    await client.delete(DEFINITIONS, crates.name)


async def created(client: Any, group: str, meta: dict[str, Any]) -> bool:
    try:
        await client.create({"apiVersion": f"{group}/v1", "kind": "Crate", "metadata": meta, "spec": {"size": 1}})
    except NotFound:
        return False
    return True


async def test_after_the_migration_the_old_version_can_be_removed_and_objects_are_there(crates, client, namespace):
    with pytest.raises(Invalid, match="storedVersions"):
        await crates.set_versions(version("v2", storage=True))
    found = await migrate(client, crates.name)
    assert (found.storage_version, found.stored_versions, found.objects, found.failures) == ("v2", ["v1", "v2"], 3, [])
    assert await crates.stored_versions() == ["v2"]
    await crates.set_versions(version("v2", storage=True))
    listed = (await client.list(crates.v2, namespace=namespace)).items
    assert [item["metadata"]["name"] for item in listed] == ["a", "b", "odd"]
    again = await migrate(client, crates.name)
    assert (again.is_needed, again.objects) == (False, 0)


async def test_an_object_that_cannot_be_written_is_named_and_nothing_is_trimmed(crates, client, namespace):
    await crates.set_versions(version("v1", storage=False), version("v2", storage=True, schema=STRICT))

    async def refused() -> bool:
        return bool((await migrate(client, crates.name, dry_run=True)).failures)

    await eventually(refused, "the API server takes up the rule", timeout=60)
    found = await migrate(client, crates.name)
    assert found.objects == 2
    (failure,) = found.failures
    assert failure.startswith(f"{crates.name} {namespace}/odd: ")
    assert "odd may not change" in failure
    assert await crates.stored_versions() == ["v1", "v2"]


async def test_a_dry_run_writes_nothing_and_says_that_there_is_something_to_do(crates, cluster, client, tmp_path):
    before = {item["metadata"]["resourceVersion"] for item in (await client.list(crates.v2)).items}
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    arguments = ["migrate-storage", crates.name, "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", "json"]

    async def run(*more: str) -> tuple[int, Any]:
        result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, *more])
        return result.exit_code, json.loads(result.stdout)

    code, (row,) = await run("--dry-run")
    assert (code, row["objects"], row["storedVersions"]) == (3, 3, ["v1", "v2"])
    assert {item["metadata"]["resourceVersion"] for item in (await client.list(crates.v2)).items} == before
    assert await crates.stored_versions() == ["v1", "v2"]
    assert (await run())[0] == 0
    assert (await run("--dry-run"))[0] == 0
    assert await crates.stored_versions() == ["v2"]
