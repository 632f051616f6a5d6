"""The pod of a performer: the same spec gives the same pod, and every field of the spec reaches it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.api.types.pods import Pod
from steersman.kube.api.validation import label_value_errors
from steersman.operators.hourglass.api.config import HardwareMap, Offer
from steersman.operators.hourglass.api.scheduling import Scheduling
from steersman.operators.hourglass.api.validation import read_performer
from steersman.operators.hourglass.children.pod import avs_label, ordered_environment, pod_template, template_hash

MAP = HardwareMap(
    gpu={
        "nvidia-a100": Offer(
            node_selector={"nvidia.com/gpu.product": "A100"},
            tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
        )
    },
    tee={"sgx": Offer(resources={"sgx.intel.com/epc": "10Mi"}, runtime_class="kata", node_selector={"sgx": "yes"})},
)


def template(performer, known=MAP, inherited=None, **spec):
    read, problems = read_performer(performer(**spec))
    assert not problems, problems
    made, more = pod_template("p", read, known, inherited)
    assert not more, more
    return made


def refused(performer, known=MAP, **spec):
    read, problems = read_performer(performer(**spec))
    if read is not None:
        problems += pod_template("p", read, known)[1]
    assert problems
    return "; ".join(map(str, problems))


def test_the_smallest_performer_listens_on_9090_with_tcp_probes_and_no_token(performer):
    spec = template(performer).spec
    container = spec["containers"][0]
    assert container["ports"] == [{"name": "grpc", "containerPort": 9090, "protocol": "TCP"}]
    assert container["livenessProbe"] == {"tcpSocket": {"port": 9090}, "initialDelaySeconds": 30, "periodSeconds": 10}
    assert container["readinessProbe"] == {"tcpSocket": {"port": 9090}, "initialDelaySeconds": 5, "periodSeconds": 5}
    assert spec["automountServiceAccountToken"] is False
    assert "securityContext" not in spec


CHANGES = [
    {"image": "avs:2"},
    {"imagePullPolicy": "Always"},
    {"config": {"grpcPort": 9091}},
    {"config": {"environment": {"A": "1"}}},
    {"config": {"environmentFrom": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}},
    {"config": {"args": ["--fast"]}},
    {"config": {"command": ["/run"]}},
    {"config": {"serviceAccountName": "worker"}},
    {"config": {"probe": "GRPC"}},
    {"resources": {"requests": {"cpu": "1"}}},
    {"resources": {"limits": {"memory": "1Gi"}}},
    {"scheduling": {"nodeSelector": {"a": "b"}}},
    {"scheduling": {"tolerations": [{"key": "k", "operator": "Exists"}]}},
    {"scheduling": {"runtimeClass": "gvisor"}},
    {"scheduling": {"priorityClassName": "high"}},
    {"scheduling": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}}},
    {"hardwareRequirements": {"gpuCount": 1}},
    {"hardwareRequirements": {"teeRequired": True, "teeType": "sgx"}},
    {"hardwareRequirements": {"customLabels": {"zone": "x"}}},
    {"imagePullSecrets": [{"name": "pull"}]},
    {"podSecurity": "Restricted"},
    {"avsAddress": "0x2"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_field_that_makes_the_pod_changes_its_hash(performer, change):
    assert template(performer, **change).hash != template(performer).hash


@pytest.mark.parametrize("change", [{"replicas": 3}, {"strategy": "BlueGreen"}, {"version": "9"}], ids=str)
def test_fields_that_do_not_make_the_pod_do_not_change_its_hash(performer, change):
    assert template(performer, **change).hash == template(performer).hash


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_pod_survives_the_type_it_is_sent_as(performer, change):
    made = template(performer, **change).pod("x", "ns")
    pod = msgspec.convert(made, Pod)
    assert msgspec.to_builtins(pod.spec)["containers"][0]["name"] == "performer"
    assert pod.spec.runtime_class_name == made["spec"].get("runtimeClassName")


def test_environment_is_ordered_by_name_but_for_references():
    made = ordered_environment(
        {"URL": "http://$(HOST):$(PORT)", "PORT": "1", "HOST": "h", "A": "$(URL)/a", "Z": "$(Z)"}
    )
    assert [item["name"] for item in made] == ["HOST", "PORT", "URL", "A", "Z"]


@given(st.dictionaries(st.text("ABC", min_size=1, max_size=2), st.text("ABC$()", max_size=8), max_size=6))
def test_environment_loses_nothing_and_does_not_depend_on_the_order_it_was_written_in(environment):
    made = ordered_environment(environment)
    assert {item["name"]: item["value"] for item in made} == environment
    assert made == ordered_environment(dict(reversed(environment.items())))


@given(st.text())
def test_any_address_makes_a_valid_label(address):
    assert label_value_errors(avs_label(address)) == []


def test_an_address_becomes_the_label_the_original_gives_it():
    assert avs_label("0xAbC_def") == "0xabc-def"


def test_a_mapped_gpu_is_counted_selected_and_tolerated(performer):
    spec = template(performer, hardwareRequirements={"gpuType": "nvidia-a100", "gpuCount": 2}).spec
    assert spec["containers"][0]["resources"] == {
        "limits": {"nvidia.com/gpu": "2"},
        "requests": {"nvidia.com/gpu": "2"},
    }
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "A100"}
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_a_gpu_that_is_not_mapped_is_asked_for_as_the_original_does(performer):
    spec = template(performer, HardwareMap(), hardwareRequirements={"gpuType": "t4", "gpuCount": 1}).spec
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/t4": "1"}
    spec = template(performer, HardwareMap(), hardwareRequirements={"gpuCount": 1}).spec
    assert spec["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert "resources" not in template(performer, hardwareRequirements={"gpuType": "t4"}).spec["containers"][0]


def test_a_tee_asks_for_its_label_and_for_what_the_map_adds(performer):
    tee = {"teeRequired": True, "teeType": "sgx"}
    assert template(performer, HardwareMap(), hardwareRequirements=tee).spec["nodeSelector"] == {
        "intel.feature.node.kubernetes.io/sgx": "true"
    }
    spec = template(performer, hardwareRequirements=tee).spec
    assert (spec["nodeSelector"], spec["runtimeClassName"]) == ({"sgx": "yes"}, "kata")
    assert spec["containers"][0]["resources"]["limits"] == {"sgx.intel.com/epc": "10Mi"}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"hardwareRequirements": {"teeRequired": True}}, "spec.hardwareRequirements.teeType"),
        ({"hardwareRequirements": {"teeRequired": True, "teeType": "magic"}}, "one of sev, sgx, tdx"),
        ({"hardwareRequirements": {"gpuType": "a b/c", "gpuCount": 1}}, "spec.hardwareRequirements.gpuType"),
        (
            {
                "hardwareRequirements": {"customLabels": {"zone": "a"}},
                "scheduling": {"nodeSelector": {"zone": "b"}},
            },
            'zone must be both "b" and "a"',
        ),
        (
            {
                "hardwareRequirements": {"gpuType": "other", "gpuCount": 1},
                "resources": {"limits": {"nvidia.com/gpu": 2}},
            },
            "requests nvidia.com/gpu and hardwareRequirements nvidia.com/other",
        ),
        (
            {
                "scheduling": {
                    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
                    "affinity": {"nodeAffinity": {}},
                }
            },
            "spec.scheduling.nodeAffinity",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_two_answers_to_one_question_are_refused_and_named(performer, spec, named):
    assert named in refused(performer, **spec)


def test_the_executors_defaults_fill_what_the_performer_leaves_empty(performer):
    inherited = msgspec.convert(
        {"nodeSelector": {"pool": "avs"}, "runtimeClass": "gvisor", "tolerations": [{"key": "dedicated"}]}, Scheduling
    )
    spec = template(performer, inherited=inherited, scheduling={"runtimeClass": "kata"}).spec
    assert spec["nodeSelector"] == {"pool": "avs"}
    assert spec["tolerations"] == [{"key": "dedicated"}]
    assert spec["runtimeClassName"] == "kata"


def test_both_spellings_of_node_affinity_mean_the_same(performer):
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    old = template(performer, scheduling={"nodeAffinity": rule})
    new = template(performer, scheduling={"affinity": {"nodeAffinity": rule}})
    assert old.hash == new.hash
    assert old.spec["affinity"] == {"nodeAffinity": rule}


def test_a_restricted_pod_meets_the_standard(performer):
    spec = template(performer, podSecurity="Restricted").spec
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


POWERS = {
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "hostUsers": False,
    "nodeName": "control-plane",
    "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
    "volumeMounts": [{"name": "root", "mountPath": "/host"}],
    "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}},
    "initContainers": [{"name": "i", "image": "i", "securityContext": {"privileged": True}}],
    "serviceAccountName": "cluster-admin",
}


def test_a_field_that_a_performer_does_not_have_gives_its_pod_no_power_over_the_node(performer):
    assert template(performer, **POWERS) == template(performer)
    assert template(performer, scheduling=POWERS) == template(performer)
    account = {"serviceAccountName": "hourglass-worker"}
    assert template(performer, config={**POWERS, **account}) == template(performer, config=account)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_pod_has_only_fields_that_give_no_power_over_the_node(performer, change):
    made = template(performer, **change).spec
    pod = {"affinity", "containers", "imagePullSecrets", "nodeSelector", "priorityClassName", "restartPolicy"}
    pod |= {"runtimeClassName", "securityContext", "serviceAccountName", "automountServiceAccountToken", "tolerations"}
    assert made.keys() <= pod
    (container,) = made["containers"]
    container_fields = {"args", "command", "env", "image", "imagePullPolicy", "livenessProbe", "name", "ports"}
    assert container.keys() <= container_fields | {"readinessProbe", "resources", "securityContext"}
    assert not (container.get("securityContext") or {}).get("privileged")
    assert not any("hostPort" in port for port in container["ports"])


def test_the_order_of_fields_does_not_change_the_hash_and_a_value_does():
    assert template_hash({"a": 1, "b": [1, 2]}) == template_hash({"b": [1, 2], "a": 1})
    assert template_hash({"a": 1, "b": [1, 2]}) != template_hash({"a": 1, "b": [2, 1]})
