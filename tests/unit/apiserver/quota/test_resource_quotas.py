"""What objects use, and which quotas count them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.quota.pod_resources import pod_resources
from steersman.apiserver.quota.resource_quotas import namespace_usage, quota_problem
from tests.support.manifests import container, pod, service


def quota(hard, **spec):
    return {"metadata": {"name": "most"}, "spec": {"hard": hard, **spec}}


def sized(cpu, name="main", **fields):
    return container(name, resources={"requests": {"cpu": cpu}}, **fields)


def used(limited, resource, *objects):
    found = namespace_usage(limited, lambda asked: objects if asked == resource else ())
    return {name: str(amount) for name, amount in found.items()}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [sized("100m"), sized("200m")]}, "300m"),
        ({"containers": [sized("100m")], "initContainers": [sized("300m"), sized("200m")]}, "300m"),
        ({"containers": [sized("100m")], "initContainers": [sized("50m", restartPolicy="Always")]}, "150m"),
        (
            {"containers": [sized("100m")], "initContainers": [sized("50m", restartPolicy="Always"), sized("200m")]},
            "250m",
        ),
        ({"containers": [sized("100m")], "resources": {"requests": {"cpu": "1"}}}, "1"),
        ({"containers": [sized("100m")], "overhead": {"cpu": "10m"}}, "110m"),
    ],
)
def test_a_pod_asks_for_its_containers_together_or_its_largest_init_container(spec, cpu):
    assert str(pod_resources(spec, "requests")["cpu"]) == cpu


@pytest.mark.parametrize(
    ("resource", "obj", "uses"),
    [
        ("configmaps", {}, {"configmaps": "1", "count/configmaps": "1"}),
        ("widgets.example.org", {}, {"count/widgets.example.org": "1"}),
        ("services", service("a", spec={"type": "NodePort"}), {"services": "1", "services.nodeports": "1"}),
        (
            "services",
            service("a", spec={"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}),
            {"services.loadbalancers": "1", "services.nodeports": "0"},
        ),
        (
            "persistentvolumeclaims",
            {"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}},
            {
                "requests.storage": "1Gi",
                "fast.storageclass.storage.k8s.io/requests.storage": "1Gi",
                "slow.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
            },
        ),
        ("pods", pod(spec={"containers": [sized("1")]}), {"pods": "1", "cpu": "1", "requests.cpu": "1"}),
        ("pods", pod() | {"status": {"phase": "Failed"}}, {"pods": "0", "count/pods": "1"}),
    ],
)
def test_an_object_uses_what_its_kind_says(resource, obj, uses):
    assert used(quota(dict.fromkeys(uses, "9")), resource, obj) == uses


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["BestEffort", "NotTerminating"]}, True),
        ({"scopes": ["BestEffort", "Terminating"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, True),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]
                }
            },
            False,
        ),
    ],
)
def test_a_quota_counts_pods_in_all_of_its_scopes(scope, counted):
    body = pod(spec={"priorityClassName": "high"}) | {"status": {"qosClass": "BestEffort"}}
    assert used(quota({"pods": "9"}, **scope), "pods", body) == {"pods": "1" if counted else "0"}


@given(st.integers(0, 5), st.integers(0, 5))
def test_an_object_is_admitted_exactly_while_the_quota_lasts(present, most):
    limited = quota({"configmaps": str(most)})
    have = namespace_usage(limited, lambda _: [{}] * present)
    assert (quota_problem(limited, lambda: have, "configmaps", {}, None) is None) is (present < most)


@given(st.integers(1, 900), st.integers(1, 900), st.integers(0, 900))
def test_a_change_is_admitted_when_it_asks_for_no_more_or_for_no_more_than_is_left(before, after, most):
    def claim(size):
        return {"spec": {"resources": {"requests": {"storage": f"{size}Mi"}}}}

    limited = quota({"requests.storage": f"{most}Mi"})
    have = namespace_usage(limited, lambda _: [claim(before)])
    problem = quota_problem(limited, lambda: have, "persistentvolumeclaims", claim(after), claim(before))
    assert (problem is None) is (after <= before or after <= most)
