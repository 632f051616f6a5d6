"""The controllers inside the server: what goes wrong in one of them, or with one object, stays there."""

from __future__ import annotations

from steersman.apiserver import EmbeddedServer
from steersman.apiserver.controllers.cluster_role_aggregation import CLUSTER_ROLE
from steersman.testing import eventually
from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import Space

NS = Space("default")
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


async def test_a_role_that_cannot_be_aggregated_stops_no_other_role_and_no_quota():
    async with (
        EmbeddedServer(authorization="rbac") as server,
        RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api,
    ):
        broken = {
            "metadata": {"name": "a-broken", "uid": "1"},
            "aggregationRule": {"clusterRoleSelectors": ["nonsense"]},
        }
        server.api.store.put(server.api.store.table(CLUSTER_ROLE), "a-broken", broken)
        selector = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
        await api.post(ROLES, {"metadata": {"name": "whole"}, "aggregationRule": selector, "rules": []})
        await api.post(ROLES, {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": [RULE]})
        await api.post(NS.core("resourcequotas"), {"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "9"}}})
        await api.post(NS.core("secrets"), {"metadata": {"name": "a"}})

        async def written() -> bool:
            whole, quota = await api.get(f"{ROLES}/whole"), await api.get(NS.core("resourcequotas/q"))
            return whole.body["rules"] == [RULE] and quota.body["status"].get("used") == {"secrets": "1"}

        await eventually(written)
