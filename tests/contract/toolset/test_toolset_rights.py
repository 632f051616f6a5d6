"""The rights that `steersman rbac` prints suffice for a life of the toolset operator, and a missing one is named."""

from __future__ import annotations

import pytest

from steersman.operators import load_operator, permissions_of
from steersman.operators.toolset.api.config import HealthConfig, ToolsetSection
from steersman.testing import client_as, eventually
from tests.contract.toolset.conftest import Site
from tests.support.toolset.services import running_toolset


@pytest.fixture
def section(namespace):
    unprobed = HealthConfig(enabled=False, empty_after="0s")
    return ToolsetSection(namespace=namespace, namespaces=[namespace], health_check=unprobed)


async def install(client, section, *, without=""):
    """Apply what `steersman rbac --operators toolset --namespaces …` prints, less the rights to one resource."""
    permissions = permissions_of([(load_operator("toolset"), section)])
    for manifest in permissions.manifests("toolset", section.namespace, namespaces=[section.namespace]):
        rules = [rule for rule in manifest.get("rules", ()) if without not in rule["resources"]]
        await client.create({**manifest, "rules": rules} if "rules" in manifest else manifest)


async def test_the_printed_rights_suffice_for_a_life_of_the_operator(embedded, client, namespace, section):
    await install(client, section)
    site = Site(client, namespace)
    embedded.requests.clear()
    async with client_as(embedded, "toolset", namespace=namespace) as own, running_toolset(own, section) as manager:
        await site.add("loki", labels={"app": "loki"}, ports=[3100])
        await site.has("loki-toolset.yaml")
        await site.remove("loki")
        await site.has(without=["loki-toolset.yaml"])
        assert manager.warnings() == []
    assert [entry.path for entry in embedded.requests if entry.status in {401, 403}] == []


@pytest.mark.parametrize("resource", ["services", "endpointslices"])
async def test_without_one_rule_the_operator_is_not_ready_and_names_the_rule(
    embedded, client, namespace, section, resource
):
    await install(client, section, without=resource)
    async with client_as(embedded, "toolset", namespace=namespace) as own, running_toolset(own, section) as manager:

        def forbidden():
            return [text for text in manager.ready().values() if text and "is forbidden" in text]

        problems = await eventually(forbidden, "it is not ready")
    assert len(problems) == 1
    assert f'"resources":["{resource}"]' in problems[0]
