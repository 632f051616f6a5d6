"""What may not be stored: the causes of a refusal, by reason and field, for objects that people and fuzzers write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.manifests import container, cronjob, job, pod, service

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Manifest, Space

REQUIRED, INVALID, FORBIDDEN = "FieldValueRequired", "FieldValueInvalid", "FieldValueForbidden"
NOT_SUPPORTED, DUPLICATE = "FieldValueNotSupported", "FieldValueDuplicate"
LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [container()]}}
HTTP = {"httpGet": {"port": 80}}


def causes(answer: RawResponse) -> set[tuple[str, str]]:
    assert answer.status == 422, answer.body
    return {(reason, field) for reason, field, _ in answer.causes}


async def refused(api: RawApi, path: str, body: Manifest) -> set[tuple[str, str]]:
    return causes(await api.post(path, body, dryRun="All"))


def running(**fields: Any) -> Manifest:
    return pod("web", spec={"containers": [container(**fields)]})


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
async def test_a_probe_needs_a_handler(api: RawApi, pods: Space, probe: str):
    path = f"spec.containers[0].{probe}"
    assert await refused(api, pods.core("pods"), running(**{probe: {}})) == {(REQUIRED, path)}
    two = running(**{probe: HTTP | {"tcpSocket": {"port": 80}}})
    assert await refused(api, pods.core("pods"), two) == {(FORBIDDEN, f"{path}.tcpSocket")}


@pytest.mark.parametrize(
    ("probe", "reason", "field"),
    [
        ({"exec": {}}, REQUIRED, "exec.command"),
        ({"httpGet": {}}, INVALID, "httpGet.port"),
        ({"httpGet": {"port": "Not_Good"}}, INVALID, "httpGet.port"),
        ({"httpGet": {"port": 80, "scheme": "x"}}, NOT_SUPPORTED, "httpGet.scheme"),
        ({"httpGet": {"port": 80, "httpHeaders": [{"name": "a b"}]}}, INVALID, "httpGet.httpHeaders"),
        ({"tcpSocket": {}}, INVALID, "tcpSocket.port"),
        ({"grpc": {"port": 70000}}, INVALID, "grpc.port"),
        (HTTP | {"initialDelaySeconds": -1}, INVALID, "initialDelaySeconds"),
        (HTTP | {"timeoutSeconds": -1}, INVALID, "timeoutSeconds"),
        (HTTP | {"periodSeconds": -1}, INVALID, "periodSeconds"),
        (HTTP | {"failureThreshold": -1}, INVALID, "failureThreshold"),
        (HTTP | {"successThreshold": 2}, INVALID, "successThreshold"),
        (HTTP | {"terminationGracePeriodSeconds": 0}, INVALID, "terminationGracePeriodSeconds"),
    ],
)
async def test_a_probe_has_numbers_that_make_sense(api: RawApi, pods: Space, probe: Manifest, reason: str, field: str):
    found = await refused(api, pods.core("pods"), running(livenessProbe=probe))
    assert found == {(reason, f"spec.containers[0].livenessProbe.{field}")}


@pytest.mark.parametrize(
    ("hook", "reason", "field"),
    [
        ({"preStop": {}}, REQUIRED, "preStop"),
        ({"postStart": {}}, REQUIRED, "postStart"),
        ({"preStop": {"exec": {}}}, REQUIRED, "preStop.exec.command"),
        ({"preStop": {"exec": {"command": ["a"]}, **HTTP}}, FORBIDDEN, "preStop.httpGet"),
        ({"preStop": {"sleep": {"seconds": -1}}}, INVALID, "preStop.sleep"),
        ({"preStop": {"sleep": {"seconds": 99}}}, INVALID, "preStop.sleep"),
    ],
)
async def test_a_lifecycle_hook_has_one_handler(api: RawApi, pods: Space, hook: Manifest, reason: str, field: str):
    found = await refused(api, pods.core("pods"), running(lifecycle=hook))
    assert found == {(reason, f"spec.containers[0].lifecycle.{field}")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"secret": {}}, {(REQUIRED, "secret.secretName")}),
        ({"secret": {"secretName": "a", "defaultMode": 0o1777}}, {(INVALID, "secret.defaultMode")}),
        (
            {"secret": {"secretName": "a", "items": [{}]}},
            {(REQUIRED, "secret.items[0].key"), (REQUIRED, "secret.items[0].path")},
        ),
        (
            {"secret": {"secretName": "a", "items": [{"key": "a", "path": "../x"}]}},
            {(INVALID, "secret.items[0].path")},
        ),
        ({"configMap": {}}, {(REQUIRED, "configMap.name")}),
        ({"configMap": {"name": "a", "defaultMode": -1}}, {(INVALID, "configMap.defaultMode")}),
        ({"hostPath": {}}, {(REQUIRED, "hostPath.path")}),
        ({"hostPath": {"path": "/a/../b"}}, {(INVALID, "hostPath.path")}),
        ({"hostPath": {"path": "/a", "type": "x"}}, {(NOT_SUPPORTED, "hostPath.type")}),
        ({"persistentVolumeClaim": {}}, {(REQUIRED, "persistentVolumeClaim.claimName")}),
        ({"nfs": {}}, {(REQUIRED, "nfs.server"), (REQUIRED, "nfs.path"), (INVALID, "nfs.path")}),
        ({"csi": {}}, {(REQUIRED, "csi.driver")}),
        ({"ephemeral": {}}, {(REQUIRED, "ephemeral.volumeClaimTemplate")}),
        ({"image": {}}, {(REQUIRED, "image.reference")}),
        ({"iscsi": {}}, {(REQUIRED, "iscsi.targetPortal"), (REQUIRED, "iscsi.iqn")}),
        ({"emptyDir": {"sizeLimit": "-1"}}, {(FORBIDDEN, "emptyDir.sizeLimit")}),
        ({"projected": {"sources": [{"secret": {}}]}}, {(REQUIRED, "projected.sources[0].secret.name")}),
        (
            {"projected": {"sources": [{"secret": {"name": "a"}, "configMap": {"name": "b"}}]}},
            {(FORBIDDEN, "projected.sources[0]")},
        ),
        ({"projected": {"sources": [{"serviceAccountToken": {}}]}}, {(REQUIRED, "projected.path")}),
        ({"downwardAPI": {"items": [{"path": "a"}]}}, {(REQUIRED, "downwardAPI")}),
    ],
)
async def test_a_volume_says_where_its_content_comes_from(
    api: RawApi, pods: Space, source: Manifest, expected: set[tuple[str, str]]
):
    found = await refused(api, pods.core("pods"), pod("web", spec={"volumes": [{"name": "v", **source}]}))
    assert found == {(reason, f"spec.volumes[0].{field}") for reason, field in expected}


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"envFrom": [{}]}, INVALID, "envFrom"),
        ({"envFrom": [{"secretRef": {}}]}, REQUIRED, "envFrom[0].secretRef.name"),
        ({"envFrom": [{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]}, INVALID, "envFrom"),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]}, REQUIRED, "env[0].valueFrom.fieldRef.fieldPath"),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {}}}]},
            REQUIRED,
            "env[0].valueFrom.resourceFieldRef.resource",
        ),
    ],
)
async def test_a_variable_has_one_complete_source(api: RawApi, pods: Space, fields: Manifest, reason: str, field: str):
    assert await refused(api, pods.core("pods"), running(**fields)) == {(reason, f"spec.containers[0].{field}")}


# Scheduling


@pytest.mark.parametrize(
    ("toleration", "reason", "field"),
    [
        ({}, INVALID, "operator"),
        ({"key": "a", "operator": "x"}, NOT_SUPPORTED, "operator"),
        ({"key": "a", "operator": "Exists", "value": "b"}, INVALID, "operator"),
        ({"key": "a", "value": "a b"}, INVALID, "operator"),
        ({"key": "a b", "operator": "Exists"}, INVALID, "key"),
        ({"key": "a", "operator": "Exists", "effect": "x"}, NOT_SUPPORTED, "effect"),
        ({"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}, INVALID, "effect"),
    ],
)
async def test_a_toleration_matches_something(api: RawApi, pods: Space, toleration: Manifest, reason: str, field: str):
    found = await refused(api, pods.core("pods"), pod("web", spec={"tolerations": [toleration]}))
    assert found == {(reason, f"spec.tolerations[0].{field}")}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"schedulingGates": [{}]}, (INVALID, "spec.schedulingGates[0]")),
        ({"schedulingGates": [{"name": "a/b"}, {"name": "a/b"}]}, (DUPLICATE, "spec.schedulingGates[1]")),
        ({"schedulingGates": [{"name": "a/b"}], "nodeName": "n"}, (FORBIDDEN, "spec.nodeName")),
    ],
)
async def test_scheduling_gates_have_names_and_hold_the_pod(
    api: RawApi, pods: Space, spec: Manifest, expected: tuple[str, str]
):
    assert await refused(api, pods.core("pods"), pod("web", spec=spec)) == {expected}


SCHEDULED = {
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "schedulingGates": [{"name": "a/b"}, {"name": "c/d"}],
}


async def rescheduled(api: RawApi, pods: Space, **changes: Any) -> RawResponse:
    """What a server says to another scheduling of a pod; tolerations that admission added stay."""
    made = await api.post(pods.core("pods"), pod("web", spec=SCHEDULED))
    spec = made.body["spec"]
    changed = {key: change(spec[key]) for key, change in changes.items()}
    return await api.put(pods.core("pods/web"), made.body | {"spec": spec | changed})


async def test_tolerations_are_only_added(api: RawApi, pods: Space):
    added = await rescheduled(api, pods, tolerations=lambda known: [*known, {"key": "z", "operator": "Exists"}])
    assert added.status == 200
    for change in (lambda known: known[1:], lambda known: [known[0] | {"key": "b"}, *known[1:]]):
        spec = added.body["spec"] | {"tolerations": change(added.body["spec"]["tolerations"])}
        refusal = await api.put(pods.core("pods/web"), added.body | {"spec": spec})
        assert causes(refusal) == {(FORBIDDEN, "spec.tolerations")}


async def test_the_default_tolerations_of_a_pod_come_back_when_an_update_leaves_them_out(api: RawApi, pods: Space):
    made = await api.post(pods.core("pods"), pod("web"))
    wanted = {"key": "z", "operator": "Exists"}
    changed = await api.put(pods.core("pods/web"), made.body | {"spec": made.body["spec"] | {"tolerations": [wanted]}})
    assert changed.status == 200
    assert changed.body["spec"]["tolerations"] == [wanted, *made.body["spec"]["tolerations"]]


async def test_only_the_seconds_of_a_toleration_change(api: RawApi, pods: Space):
    changed = await rescheduled(api, pods, tolerations=lambda known: [known[0] | {"tolerationSeconds": 9}, *known[1:]])
    assert changed.status == 200


async def test_scheduling_gates_are_only_removed(api: RawApi, pods: Space):
    removed = await rescheduled(api, pods, schedulingGates=lambda known: known[:1])
    assert removed.status == 200
    spec = removed.body["spec"] | {"schedulingGates": [{"name": "a/b"}, {"name": "e/f"}]}
    refusal = await api.put(pods.core("pods/web"), removed.body | {"spec": spec})
    assert causes(refusal) == {(FORBIDDEN, "spec.schedulingGates[1].name")}


async def test_a_pod_without_gates_never_gets_one(api: RawApi, pods: Space):
    made = await api.post(pods.core("pods"), pod("web"))
    spec = made.body["spec"] | {"schedulingGates": [{"name": "a/b"}]}
    refusal = await api.put(pods.core("pods/web"), made.body | {"spec": spec})
    assert causes(refusal) == {(FORBIDDEN, "spec.schedulingGates[0].name")}


async def test_a_gated_pod_may_become_pickier_about_its_node(api: RawApi, pods: Space):
    made = await api.post(pods.core("pods"), pod("web", spec=SCHEDULED | {"nodeSelector": {"a": "b"}}))
    more = await api.patch(pods.core("pods/web"), {"spec": {"nodeSelector": {"c": "d"}}})
    assert (made.status, more.status) == (201, 200)
    refusal = await api.patch(pods.core("pods/web"), {"spec": {"nodeSelector": {"a": None}}})
    assert causes(refusal) == {(INVALID, "spec.nodeSelector")}


# Storage

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUME = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {(REQUIRED, "spec.accessModes"), (REQUIRED, "spec.resources[storage]")}),
        (CLAIM | {"accessModes": ["x"]}, {(NOT_SUPPORTED, "spec.accessModes")}),
        (CLAIM | {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}, {(FORBIDDEN, "spec.accessModes")}),
        (CLAIM | {"resources": {"requests": {"storage": "0"}}}, {(INVALID, "spec.resources[storage]")}),
        (CLAIM | {"resources": {"requests": {"storage": "-1"}}}, {(INVALID, "spec.resources[storage]")}),
        (CLAIM | {"volumeMode": "x"}, {(NOT_SUPPORTED, "spec.volumeMode")}),
        (CLAIM | {"storageClassName": "X_"}, {(INVALID, "spec.storageClassName")}),
        (
            CLAIM | {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            {(REQUIRED, "spec.selector.matchExpressions[0].values")},
        ),
    ],
)
async def test_a_claim_says_how_much_and_how(api: RawApi, ns: Space, spec: Manifest, expected: set[tuple[str, str]]):
    body = {"metadata": {"name": "data"}, "spec": spec}
    assert await refused(api, ns.core("persistentvolumeclaims"), body) == expected


async def test_a_claim_keeps_what_it_asked_for(api: RawApi, ns: Space):
    path = ns.core("persistentvolumeclaims/data")
    await api.post(ns.core("persistentvolumeclaims"), {"metadata": {"name": "data"}, "spec": CLAIM})
    for change in ({"accessModes": ["ReadWriteMany"]}, {"resources": {"requests": {"storage": "2Gi"}}}):
        assert causes(await api.patch(path, {"spec": change})) == {(FORBIDDEN, "spec")}
    for field in ("storageClassName", "volumeName"):
        assert (await api.patch(path, {"spec": {field: "fast"}})).status == 200


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (VOLUME, {(REQUIRED, "spec")}),
        (VOLUME | {"hostPath": {}}, {(REQUIRED, "spec.hostPath.path")}),
        (VOLUME | {"hostPath": {"path": "/a"}, "nfs": {"server": "a", "path": "/a"}}, {(FORBIDDEN, "spec.nfs")}),
        (VOLUME | {"hostPath": {"path": "/a"}, "accessModes": []}, {(REQUIRED, "spec.accessModes")}),
        (VOLUME | {"hostPath": {"path": "/a"}, "capacity": {"storage": "0"}}, {(INVALID, "spec.capacity[storage]")}),
        (
            VOLUME | {"hostPath": {"path": "/a"}, "persistentVolumeReclaimPolicy": "x"},
            {(NOT_SUPPORTED, "spec.persistentVolumeReclaimPolicy")},
        ),
    ],
)
async def test_a_persistent_volume_has_one_source_and_a_size(
    api: RawApi, spec: Manifest, expected: set[tuple[str, str]]
):
    body = {"metadata": {"name": "data"}, "spec": spec}
    assert await refused(api, "/api/v1/persistentvolumes", body) == expected


# Counts


@pytest.mark.parametrize(
    ("plural", "spec", "field"),
    [
        ("deployments", {"replicas": -5}, "replicas"),
        ("deployments", {"minReadySeconds": -1}, "minReadySeconds"),
        ("deployments", {"revisionHistoryLimit": -1}, "revisionHistoryLimit"),
        ("replicasets", {"replicas": -5}, "replicas"),
        ("statefulsets", {"replicas": -5}, "replicas"),
        ("statefulsets", {"ordinals": {"start": -1}}, "ordinals.start"),
        (
            "statefulsets",
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": -1}}},
            "updateStrategy.rollingUpdate.partition",
        ),
        ("daemonsets", {"minReadySeconds": -1}, "minReadySeconds"),
    ],
)
async def test_counts_of_workloads_are_not_negative(api: RawApi, ns: Space, plural: str, spec: Manifest, field: str):
    body = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE} | spec}
    assert await refused(api, ns.at("apps/v1", plural), body) == {(INVALID, f"spec.{field}")}


@pytest.mark.parametrize(
    "field",
    ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"],
)
async def test_counts_of_jobs_are_not_negative(api: RawApi, ns: Space, field: str):
    found = await refused(api, ns.at("batch/v1", "jobs"), job("a", spec={field: -1}))
    assert found == {(INVALID, f"spec.{field}")}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"replicas": -5, "selector": LABELS, "template": TEMPLATE}, {(INVALID, "spec.replicas")}),
        ({"minReadySeconds": -5, "selector": LABELS, "template": TEMPLATE}, {(INVALID, "spec.minReadySeconds")}),
        ({}, {(REQUIRED, "spec.selector"), (REQUIRED, "spec.template")}),
        ({"selector": {"a": "b"}, "template": TEMPLATE}, {(INVALID, "spec.template.metadata.labels")}),
    ],
)
async def test_a_replication_controller_selects_what_it_makes(
    api: RawApi, ns: Space, spec: Manifest, expected: set[tuple[str, str]]
):
    body = {"metadata": {"name": "web"}, "spec": spec}
    assert await refused(api, ns.core("replicationcontrollers"), body) == expected


async def test_other_counts_are_not_negative(api: RawApi, ns: Space):
    affinity = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": -1}}}
    field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    assert await refused(api, ns.core("services"), service("a", spec=affinity)) == {(INVALID, field)}
    quota = {"metadata": {"name": "a"}, "spec": {"hard": {"pods": "-1"}}}
    assert await refused(api, ns.core("resourcequotas"), quota) == {(INVALID, "spec.hard[pods]")}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": -1, "periodSeconds": 5}]}}
    scaler = {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, "behavior": rules}}
    found = await refused(api, ns.at("autoscaling/v2", "horizontalpodautoscalers"), scaler)
    assert found == {(INVALID, "spec.behavior.scaleUp.policies[0].value")}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("storage.k8s.io/v1/storageclasses", {}, (REQUIRED, "provisioner")),
        ("node.k8s.io/v1/runtimeclasses", {}, (REQUIRED, "handler")),
        ("discovery.k8s.io/v1/namespaces/default/endpointslices", {}, (REQUIRED, "addressType")),
        (
            "networking.k8s.io/v1/namespaces/default/networkpolicies",
            {"spec": {"podSelector": {}, "ingress": [{"from": [{}]}]}},
            (REQUIRED, "spec.ingress[0].from[0]"),
        ),
        (
            "networking.k8s.io/v1/namespaces/default/networkpolicies",
            {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": -1}]}]}},
            (INVALID, "spec.ingress[0].ports[0].port"),
        ),
        (
            "networking.k8s.io/v1/namespaces/default/networkpolicies",
            {"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 80, "endPort": 5}]}]}},
            (INVALID, "spec.egress[0].ports[0].endPort"),
        ),
    ],
)
async def test_what_a_kind_cannot_do_without_is_required(
    api: RawApi, path: str, body: Manifest, expected: tuple[str, str]
):
    assert await refused(api, f"/apis/{path}", {"metadata": {"name": "a"}} | body) == {expected}


# Schedules and numbers


@pytest.mark.parametrize("schedule", ["@every 1h", "@every 90m", "0 0 31 2 *"])
async def test_a_schedule_of_intervals_or_of_a_day_that_never_comes_is_accepted(api: RawApi, ns: Space, schedule: str):
    made = await api.post(ns.at("batch/v1", "cronjobs"), cronjob("a", schedule), dryRun="All")
    assert made.status == 201


@pytest.mark.parametrize("number", ["1_0", " 1", "\uff11", "1.0", "0x1", "1e1", "", "-", "99999999999999999999"])
async def test_a_number_in_a_query_is_decimal_digits(api: RawApi, ns: Space, number: str):
    for answer in (
        await api.get(ns.core("configmaps"), limit=number),
        await api.get(ns.core("configmaps"), timeoutSeconds=number),
        await api.delete(ns.core("configmaps/a"), gracePeriodSeconds=number),
    ):
        assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("number", ["01", "+1", "-1"])
async def test_a_number_in_a_query_may_have_a_sign_and_zeros(api: RawApi, ns: Space, number: str):
    assert (await api.get(ns.core("configmaps"), limit=number)).status == 200
