"""Creating objects: what the server adds, what it refuses, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.manifests import configmap, container, cronjob, deployment, job, pod, secret, service

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Space


async def test_a_created_object_gets_uid_resource_version_time_and_owner_of_its_fields(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "v"}))
    meta = made.body["metadata"]
    assert made.status == 201
    assert (meta["name"], meta["namespace"]) == ("a", ns)
    assert len(meta["uid"]) == 36
    assert meta["resourceVersion"].isdigit()
    assert meta["creationTimestamp"].endswith("Z")
    assert meta["managedFields"] == [
        {
            "manager": "contract",
            "operation": "Update",
            "apiVersion": "v1",
            "time": meta["creationTimestamp"],
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:k": {}}},
        }
    ]
    assert set(made.body) == {"apiVersion", "kind", "metadata", "data"}


async def test_server_set_metadata_in_the_request_is_ignored(api: RawApi, ns: Space):
    sent = configmap("a", uid="11111111-1111-1111-1111-111111111111", creationTimestamp="2001-01-01T00:00:00Z")
    made = await api.post(ns.core("configmaps"), sent)
    assert made.status == 201
    assert made.body["metadata"]["uid"] != sent["metadata"]["uid"]
    assert not made.body["metadata"]["creationTimestamp"].startswith("2001")


async def test_a_resource_version_must_not_be_set_on_create(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", resourceVersion="5"))
    assert (made.status, made.body["message"]) == (500, "resourceVersion should not be set on objects to be created")


async def test_a_dry_run_of_a_create_may_have_a_resource_version(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", resourceVersion="5"), dryRun="All")
    assert (made.status, made.body["metadata"].get("resourceVersion")) == (201, "5")


@pytest.mark.parametrize("version", ["0", "x"])
async def test_a_resource_version_that_names_no_version_is_ignored_on_create(api: RawApi, ns: Space, version: str):
    made = await api.post(ns.core("configmaps"), configmap("a", resourceVersion=version))
    assert made.status == 201
    assert made.body["metadata"]["resourceVersion"] not in {"0", "x"}


async def test_an_invalid_object_is_reported_before_its_resource_version(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("Not_Valid", resourceVersion="5"))
    assert (made.status, made.body["reason"]) == (422, "Invalid")


async def test_a_resource_version_is_reported_before_an_object_that_exists(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    again = await api.post(ns.core("configmaps"), configmap("a", resourceVersion="5"))
    assert again.status == 500


async def test_kind_and_version_may_be_left_out(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), {"metadata": {"name": "a"}})
    assert made.status == 201
    assert (made.body["kind"], made.body["apiVersion"]) == ("ConfigMap", "v1")


async def test_the_same_name_twice_is_already_exists(api: RawApi, ns: Space):
    await api.post(ns.core("configmaps"), configmap("a"))
    again = await api.post(ns.core("configmaps"), configmap("a"))
    assert again.status == 409
    assert again.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "a" already exists',
        "reason": "AlreadyExists",
        "details": {"name": "a", "kind": "configmaps"},
        "code": 409,
    }


async def test_already_exists_of_a_named_group_says_the_group(api: RawApi, ns: Space):
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    again = await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    assert again.body["message"] == 'deployments.apps "web" already exists'
    assert again.body["details"] == {"name": "web", "group": "apps", "kind": "deployments"}


async def test_generate_name_appends_five_characters(api: RawApi, ns: Space):
    made = [await api.post(ns.core("configmaps"), configmap(None, generateName="job-")) for _ in range(3)]
    names = {answer.name for answer in made}
    assert len(names) == 3
    assert all(name.startswith("job-") and len(name) == 9 for name in names)
    assert all(answer.body["metadata"]["generateName"] == "job-" for answer in made)


async def test_an_object_without_any_name_is_refused(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), {"metadata": {}})
    assert made.status == 422
    assert (
        made.body["message"]
        == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )
    assert made.body["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


async def test_dry_run_answers_as_if_and_stores_nothing(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "v"}), dryRun="All")
    assert made.status == 201
    assert made.body["metadata"]["uid"]
    assert "resourceVersion" not in made.body["metadata"]
    assert (await api.get(ns.core("configmaps/a"))).status == 404


async def test_dry_run_still_validates(api: RawApi, ns: Space):
    assert (await api.post(ns.core("configmaps"), configmap("A_b"), dryRun="All")).status == 422


async def test_only_all_is_a_dry_run(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a"), dryRun="Some")
    assert made.status == 422
    assert made.body["reason"] == "Invalid"
    assert made.causes == [("FieldValueNotSupported", "dryRun", 'Unsupported value: ["Some"]: supported values: "All"')]


async def test_a_wrong_namespace_in_the_body_is_a_bad_request(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", namespace="elsewhere"))
    assert (made.status, made.body["reason"]) == (400, "BadRequest")
    assert (
        made.body["message"] == "the namespace of the provided object does not match the namespace sent on the request"
    )


async def test_a_namespace_that_does_not_exist_is_not_found(api: RawApi):
    made = await api.post("/api/v1/namespaces/nowhere/configmaps", configmap("a"))
    assert made.status == 404
    assert made.body["message"] == 'namespaces "nowhere" not found'
    assert made.body["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_another_kind_in_the_body_is_a_bad_request(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), secret("a"))
    assert (made.status, made.body["reason"]) == (400, "BadRequest")
    assert "cannot be handled as a ConfigMap" in made.body["message"]


async def test_another_version_in_the_body_is_a_bad_request(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a") | {"apiVersion": "v2"})
    assert (made.status, made.body["reason"]) == (400, "BadRequest")


async def test_another_version_of_the_same_group_is_a_bad_request(api: RawApi, ns: Space):
    made = await api.post(ns.at("apps/v1", "deployments"), deployment("a") | {"apiVersion": "apps/v1beta1"})
    assert made.status == 400
    assert made.body["message"] == (
        "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)"
    )


@pytest.mark.parametrize("name", ["A", "a_b", "-a", "a" * 254, "a..b"])
async def test_a_name_must_be_a_dns_subdomain(api: RawApi, ns: Space, name: str):
    made = await api.post(ns.core("configmaps"), configmap(name))
    assert (made.status, made.body["reason"]) == (422, "Invalid")
    (cause,) = made.causes
    assert cause[:2] == ("FieldValueInvalid", "metadata.name")
    assert cause[2].startswith(f'Invalid value: "{name[:100]}')


async def test_the_text_for_a_bad_name_explains_the_rule(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("A"))
    rule = (
        'Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '
        "'-' or '.', "
        "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )
    assert made.body["message"] == f'ConfigMap "A" is invalid: metadata.name: {rule}'
    assert made.body["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": rule, "field": "metadata.name"}
    ]


async def test_a_service_name_must_be_a_dns_label(api: RawApi, ns: Space):
    made = await api.post(ns.core("services"), service("we.b"))
    assert made.status == 422
    assert made.causes == [("FieldValueInvalid", "metadata.name", 'Invalid value: "we.b": must not contain dots')]


@pytest.mark.parametrize(
    ("labels", "part"),
    [
        ({"a b": "c"}, "metadata.labels"),
        ({"a": "c d"}, "metadata.labels"),
        ({"x/y/z": "c"}, "metadata.labels"),
        ({"a": "v" * 64}, "metadata.labels"),
        ({"UPPER.example/" + "n" * 64: "v"}, "metadata.labels"),
    ],
)
async def test_bad_labels_are_refused(api: RawApi, ns: Space, labels: dict[str, str], part: str):
    made = await api.post(ns.core("configmaps"), configmap("a", labels=labels))
    assert made.status == 422
    assert {cause[1] for cause in made.causes} == {part}


async def test_too_many_bytes_of_annotations_are_refused(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", annotations={"big": "x" * 262145}))
    assert made.status == 422
    assert made.causes == [("FieldValueTooLong", "metadata.annotations", "Too long: may not be more than 262144 bytes")]


async def test_a_finalizer_without_a_domain_is_refused(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", finalizers=["nodomain"]))
    assert made.status == 422
    assert made.causes[0][1] == "metadata.finalizers[0]"


async def test_configmap_keys_are_checked(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"a b": "c"}))
    assert made.status == 422
    (cause,) = made.causes
    assert cause[:2] == ("FieldValueInvalid", "data[a b]")


async def test_an_object_over_the_size_limit_is_refused(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "x" * (3 * 1024 * 1024)}))
    assert made.status == 413
    assert made.body["reason"] == "RequestEntityTooLarge"
    assert made.body["message"] == "Request entity too large: limit is 3145728"


async def test_a_configmap_over_one_megabyte_is_refused(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "x" * (1024 * 1024 + 1)}))
    assert made.status == 422
    assert made.causes == [("FieldValueTooLong", "[]", "Too long: may not be more than 1048576 bytes")]


async def test_string_data_of_a_secret_becomes_data(api: RawApi, ns: Space):
    made = await api.post(ns.core("secrets"), secret("a", {"user": "me"}))
    assert made.body["data"] == {"user": "bWU="}
    assert made.body["type"] == "Opaque"
    assert "stringData" not in made.body


async def test_a_service_gets_a_cluster_ip_from_the_range(api: RawApi, ns: Space):
    made = await api.post(ns.core("services"), service("web"))
    spec = made.body["spec"]
    assert made.status == 201
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["clusterIP"].startswith("10.")
    assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert made.body["status"] == {"loadBalancer": {}}
    rest = {key: value for key, value in spec.items() if key not in {"clusterIP", "clusterIPs", "ports", "selector"}}
    assert rest == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }


async def test_a_headless_service_keeps_none(api: RawApi, ns: Space):
    made = await api.post(ns.core("services"), service("web", spec={"clusterIP": "None"}))
    assert made.body["spec"]["clusterIP"] == "None"
    assert made.body["spec"]["clusterIPs"] == ["None"]


async def test_a_node_port_service_gets_a_port_of_the_range(api: RawApi, ns: Space):
    made = await api.post(ns.core("services"), service("web", spec={"type": "NodePort"}))
    assert 30000 <= made.body["spec"]["ports"][0]["nodePort"] <= 32767


async def test_one_port_of_two_protocols_gets_one_node_port(api: RawApi, ns: Space):
    ports = [{"name": "a", "port": 53, "protocol": "TCP"}, {"name": "b", "port": 53, "protocol": "UDP"}]
    made = await api.post(ns.core("services"), service("dns", spec={"type": "NodePort", "ports": ports}))
    assert len({port["nodePort"] for port in made.body["spec"]["ports"]}) == 1


async def test_a_dry_run_takes_no_address(api: RawApi, ns: Space):
    shown = [await api.post(ns.core("services"), service("web"), dryRun="All") for _ in range(2)]
    assert len({answer.body["spec"]["clusterIP"] for answer in shown}) == 1


async def test_two_services_never_share_a_cluster_ip(api: RawApi, ns: Space):
    made = [await api.post(ns.core("services"), service(f"s{number}")) for number in range(5)]
    assert len({answer.body["spec"]["clusterIP"] for answer in made}) == 5


async def test_a_deployment_is_defaulted(api: RawApi, ns: Space):
    made = await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    assert made.status == 201
    assert made.body["metadata"]["generation"] == 1
    assert made.body["spec"] == {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/app:1",
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File",
                        "imagePullPolicy": "IfNotPresent",
                    }
                ],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst",
                "securityContext": {},
                "schedulerName": "default-scheduler",
            },
        },
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    assert made.body["status"] == {}


async def test_what_works_otherwise_than_it_looks_is_warned_about(api: RawApi, ns: Space):
    parts = [
        container("a", ports=[{"containerPort": 80}], resources={"limits": {"memory": "500m"}}),
        container("b", ports=[{"containerPort": 80}]),
    ]
    made = await api.post(ns.at("apps/v1", "deployments"), deployment("web", pod_spec={"containers": parts}))
    at = "spec.template.spec.containers"
    assert sorted(made.warnings) == [
        f'{at}[0].resources.limits[memory]: fractional byte value "500m" is invalid, must be an integer',
        f"{at}[1].ports[0]: duplicate port definition with {at}[0].ports[0]",
    ]


async def test_a_status_in_a_create_is_dropped(api: RawApi, ns: Space):
    made = await api.post(ns.at("apps/v1", "deployments"), deployment("web") | {"status": {"replicas": 3}})
    assert made.body["status"] == {}


async def test_a_deployment_whose_selector_misses_its_template_is_refused(api: RawApi, ns: Space):
    made = await api.post(
        ns.at("apps/v1", "deployments"), deployment("web", spec={"selector": {"matchLabels": {"app": "other"}}})
    )
    assert made.status == 422
    assert made.causes == [
        (
            "FieldValueInvalid",
            "spec.template.metadata.labels",
            'Invalid value: {"app":"web"}: `selector` does not match template `labels`',
        )
    ]


async def test_an_empty_deployment_lists_everything_it_lacks(api: RawApi, ns: Space):
    made = await api.post(ns.at("apps/v1", "deployments"), {"metadata": {"name": "web"}})
    assert made.status == 422
    assert made.causes == [
        ("FieldValueRequired", "spec.selector", "Required value"),
        (
            "FieldValueInvalid",
            "spec.template.metadata.labels",
            "Invalid value: null: `selector` does not match template `labels`",
        ),
        ("FieldValueRequired", "spec.template.spec.containers", "Required value"),
    ]


async def test_a_pod_is_pending_and_has_the_defaults_of_admission(api: RawApi, pods: Space):
    made = await api.post(pods.core("pods"), pod("a"))
    assert made.status == 201, made.body
    spec, status = made.body["spec"], made.body["status"]
    assert status == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert (spec["priority"], spec["preemptionPolicy"], spec["enableServiceLinks"]) == (0, "PreemptLowerPriority", True)
    assert spec["tolerations"] == [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        },
    ]
    assert made.body["metadata"]["generation"] == 1


async def test_a_pod_that_wants_a_token_gets_a_projected_volume(api: RawApi, pods: Space):
    made = await api.post(pods.core("pods"), pod("a", spec={"automountServiceAccountToken": None}))
    (volume,) = made.body["spec"]["volumes"]
    (mount,) = made.body["spec"]["containers"][0]["volumeMounts"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    assert mount == {
        "name": volume["name"],
        "readOnly": True,
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }


async def test_a_pod_of_an_unknown_service_account_is_refused(api: RawApi, pods: Space):
    made = await api.post(pods.core("pods"), pod("a", spec={"serviceAccountName": "nobody"}))
    assert made.status == 403
    assert made.body["message"] == (
        f'pods "a" is forbidden: error looking up service account {pods}/nobody: serviceaccount "nobody" not found'
    )


async def test_a_pod_without_containers_or_image_is_refused(api: RawApi, pods: Space):
    none = await api.post(pods.core("pods"), pod("a", spec={"containers": []}))
    assert none.causes == [("FieldValueRequired", "spec.containers", "Required value")]
    no_image = await api.post(pods.core("pods"), pod("a", spec={"containers": [{"name": "x"}]}))
    assert no_image.causes == [("FieldValueRequired", "spec.containers[0].image", "Required value")]


async def test_a_service_lists_every_bad_port(api: RawApi, ns: Space):
    ports = [{"port": 0, "name": "a"}, {"port": 70000}]
    made = await api.post(ns.core("services"), service("w", spec={"ports": ports}))
    assert made.causes == [
        ("FieldValueInvalid", "spec.ports[0].port", "Invalid value: 0: must be between 1 and 65535, inclusive"),
        ("FieldValueInvalid", "spec.ports[0].targetPort", "Invalid value: 0: must be between 1 and 65535, inclusive"),
        ("FieldValueRequired", "spec.ports[1].name", "Required value"),
        ("FieldValueInvalid", "spec.ports[1].port", "Invalid value: 70000: must be between 1 and 65535, inclusive"),
        (
            "FieldValueInvalid",
            "spec.ports[1].targetPort",
            "Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
    ]


async def test_a_cron_job_with_a_bad_schedule_is_refused(api: RawApi, ns: Space):
    made = await api.post(ns.at("batch/v1", "cronjobs"), cronjob("a", "nope"))
    assert made.status == 422
    assert [cause[:2] for cause in made.causes] == [("FieldValueInvalid", "spec.schedule")]


async def test_an_owner_reference_needs_name_and_uid(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", ownerReferences=[{"apiVersion": "v1", "kind": "X"}]))
    assert made.causes == [
        ("FieldValueInvalid", "metadata.ownerReferences.name", 'Invalid value: "": must not be empty'),
        ("FieldValueInvalid", "metadata.ownerReferences.uid", 'Invalid value: "": must not be empty'),
    ]


async def test_a_job_selects_its_pods_by_its_own_uid(api: RawApi, ns: Space):
    made = await api.post(ns.at("batch/v1", "jobs"), job("a"))
    uid = made.body["metadata"]["uid"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": uid,
        "job-name": "a",
    }
    assert made.body["metadata"]["labels"] == labels
    assert made.body["spec"]["template"]["metadata"]["labels"] == labels
    assert made.body["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


async def test_the_field_manager_is_the_user_agent_up_to_the_slash(api: RawApi, ns: Space):
    made = await api.post(
        ns.core("configmaps"), configmap("a", {"k": "v"}), headers={"User-Agent": "my-tool/v1.2 (linux)"}
    )
    assert made.body["metadata"]["managedFields"][0]["manager"] == "my-tool"


async def test_a_field_manager_may_be_named(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a", {"k": "v"}), fieldManager="me")
    assert made.body["metadata"]["managedFields"][0]["manager"] == "me"


async def test_a_field_manager_of_more_than_128_characters_is_refused(api: RawApi, ns: Space):
    made = await api.post(ns.core("configmaps"), configmap("a"), fieldManager="m" * 129)
    assert made.status == 422
    assert made.causes == [("FieldValueTooLong", "fieldManager", "Too long: may not be more than 128 bytes")]
