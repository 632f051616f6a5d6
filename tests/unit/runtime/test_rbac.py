"""Rights: the least, in as few rules, granted where they can be granted."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from steersman.cli.main import _run
from steersman.kube.api.types.rbac import PolicyRule
from steersman.operators import Operator, permissions_of
from steersman.runtime.manager.operator_bundle import OperatorBundle
from steersman.runtime.rbac import merge_rules, missing_rules, rule, rule_manifest


def operator(*rules: PolicyRule) -> Operator:
    return Operator(
        name="one", summary="", parts=lambda *_: OperatorBundle(controllers=[]), rules=lambda _config: rules
    )


READ_PODS = PolicyRule(api_groups=[""], resources=["pods"], verbs=["list", "get"])
READ_NODES = PolicyRule(api_groups=[""], resources=["nodes", "configmaps"], verbs=["get"])


def kinds(manifests):
    return [manifest["kind"] for manifest in manifests]


def test_in_the_whole_cluster_one_cluster_role_grants_everything():
    made = permissions_of([(operator(READ_PODS, READ_NODES), None)]).manifests("steersman", "ops")
    assert kinds(made) == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]


def test_in_a_few_namespaces_only_what_has_no_namespace_is_granted_everywhere():
    made = permissions_of([(operator(READ_PODS, READ_NODES), None)]).manifests("steersman", "ops", namespaces=["shop"])
    wide = next(manifest for manifest in made if manifest["kind"] == "ClusterRole")
    assert wide["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    near = next(manifest for manifest in made if manifest["kind"] == "Role")
    assert near["metadata"] == {"name": "steersman", "namespace": "shop"}
    assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]} in near["rules"]


def test_the_lease_is_granted_by_name_beside_the_account():
    made = permissions_of([]).manifests("steersman", "ops", lease="one")
    role = next(manifest for manifest in made if manifest["kind"] == "Role")
    assert role["metadata"]["namespace"] == "ops"
    assert role["rules"][1]["resourceNames"] == ["one"]


RULES = st.lists(
    st.builds(
        PolicyRule,
        api_groups=st.lists(st.sampled_from(["", "apps"]), min_size=1, unique=True),
        resources=st.lists(st.sampled_from(["pods", "pods/status", "secrets"]), min_size=1, unique=True),
        resource_names=st.lists(st.sampled_from(["a", "b"]), max_size=1),
        verbs=st.lists(st.sampled_from(["get", "list", "patch", "escalate"]), min_size=1, unique=True),
    ),
    max_size=5,
)


@given(RULES)
def test_fewer_rules_grant_exactly_the_same(rules):
    assert granted(merge_rules(rules)) == granted(rules)


def granted(rules):
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule.api_groups
        for resource in rule.resources
        for name in rule.resource_names or [""]
        for verb in rule.verbs
    }


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_the_command_prints_what_can_be_applied(output, capsys):
    assert _run(["rbac", "--operators", "reload", "-n", "ops", "-o", output]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    made = printed[0]["items"] if output == "json" else printed
    assert kinds(made)[0] == "ServiceAccount"
    assert made[0]["metadata"] == {"name": "steersman", "namespace": "ops"}


def test_a_wrong_operator_is_named(capsys):
    assert _run(["rbac", "--operators", "nix"]) == 2
    assert '"nix" is not an operator' in capsys.readouterr().err


def test_beyond_what_is_granted_is_what_is_missing_and_no_more():
    wanted = [
        PolicyRule(api_groups=["batch"], resources=["jobs", "cronjobs"], verbs=["list", "delete"]),
        PolicyRule(api_groups=[""], resources=["configmaps"], resource_names=["mine"], verbs=["get", "patch"]),
    ]
    granted = [
        PolicyRule(api_groups=["batch"], resources=["cronjobs"], verbs=["list", "delete", "watch"]),
        PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get"]),
        PolicyRule(api_groups=[""], resources=["configmaps"], resource_names=["another"], verbs=["patch"]),
    ]
    assert list(map(rule_manifest, missing_rules(wanted, granted))) == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["patch"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "delete"]},
    ]
    assert missing_rules(wanted, wanted) == []


def test_a_rule_is_written_as_kubectl_writes_resources():
    assert rule_manifest(rule("deployments.apps", "list", "watch")) == {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["list", "watch"],
    }
    assert rule_manifest(rule(["dnszones.example.org/status", "dnszones.example.org"], "patch", names=["a"])) == {
        "apiGroups": ["example.org"],
        "resources": ["dnszones/status", "dnszones"],
        "resourceNames": ["a"],
        "verbs": ["patch"],
    }


def test_a_rule_is_for_one_api_group():
    with pytest.raises(ValueError, match="one API group"):
        rule(["pods", "deployments.apps"], "get")
