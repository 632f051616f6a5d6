from __future__ import annotations

import pytest

from steersman.kube.api.errors import Forbidden, NotFound
from steersman.kube.api.rbac_hint import MissingRule, policy_rule_for, with_rbac_hint

RULES = [
    ("GET", "/api/v1/pods", {}, '{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}', ""),
    ("GET", "/api/v1/pods", {"watch": "true"}, '{"apiGroups":[""],"resources":["pods"],"verbs":["watch"]}', ""),
    ("GET", "/api/v1/pods", {"watch": "0"}, '{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}', ""),
    (
        "GET",
        "/api/v1/namespaces/shop/pods/web",
        {},
        '{"apiGroups":[""],"resources":["pods"],"resourceNames":["web"],"verbs":["get"]}',
        "shop",
    ),
    (
        "PUT",
        "/apis/apps/v1/namespaces/shop/deployments/web/scale",
        {},
        '{"apiGroups":["apps"],"resources":["deployments/scale"],"resourceNames":["web"],"verbs":["update"]}',
        "shop",
    ),
    (
        "POST",
        "/apis/apps/v1/namespaces/shop/deployments",
        {},
        '{"apiGroups":["apps"],"resources":["deployments"],"verbs":["create"]}',
        "shop",
    ),
    (
        "DELETE",
        "/api/v1/namespaces/shop/configmaps",
        {},
        '{"apiGroups":[""],"resources":["configmaps"],"verbs":["deletecollection"]}',
        "shop",
    ),
    (
        "GET",
        "/api/v1/namespaces/shop",
        {},
        '{"apiGroups":[""],"resources":["namespaces"],"resourceNames":["shop"],"verbs":["get"]}',
        "shop",
    ),
    (
        "PUT",
        "/api/v1/namespaces/shop/finalize",
        {},
        '{"apiGroups":[""],"resources":["namespaces/finalize"],"resourceNames":["shop"],"verbs":["update"]}',
        "shop",
    ),
    (
        "PATCH",
        "/apis/rbac.k8s.io/v1/clusterroles/system%3Anode",
        {},
        '{"apiGroups":["rbac.k8s.io"],"resources":["clusterroles"],"resourceNames":["system:node"],"verbs":["patch"]}',
        "",
    ),
    ("GET", "/version", {}, '{"nonResourceURLs":["/version"],"verbs":["get"]}', ""),
    ("GET", "/apis/apps/v1", {}, '{"nonResourceURLs":["/apis/apps/v1"],"verbs":["get"]}', ""),
]


@pytest.mark.parametrize(("method", "path", "params", "rule", "namespace"), RULES)
def test_a_request_maps_to_the_rule_that_allows_it(method, path, params, rule, namespace):
    found = policy_rule_for(method, path, params)
    assert (str(found), found.namespace) == (rule, namespace)


DENIED = 'pods is forbidden: User "weak" cannot list resource "pods" in API group "" in the namespace "shop"'


def test_a_denied_request_carries_the_missing_rule_as_data_and_text():
    error = with_rbac_hint(Forbidden(DENIED, code=403), "GET", "/api/v1/namespaces/shop/pods", {})
    assert isinstance(error, Forbidden)
    assert error.rule == MissingRule(api_groups=("",), resources=("pods",), verbs=("list",), namespace="shop")
    assert 'Role in namespace shop with this rule allows it: {"apiGroups":[""]' in str(error)


@pytest.mark.parametrize(
    "error",
    [Forbidden('pods "web" is forbidden: exceeded quota: small', code=403), NotFound(DENIED, code=404)],
)
def test_a_refusal_for_another_reason_claims_no_rule(error):
    assert with_rbac_hint(error, "POST", "/api/v1/namespaces/shop/pods", {}) is error


def test_an_apply_that_may_not_create_is_answered_with_the_rule_to_create():
    denied = Forbidden('configmaps "a" is forbidden: User "x" cannot create resource "configmaps" in API group ""')
    hinted = with_rbac_hint(denied, "PATCH", "/api/v1/namespaces/shop/configmaps/a", {})
    assert '"verbs":["create"]' in str(hinted)
