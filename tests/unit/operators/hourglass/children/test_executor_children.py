"""What an executor consists of, and what it says of itself."""

from __future__ import annotations

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.api.types.apps import Deployment
from steersman.operators.hourglass.api.types import ADOPTED, CONFIG_HASH, KEYS_HASH, ExecutorSpec
from steersman.operators.hourglass.api.validation import read_executor
from steersman.operators.hourglass.children.executor_children import (
    account_objects,
    adopted,
    children_of,
    config_text,
)
from steersman.operators.hourglass.controllers.status import executor_status

NOW = 1_800_000_000.0
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def read(executor):
    spec, problems = read_executor(executor)
    assert not problems, problems
    return spec


def children(executor):
    return children_of(executor, read(executor))


def template(executor):
    return children(executor).deployment["spec"]["template"]


@given(st.data())
def test_the_configuration_survives_any_text_in_every_string(data):
    chains = [
        {"name": name, "rpc": data.draw(TEXTS), "chainId": 1, "taskMailboxAddress": data.draw(TEXTS)}
        for name in data.draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True))
    ]
    config = {
        "aggregatorEndpoint": data.draw(TEXTS),
        "chains": chains,
        "logLevel": data.draw(TEXTS),
        "operatorKeys": {"ecdsa": "k"},
        "kubernetes": {"namespace": data.draw(TEXTS)},
    }
    spec = msgspec.convert({"image": "i", "config": config}, ExecutorSpec)
    parsed = yaml.safe_load(config_text(spec))
    assert parsed == {
        "aggregator_endpoint": config["aggregatorEndpoint"],
        "performer_mode": "kubernetes",
        "log_level": config["logLevel"],
        "chains": [
            {
                "name": chain["name"],
                "rpc": chain["rpc"],
                "chain_id": 1,
                "task_mailbox_address": chain["taskMailboxAddress"],
            }
            for chain in chains
        ],
        "kubernetes": {"namespace": config["kubernetes"]["namespace"]},
    }


def test_keys_are_in_the_secret_and_mounted_and_nowhere_else(executor):
    made = children(executor())
    assert made.secret["metadata"]["name"] == "e-keys"
    others = msgspec.json.encode([made.config_map, made.deployment, made.budget])
    assert b"key-material" not in others
    pod = made.deployment["spec"]["template"]["spec"]
    assert {"name": "keys", "mountPath": "/etc/hourglass/keys", "readOnly": True} in pod["containers"][0][
        "volumeMounts"
    ]
    assert pod["volumes"][1] == {"name": "keys", "secret": {"secretName": "e-keys", "defaultMode": 0o400}}


def test_a_change_of_configuration_or_keys_is_a_change_of_the_template(executor):
    before = template(executor())["metadata"]["annotations"]
    config = template(executor(config={"logLevel": "debug"}))["metadata"]["annotations"]
    keys = template(executor(config={"operatorKeys": {"ecdsa": "other"}}))["metadata"]["annotations"]
    assert (before[CONFIG_HASH] != config[CONFIG_HASH], before[KEYS_HASH] == config[KEYS_HASH]) == (True, True)
    assert (before[CONFIG_HASH] == keys[CONFIG_HASH], before[KEYS_HASH] != keys[KEYS_HASH]) == (True, True)


def test_a_referred_secret_is_mounted_and_none_is_made(executor):
    given_ref = executor(config={"operatorKeys": None, "operatorKeysSecretRef": {"name": "vault"}})
    made = children_of(given_ref, read(given_ref), keys="digest")
    assert made.secret is None
    assert made.deployment["spec"]["template"]["spec"]["volumes"][1]["secret"]["secretName"] == "vault"


def test_the_deployment_is_what_the_original_makes_with_restricted_security_added(executor):
    pod = template(executor())["spec"]
    container = pod["containers"][0]
    assert (container["name"], container["args"]) == ("executor", ["--config=/etc/hourglass/config.yaml"])
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8080}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8080}
    assert (pod["serviceAccountName"], pod["terminationGracePeriodSeconds"]) == ("hourglass-executor", 30)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "securityContext" not in template(executor(podSecurity="Compatible"))["spec"]


def test_two_replicas_lose_at_most_one_to_evictions(executor):
    assert children(executor()).budget is None
    assert children(executor(replicas=2)).budget["spec"]["maxUnavailable"] == 1
    asked = children(executor(disruptionBudget={"minAvailable": "50%"})).budget["spec"]
    assert asked["minAvailable"] == "50%"
    assert "maxUnavailable" not in asked


def live(made, **status):
    body = {**made.deployment, "metadata": {**made.deployment["metadata"], "generation": 1}}
    return msgspec.convert({key: body[key] for key in ("metadata", "spec")} | {"status": status}, Deployment)


def test_a_deployment_of_another_version_keeps_its_template_until_the_executor_changes(executor):
    made = children(executor())
    theirs = live(made)
    theirs.metadata.annotations = None
    kept = adopted(made, theirs)
    assert kept["spec"] == {"replicas": 1}
    theirs.metadata.annotations = kept["metadata"]["annotations"]
    assert adopted(made, theirs) == kept
    assert "template" in adopted(children(executor(config={"logLevel": "debug"})), theirs)["spec"]
    assert ADOPTED not in adopted(children(executor(image="executor:2")), theirs)["metadata"]["annotations"]


def status_of(executor, **status):
    made = children(executor)
    return executor_status(executor, read(executor), live(made, **status), config_hash=made.config_hash, now=NOW)


@pytest.mark.parametrize(
    ("replicas", "status", "phase"),
    [
        (0, {}, "Stopped"),
        (1, {}, "Pending"),
        (1, {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}, "Running"),
        (1, {"observedGeneration": 0, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}, "Pending"),
        (2, {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2}, "Pending"),
    ],
)
def test_the_phase_is_running_only_when_the_newest_template_is(executor, replicas, status, phase):
    assert status_of(executor(replicas=replicas), **status)["phase"] == phase


def test_the_last_condition_is_available_and_equal_facts_write_nothing_new(executor):
    one = executor()
    first = status_of(one)
    assert [condition["type"] for condition in first["conditions"]] == ["Progressing", "Degraded", "Available"]
    one.status = first
    again = executor_status(one, read(one), live(children(one)), config_hash=first["configHash"], now=NOW + 500)
    assert "lastConfigUpdate" not in again
    assert again["conditions"] == first["conditions"]


def test_a_rollout_that_does_not_progress_degrades_the_executor(executor):
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too long"}
    conditions = status_of(executor(), conditions=[stuck])["conditions"]
    assert conditions[1]["reason"] == "ProgressDeadlineExceeded"


def test_executors_may_run_performers_in_their_own_namespace_and_no_other_namespace_is_possible(executor):
    here = account_objects("ns", read(executor()))
    assert [item["kind"] for item in here] == ["ServiceAccount", "Role", "RoleBinding"]
    assert {item["metadata"]["namespace"] for item in here} == {"ns"}
    assert account_objects("ns", read(executor(config={"kubernetes": {"namespace": "ns"}}))) == here
    there = account_objects("ns", read(executor(config={"kubernetes": {"namespace": "kube-system"}})))
    assert [(item["kind"], item["metadata"]["namespace"]) for item in there] == [("ServiceAccount", "ns")]
    assert [one["kind"] for one in account_objects("ns", read(executor(config={"performerMode": "docker"})))] == [
        "ServiceAccount"
    ]
    assert account_objects("ns", read(executor(serviceAccountName="mine"))) == []
