"""Bad input: every field is refused by name, and values of keys and variables are never repeated."""

from __future__ import annotations

import pytest

from steersman.errors import ConfigError
from steersman.operators.hourglass.api.config import HourglassConfig, Offer
from steersman.operators.hourglass.api.validation import account_rejections, read_executor, read_performer

LONG = "a" * 64
CHAIN = {"name": "a", "rpc": "r", "chainId": 1, "taskMailboxAddress": "0x"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"image": 7}, "spec.image"),
        ({"image": ""}, "spec.image"),
        ({"avsAddress": None}, "spec.avsAddress"),
        ({"imagePullPolicy": "Sometimes"}, "spec.imagePullPolicy"),
        ({"replicas": -1}, "spec.replicas"),
        ({"strategy": "Canary"}, "spec.strategy"),
        ({"config": {"grpcPort": 0}}, "spec.config.grpcPort"),
        ({"config": {"grpcPort": 70000}}, "spec.config.grpcPort"),
        ({"config": {"environment": {"A=B": "x"}}}, "spec.config.environment"),
        ({"config": {"environment": {"A": 1}}}, "spec.config.environment"),
        ({"config": {"environmentFrom": [{"name": "A", "valueFrom": {}}]}}, "spec.config.environmentFrom[0].valueFrom"),
        (
            {
                "config": {
                    "environment": {"A": "x"},
                    "environmentFrom": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                }
            },
            "spec.config.environmentFrom",
        ),
        ({"config": {"serviceAccountName": "Not/Good"}}, "spec.config.serviceAccountName"),
        ({"executorRef": "Not Good"}, "spec.executorRef"),
        ({"resources": {"limits": {"cpu": "lots"}}}, "spec.resources.limits.cpu"),
        ({"resources": {"requests": {"cpu": "-1"}}}, "spec.resources.requests.cpu"),
        ({"resources": {"requests": {"bad name": "1"}}}, "spec.resources.requests.bad name"),
        ({"scheduling": {"nodeSelector": {"a": "b c"}}}, "spec.scheduling.nodeSelector.a"),
        ({"scheduling": {"runtimeClass": "No!"}}, "spec.scheduling.runtimeClass"),
        ({"scheduling": {"tolerations": [{"effect": "Never"}]}}, "spec.scheduling.tolerations[0].effect"),
        ({"hardwareRequirements": {"gpuCount": -1}}, "spec.hardwareRequirements.gpuCount"),
        ({"hardwareRequirements": {"customLabels": {"/": "x"}}}, "spec.hardwareRequirements.customLabels./"),
        ({"disruptionBudget": {}}, "spec.disruptionBudget"),
        ({"disruptionBudget": {"maxUnavailable": "some"}}, "spec.disruptionBudget.maxUnavailable"),
        ({"networkPolicy": "All"}, "spec.networkPolicy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_field_of_a_performer_is_named(performer, spec, field):
    _, problems = read_performer(performer(**spec))
    assert field in [problem.field for problem in problems]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"image": ""}, "spec.image"),
        ({"replicas": -1}, "spec.replicas"),
        ({"config": {"aggregatorEndpoint": 1}}, "spec.config.aggregatorEndpoint"),
        ({"config": {"chains": []}}, "spec.config.chains"),
        ({"config": {"chains": [CHAIN, CHAIN]}}, "spec.config.chains"),
        ({"config": {"chains": [{**CHAIN, "chainId": 0}]}}, "spec.config.chains[0].chainId"),
        ({"config": {"performerMode": "magic"}}, "spec.config.performerMode"),
        ({"config": {"operatorKeys": {}}}, "spec.config.operatorKeys"),
        ({"config": {"operatorKeys": {"a/b": "value-of-a-key"}}}, "spec.config.operatorKeys"),
        ({"config": {"operatorKeysSecretRef": {"name": "s"}}}, "spec.config.operatorKeysSecretRef"),
        ({"config": {"kubernetes": {"namespace": "Not Good"}}}, "spec.config.kubernetes.namespace"),
        (
            {"config": {"kubernetes": {"defaultScheduling": {"nodeSelector": {"": "x"}}}}},
            "spec.config.kubernetes.defaultScheduling.nodeSelector.",
        ),
        ({"serviceAccountName": "Not Good"}, "spec.serviceAccountName"),
        ({"performers": {"maxUnavailable": "200%"}}, "spec.performers.maxUnavailable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_field_of_an_executor_is_named(executor, spec, field):
    _, problems = read_executor(executor(**spec))
    assert field in [problem.field for problem in problems]
    assert "value-of-a-key" not in str(problems)


def test_a_resource_without_a_spec_says_so(performer, executor):
    one, other = performer(), executor()
    one.spec = other.spec = None
    assert str(read_performer(one)[1][0]) == str(read_executor(other)[1][0]) == "spec: is missing"


@pytest.mark.parametrize(("name", "good"), [("a" * 53, True), ("a" * 54, False), ("a.b", False), ("0", True)])
def test_the_name_of_a_performer_must_fit_its_service(performer, name, good):
    _, problems = read_performer(performer(name))
    assert [problem.field for problem in problems] == ([] if good else ["metadata.name"])


@pytest.mark.parametrize(("name", "good"), [("a" * 63, True), ("a" * 64, False)])
def test_the_name_of_an_executor_must_fit_a_label(executor, name, good):
    _, problems = read_executor(executor(name))
    assert [problem.field for problem in problems] == ([] if good else ["metadata.name"])


def test_addresses_that_upstream_uses_are_accepted(performer):
    for address in ("0x123", "0xtest-avs-address", "0x..."):
        assert read_performer(performer(avsAddress=address))[1] == ()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (HourglassConfig(max_concurrent_replacements=-1), "maxConcurrentReplacements"),
        (HourglassConfig(pending_recreate_after="5 minutes"), "pendingRecreateAfter"),
        (HourglassConfig(cluster_domain="not good"), "clusterDomain"),
    ],
)
def test_a_bad_setting_is_named(config, field):
    with pytest.raises(ConfigError, match=f"hourglass.{field}"):
        config.options()


@pytest.mark.parametrize(
    "offer",
    [Offer(resource="not good"), Offer(node_selector={"a": "b c"}), Offer(resources={"not good": 1})],
)
def test_a_bad_entry_of_the_hardware_map_is_named(offer):
    from steersman.operators.hourglass.api.config import HardwareMap

    with pytest.raises(ConfigError, match=r"hourglass.hardwareMap.gpu.a100"):
        HourglassConfig(hardware_map=HardwareMap(gpu={"a100": offer})).options()


@pytest.mark.parametrize(
    ("account", "allowed", "fine"),
    [
        ("", (), True),
        ("hourglass-worker", ("default", "hourglass-*"), True),
        ("cluster-admin", ("default", "hourglass-*"), False),
        ("cluster-admin", ("ns/cluster-admin",), True),
        ("cluster-admin", ("other/cluster-admin",), False),
        ("cluster-admin", ("other/*", "*"), True),
    ],
)
def test_pods_run_as_service_accounts_that_an_administrator_lists(performer, executor, account, allowed, fine):
    worker, _ = read_performer(performer(config={"serviceAccountName": account}))
    assert (account_rejections("ns", worker, allowed) == ()) is fine
    if account:
        runner, _ = read_executor(executor(serviceAccountName=account))
        assert (account_rejections("ns", runner, allowed) == ()) is fine
    for refusal in account_rejections("ns", worker, allowed):
        assert refusal.field == "spec.config.serviceAccountName"
        assert "hourglass.serviceAccounts" in refusal.message
