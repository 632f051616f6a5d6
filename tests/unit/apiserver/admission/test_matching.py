"""Which webhooks are asked about a request."""

from __future__ import annotations

import pytest

from steersman.apiserver.admission.matching import AdmissionAttributes, is_exempt, matched_version
from steersman.apiserver.resources.registry import Registry
from tests.support.webhooks import admission_webhook as webhook
from tests.support.webhooks import rule

REGISTRY = Registry()


def resource(group, version, plural):
    info = REGISTRY.lookup(group, version, plural)
    assert info is not None
    return info


PODS = resource("", "v1", "pods")
NODES = resource("", "v1", "nodes")
NAMESPACES = resource("", "v1", "namespaces")
SCALERS = [resource("autoscaling", version, "horizontalpodautoscalers") for version in ("v1", "v2")]


def attributes(info=PODS, operation="CREATE", *, labels=None, old=None, **fields):
    obj = {"metadata": {"labels": labels or {}}} if operation != "DELETE" else None
    state = {"metadata": {"labels": old}} if old is not None else None
    namespace = "shop" if info.kind.namespaced else ""
    given = {"namespace": namespace, "options": {}, "user": {}, **fields}
    return AdmissionAttributes(operation=operation, info=info, object=obj, old=state, **given)


def matched(hook, about, *, equivalents=(), namespace_labels=None):
    return matched_version(hook.match, about, equivalents, lambda: namespace_labels or {})


@pytest.mark.parametrize(
    ("given", "about", "expected"),
    [
        (rule("pods"), attributes(), True),
        (rule("*"), attributes(), True),
        (rule("pods", operations=["*"]), attributes(operation="DELETE", old={}), True),
        (rule("pods", operations=["DELETE"]), attributes(), False),
        (rule("pods", group="*", version="*"), attributes(), True),
        (rule("pods", group="apps"), attributes(), False),
        (rule("pods", version="v2"), attributes(), False),
        (rule("services"), attributes(), False),
        (rule("pods"), attributes(subresource="status"), False),
        (rule("*"), attributes(subresource="status"), False),
        (rule("pods/status"), attributes(subresource="status"), True),
        (rule("pods/*"), attributes(subresource="status"), True),
        (rule("pods/*"), attributes(), True),
        (rule("*/status"), attributes(subresource="status"), True),
        (rule("*/*"), attributes(), True),
        (rule("*", scope="Namespaced"), attributes(NODES), False),
        (rule("*", scope="Cluster"), attributes(NODES), True),
        (rule("*", scope="Cluster"), attributes(), False),
        (rule("*", scope="Cluster"), attributes(NAMESPACES, namespace="shop"), True),
    ],
)
def test_a_rule_names_operations_groups_versions_resources_and_scope(given, about, expected):
    assert (matched(webhook(given), about) is not None) is expected


def test_a_webhook_without_rules_is_never_asked():
    assert matched(webhook(), attributes()) is None


@pytest.mark.parametrize(("policy", "expected"), [("Equivalent", SCALERS[0]), ("Exact", None)])
def test_another_version_of_the_resource_matches_only_if_the_policy_says_so(policy, expected):
    hook = webhook(rule("horizontalpodautoscalers", group="autoscaling", version="v1"), matchPolicy=policy)
    assert matched(hook, attributes(SCALERS[1]), equivalents=SCALERS) is expected


def test_a_rule_for_the_requested_version_goes_before_equivalent_ones():
    rules = [rule("horizontalpodautoscalers", group="autoscaling", version=version) for version in ("v1", "v2")]
    assert matched(webhook(*rules), attributes(SCALERS[1]), equivalents=SCALERS) is SCALERS[1]


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (attributes(labels={"tier": "web"}), True),
        (attributes(labels={"tier": "db"}), False),
        (attributes(operation="UPDATE", labels={}, old={"tier": "web"}), True),
        (attributes(operation="DELETE", old={"tier": "web"}), True),
        (attributes(operation="DELETE", old={}), False),
    ],
)
def test_an_object_selector_needs_a_match_in_either_state(about, expected):
    hook = webhook(rule("pods"), objectSelector={"matchLabels": {"tier": "web"}})
    assert (matched(hook, about) is not None) is expected


@pytest.mark.parametrize(
    ("about", "labels", "expected"),
    [
        (attributes(), {"team": "a"}, True),
        (attributes(), {"team": "b"}, False),
        (attributes(NODES), {}, True),  # never exempted
        (attributes(NAMESPACES, namespace="shop", labels={"team": "a"}), {}, True),  # its own labels, as written
        (attributes(NAMESPACES, "DELETE", namespace="shop", old={"team": "b"}), {"team": "a"}, True),
    ],
)
def test_a_namespace_selector_reads_the_namespace_of_the_request(about, labels, expected):
    hook = webhook(rule("*"), namespaceSelector={"matchLabels": {"team": "a"}})
    assert (matched(hook, about, namespace_labels=labels) is not None) is expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"), True),
        (resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"), True),
        (PODS, False),
    ],
)
def test_configurations_of_webhooks_are_exempt(info, expected):
    assert is_exempt(info.kind) is expected
