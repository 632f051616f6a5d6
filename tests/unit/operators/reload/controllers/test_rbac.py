"""The least rights of the operator: every feature asks for what it needs, and for nothing when it is off."""

from __future__ import annotations

import pytest

from steersman.errors import ConfigError
from steersman.operators.reload.api.config import BudgetConfig, CompareConfig, HookConfig, ReceiverConfig, ReloadConfig
from steersman.operators.reload.controllers.rbac import rules


def verbs(config):
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules(config):
        found.setdefault((rule.api_groups[0], rule.resources[0]), set()).update(rule.verbs)
    return found


def test_workloads_are_watched_and_patched_and_nothing_else():
    found = verbs(
        ReloadConfig(
            kinds=("Deployment",), namespaces=("shop",), budget=BudgetConfig(restarts=0), pods=False, policies=False
        )
    )
    assert found == {
        ("apps", "deployments"): {"list", "watch", "patch"},
        ("", "configmaps"): {"list", "watch"},
        ("", "secrets"): {"list", "watch"},
        ("coordination.k8s.io", "leases"): {"list", "watch"},
        ("secrets-store.csi.x-k8s.io", "secretproviderclasspodstatuses"): {"list", "watch"},
        ("secrets-store.csi.x-k8s.io", "secretproviderclasses"): {"list", "watch"},
    }


@pytest.mark.parametrize(
    ("config", "resource", "wanted"),
    [
        (ReloadConfig(secrets=False), ("", "secrets"), None),
        (ReloadConfig(rivals=()), ("coordination.k8s.io", "leases"), None),
        (ReloadConfig(), ("authorization.k8s.io", "subjectaccessreviews"), {"create"}),
        (ReloadConfig(rivals=()), ("authorization.k8s.io", "subjectaccessreviews"), None),
        (ReloadConfig(pods=False), ("authorization.k8s.io", "subjectaccessreviews"), None),
        (ReloadConfig(namespaces=("shop",)), ("authorization.k8s.io", "subjectaccessreviews"), None),
        (ReloadConfig(rival_namespaces=()), ("authorization.k8s.io", "subjectaccessreviews"), None),
        (ReloadConfig(), ("", "namespaces"), {"list", "watch"}),
        (ReloadConfig(namespaces=("shop",)), ("", "namespaces"), None),
        (ReloadConfig(), ("", "configmaps"), {"get", "list", "watch"}),
        (ReloadConfig(kinds=("Job",)), ("batch", "jobs"), {"get", "list", "watch", "patch", "create", "delete"}),
        (ReloadConfig(kinds=("Rollout",)), ("apps", "deployments"), {"list", "watch"}),
        (ReloadConfig(), ("argoproj.io", "rollouts"), {"list", "watch", "patch"}),
        (ReloadConfig(), ("", "pods"), {"list"}),
        (ReloadConfig(pods=False), ("", "pods"), None),
        (ReloadConfig(), ("steersman.dev", "reloadpolicies"), {"list", "watch"}),
        (ReloadConfig(), ("steersman.dev", "reloadpolicies/status"), {"patch"}),
        (ReloadConfig(namespaces=("shop",)), ("steersman.dev", "clusterreloadpolicies"), None),
        (ReloadConfig(policies=False), ("steersman.dev", "reloadpolicies"), None),
        (ReloadConfig(actions=("http",)), ("", "pods"), {"list"}),
        (ReloadConfig(actions=("http",)), ("", "pods/eviction"), None),
        (ReloadConfig(actions=("evict",)), ("", "pods/eviction"), {"create"}),
        (ReloadConfig(audit_period="5m"), ("", "pods"), {"list"}),
    ],
)
def test_a_feature_asks_for_what_it_needs(config, resource, wanted):
    assert verbs(config).get(resource) == wanted


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (ReloadConfig(actions=("dance",)), 'reload.actions[0]: "dance" is not one of restart, none, http, evict'),
        (ReloadConfig(compare=(CompareConfig(keys="*", form="xml"),)), 'reload.compare[0].as: "xml" is not one of'),
        (ReloadConfig(compare=(CompareConfig(source="app", keys="*", form="json"),)), "reload.compare[0].source:"),
        (ReloadConfig(notify=(ReceiverConfig(),)), "reload.notify[0]: needs either url or urlFrom"),
        (ReloadConfig(notify=(ReceiverConfig(url="x"),)), "reload.notify[0].url: must begin with https://"),
        (ReloadConfig(notify=(ReceiverConfig(url="http://x", format="fax"),)), "reload.notify[0].format:"),
        (ReloadConfig(hook=HookConfig(on_error="panic")), "reload.hook.onError:"),
        (ReloadConfig(hook=HookConfig(timeout="soon")), "reload.hook.timeout:"),
        (ReloadConfig(audit_period="0s"), "reload.auditPeriod: must be 1s or longer"),
    ],
)
def test_a_feature_that_is_written_wrongly_is_named(config, said):
    with pytest.raises(ConfigError) as caught:
        config.options()
    assert said in str(caught.value)


def test_names_from_a_list_are_the_only_ones_that_are_granted():
    config = ReloadConfig(secret_names=("tls", "db"), budget=BudgetConfig(restarts=0))
    (secrets,) = [rule for rule in rules(config) if rule.resources == ["secrets"]]
    assert (secrets.resource_names, secrets.verbs) == (["db", "tls"], ["list", "watch"])
    (configmaps,) = [rule for rule in rules(config) if rule.resources == ["configmaps"]]
    assert not configmaps.resource_names
