"""`steersman.testing.client_as`: clients with exactly the rights that a test gives them, on both servers."""

from __future__ import annotations

import pytest

from steersman.kube.api.errors import Forbidden, Unauthorized
from steersman.kube.api.types import ConfigMap, Node, Secret, ServiceAccount
from steersman.runtime.rbac import rule
from steersman.testing import client_as, eventually


@pytest.fixture
def server(cluster):
    return cluster


async def test_a_client_may_do_what_its_rules_say_and_nothing_else(steersman_client_as, namespace):
    reader = await steersman_client_as("reader", rule("configmaps", "get", "list"))
    assert (await reader.list(ConfigMap, namespace=namespace)).items
    with pytest.raises(Forbidden) as denied:
        await reader.list(Secret, namespace=namespace)
    assert str(denied.value.rule) == '{"apiGroups":[""],"resources":["secrets"],"verbs":["list"]}'


async def test_rules_hold_at_the_cluster_scope_when_they_are_granted_everywhere(steersman_client_as):
    near = await steersman_client_as("near", rule("nodes", "list"))
    wide = await steersman_client_as("wide", rule("nodes", "list"), everywhere=True)
    assert (await wide.list(Node)).items is not None
    with pytest.raises(Forbidden):
        await near.list(Node)


async def test_an_account_that_exists_is_used_with_the_rights_it_has(cluster, steersman_client_as, namespace):
    await steersman_client_as("reader", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]})
    async with client_as(cluster, "reader", namespace=namespace) as again:
        assert (await again.list(ConfigMap, namespace=namespace)).items


async def test_rights_are_added_to_an_account_that_has_some(steersman_client_as, namespace):
    await steersman_client_as("grower", rule("configmaps", "list"))
    again = await steersman_client_as("grower", rule("secrets", "list"))
    assert (await again.list(ConfigMap, namespace=namespace)).items
    assert (await again.list(Secret, namespace=namespace)).items is not None


async def test_the_token_of_a_deleted_account_is_refused(steersman_client, steersman_client_as, namespace):
    reader = await steersman_client_as("leaver", rule("configmaps", "list"))
    assert (await reader.list(ConfigMap, namespace=namespace)).items
    await steersman_client.delete(ServiceAccount, "leaver", namespace=namespace)

    async def refused() -> bool:
        try:
            await reader.list(ConfigMap, namespace=namespace)
        except Unauthorized:
            return True
        return False

    await eventually(refused)
