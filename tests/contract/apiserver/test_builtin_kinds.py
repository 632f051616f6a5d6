"""Kinds that few programs use: they exist, and what happens to one of their objects is the same on both servers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from steersman.certificates import Authority
from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.differential.duel import lines
from tests.support.differential.normalize import Normalizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.testing.raw_api import ApiServer, RawResponse
    from tests.support.manifests import Space

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
STREAMS = {"attach", "exec", "log", "portforward", "proxy"}
PODS = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
DEVICE = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.org"}}
MUTATION = {"patchType": "JSONPatch", "jsonPatch": {"expression": '[JSONPatch{op: "remove", path: "/x"}]'}}

# group version, plural -> what an object holds, a change of it, and a status when it has one
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "csidrivers": ("storage.k8s.io/v1", {"spec": {}}, {"spec": {"podInfoOnMount": True}}, {}),
    "csinodes": (
        "storage.k8s.io/v1",
        {"spec": {"drivers": [{"name": "a.example.org", "nodeID": "n"}]}},
        {"spec": {"drivers": []}},
        {},
    ),
    "volumeattachments": (
        "storage.k8s.io/v1",
        {"spec": {"attacher": "a.example.org", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"attached": True},
    ),
    "volumeattributesclasses": (
        "storage.k8s.io/v1",
        {"driverName": "a.example.org", "parameters": {"a": "b"}},
        {"metadata": {"labels": {"a": "b"}}},
        {},
    ),
    "servicecidrs": (
        "networking.k8s.io/v1",
        {"spec": {"cidrs": ["192.168.77.0/24"]}},
        {"metadata": {"labels": {"a": "b"}}},
        {"conditions": []},
    ),
    "ipaddresses": (
        "networking.k8s.io/v1",
        {"spec": {"parentRef": {"resource": "services", "name": "a", "namespace": "b"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {},
    ),
    "validatingadmissionpolicies": (
        "admissionregistration.k8s.io/v1",
        {"spec": {"matchConstraints": {"resourceRules": [PODS]}, "validations": [{"expression": "true"}]}},
        {"spec": {"validations": [{"expression": "1 == 1", "message": "never"}]}},
        {"observedGeneration": 1},
    ),
    "validatingadmissionpolicybindings": (
        "admissionregistration.k8s.io/v1",
        {"spec": {"policyName": "none.example.org", "validationActions": ["Deny"]}},
        {"spec": {"validationActions": ["Audit"]}},
        {},
    ),
    "mutatingadmissionpolicies": (
        "admissionregistration.k8s.io/v1",
        {
            "spec": {
                "matchConstraints": {"resourceRules": [PODS]},
                "mutations": [MUTATION],
                "reinvocationPolicy": "Never",
            }
        },
        {"spec": {"reinvocationPolicy": "IfNeeded"}},
        {},
    ),
    "mutatingadmissionpolicybindings": (
        "admissionregistration.k8s.io/v1",
        {"spec": {"policyName": "none.example.org"}},
        {"spec": {"policyName": "other.example.org"}},
        {},
    ),
    "deviceclasses": (
        "resource.k8s.io/v1",
        {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "a.example.org"'}}]}},
        {"spec": {"selectors": None}},
        {},
    ),
    "resourceslices": (
        "resource.k8s.io/v1",
        {
            "spec": {
                "driver": "a.example.org",
                "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d"}],
            }
        },
        {"spec": {"devices": [{"name": "e"}]}},
        {},
    ),
    "flowschemas": (
        "flowcontrol.apiserver.k8s.io/v1",
        {"spec": {"priorityLevelConfiguration": {"name": "global-default"}}},
        {"spec": {"matchingPrecedence": 9000}},
        {"conditions": []},
    ),
    "prioritylevelconfigurations": (
        "flowcontrol.apiserver.k8s.io/v1",
        {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}},
        {"spec": {"limited": {"nominalConcurrencyShares": 5}}},
        {"conditions": []},
    ),
    "csistoragecapacities": (
        "storage.k8s.io/v1",
        {"storageClassName": "fast", "capacity": "1024Mi"},
        {"capacity": "2Gi"},
        {},
    ),
    "resourceclaims": (
        "resource.k8s.io/v1",
        {"spec": {"devices": {"requests": [DEVICE]}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"reservedFor": []},
    ),
    "resourceclaimtemplates": (
        "resource.k8s.io/v1",
        {"spec": {"spec": {"devices": {"requests": [DEVICE]}}}},
        {"metadata": {"labels": {"a": "b"}}},
        {},
    ),
}
NAMESPACED = {"csistoragecapacities", "resourceclaims", "resourceclaimtemplates"}
NOT_EVALUATED = "does not evaluate them"  # the embedded server, of MutatingAdmissionPolicies
ADOPTED = {"servicecidrs", "flowschemas", "prioritylevelconfigurations"}  # the real server reports on them at once


@pytest.fixture
async def both(real: ApiServer, embedded: ApiServer) -> AsyncIterator[tuple[RawApi, RawApi]]:
    clients = [
        RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) for server in (real, embedded)
    ]
    async with clients[0], clients[1]:
        yield clients[0], clients[1]


async def served(api: RawApi) -> dict[str, dict[str, Any]]:
    """Every built-in resource with its discovery, without subresources that stream or that nodes answer.

    Groups that custom resource definitions make are left out: other tests work on the same servers.
    """
    found = {}
    definitions = (await api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")).body["items"]
    custom = {definition["spec"]["group"] for definition in definitions}
    for root in ("/api", "/apis"):
        for group in (await api.get(root, headers=AGGREGATED)).body["items"]:
            name = group["metadata"].get("name", "")
            if name in custom:
                continue
            for version in group["versions"]:
                for resource in version["resources"]:
                    subresources = resource.pop("subresources", [])
                    kept = [item for item in subresources if item["subresource"] not in STREAMS]
                    found[f"{name}/{version['version']}/{resource['resource']}"] = {**resource, "subs": kept}
    return found


async def test_every_built_in_resource_exists(both: tuple[RawApi, RawApi]):
    theirs, ours = [await served(api) for api in both]
    for resources in (theirs, ours):
        del resources["apiregistration.k8s.io/v1/apiservices"]  # served read-only here
    builtin = {name: resource for name, resource in ours.items() if name in theirs or "." not in name.split("/")[0]}
    assert builtin == theirs


@pytest.mark.parametrize("plural", KINDS)
async def test_an_object_lives_the_same_life_on_both_servers(both: tuple[RawApi, RawApi], plural: str):
    real, embedded = [await life(api, plural) for api in both]
    assert not (difference := "\n".join(lines(real, embedded))), difference


async def life(api: RawApi, plural: str) -> list[Any]:
    """What a server answers to everything that can happen to one object."""
    version, content, change, status = KINDS[plural]
    seen = Normalizer()
    answers: list[Any] = []
    name = "192.168.78.9" if plural == "ipaddresses" else "life.example.org"
    path = f"/apis/{version}/{'namespaces/default/' if plural in NAMESPACED else ''}{plural}"

    def note(answer: RawResponse) -> RawResponse:
        assert answer.status < 500, answer.body
        warnings = tuple(text for text in answer.warnings if NOT_EVALUATED not in text)
        answers.append(seen.answer(answer.status, answer.body, warnings))
        return answer

    named = {"metadata": {"name": name}}
    note(await api.put(f"{path}/{name}", named | content))
    made = note(await api.post(path, named | content))
    assert made.status == 201, made.body
    if plural in ADOPTED:
        await api.delete(f"{path}/{name}")
        return answers[:2]
    kind = {"apiVersion": version, "kind": made.body["kind"]}
    note(await api.put(f"{path}/{name}", made.body | {"metadata": named["metadata"] | {"labels": {"x": "y"}}}))
    note(await api.patch(f"{path}/{name}", change))
    note(await api.patch(f"{path}/{name}", change))
    note(await api.apply(f"{path}/{name}", kind | named | content | {"metadata": {"name": name, "labels": {"z": "1"}}}))
    if status:
        note(await api.patch(f"{path}/{name}/status", {"metadata": {"labels": {"lost": "1"}}, "status": status}))
        note(await api.apply(f"{path}/{name}/status", kind | named | {"status": status}, manager="beta"))
    note(await api.patch(f"{path}/{name}", {"metadata": {"finalizers": ["example.org/hold"]}}))
    note(await api.delete(f"{path}/{name}"))
    note(await api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}))
    await api.post(path, named | content)
    note(await api.delete(f"{path}/{name}"))
    return answers


# Certificate signing requests

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
APPROVED = {"type": "Approved", "status": "True", "reason": "Test"}
DENIED = {"type": "Denied", "status": "True", "reason": "Test"}


def signing_request(name: str, **spec: Any) -> dict[str, Any]:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "someone")])
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM)
    known = {"request": encoded(pem), "signerName": "example.org/signer", "usages": ["client auth"]}
    return {"metadata": {"generateName": f"{name}-"}, "spec": known | spec}


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


async def made(api: RawApi, name: str) -> tuple[str, dict[str, Any]]:
    """The path of a new request, and the request."""
    answer = await api.post(REQUESTS, signing_request(name))
    assert answer.status == 201, answer.body
    return f"{REQUESTS}/{answer.name}", answer.body


async def test_who_asks_for_a_certificate_is_who_wrote_the_request(api: RawApi):
    answer = await api.post(REQUESTS, signing_request("a", username="somebody-else", groups=["everybody"]))
    me = (await api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})).body["status"]["userInfo"]
    assert (answer.body["spec"]["username"], answer.body["spec"]["groups"]) == (me["username"], me["groups"])


async def test_an_approval_adds_a_condition_with_its_times_and_nothing_else(api: RawApi):
    path, request = await made(api, "a")
    spec = {**request["spec"], "signerName": "example.org/other"}
    approved = await api.put(f"{path}/approval", {**request, "spec": spec, "status": {"conditions": [APPROVED]}})
    assert (approved.status, approved.body["spec"]) == (200, request["spec"])
    (condition,) = approved.body["status"]["conditions"]
    assert condition == APPROVED | {
        "lastUpdateTime": condition["lastUpdateTime"],
        "lastTransitionTime": condition["lastUpdateTime"],
    }


async def test_only_the_approval_decides(api: RawApi):
    path, _ = await made(api, "a")
    ignored = await api.patch(path, {"status": {"conditions": [APPROVED]}})
    assert (ignored.status, ignored.body["status"]) == (200, {})
    refused = await api.patch(f"{path}/status", {"status": {"conditions": [APPROVED]}})
    assert [cause[:2] for cause in refused.causes] == [("FieldValueForbidden", "status.conditions")]


async def test_a_decision_cannot_be_taken_back(api: RawApi):
    path, _ = await made(api, "a")
    await api.patch(f"{path}/approval", {"status": {"conditions": [APPROVED]}})
    for conditions in ([], [DENIED]):
        refused = await api.patch(f"{path}/approval", {"status": {"conditions": conditions}})
        assert ("FieldValueForbidden", "status.conditions") in [cause[:2] for cause in refused.causes]
    refused = await api.patch(f"{path}/approval", {"status": {"conditions": [APPROVED, DENIED]}})
    assert [cause[:2] for cause in refused.causes] == [("FieldValueInvalid", "status.conditions")]


async def test_the_status_issues_the_certificate_once(api: RawApi):
    path, _ = await made(api, "a")
    first, second = (encoded(Authority("signer").pem) for _ in range(2))
    await api.patch(f"{path}/approval", {"status": {"conditions": [APPROVED], "certificate": first}})
    assert "certificate" not in (await api.get(path)).body["status"]
    issued = await api.patch(f"{path}/status", {"status": {"certificate": first}})
    assert (issued.status, issued.body["status"]["certificate"]) == (200, first)
    refused = await api.patch(f"{path}/status", {"status": {"certificate": second}})
    assert [cause[:2] for cause in refused.causes] == [("FieldValueForbidden", "status.certificate")]


async def test_the_spec_of_a_request_never_changes(api: RawApi):
    path, request = await made(api, "a")
    changed = await api.patch(path, {"spec": {"usages": ["server auth"]}, "metadata": {"labels": {"a": "b"}}})
    assert (changed.body["spec"], changed.body["metadata"]["labels"]) == (request["spec"], {"a": "b"})


@pytest.mark.parametrize(
    ("field", "value", "cause"),
    [
        ("request", encoded(b"nonsense"), ("FieldValueInvalid", "spec.request")),
        ("usages", [], ("FieldValueRequired", "spec.usages")),
        ("usages", ["dancing"], ("FieldValueNotSupported", "spec.usages[0]")),
        ("usages", ["any", "any"], ("FieldValueDuplicate", "spec.usages[1]")),
        ("signerName", "", ("FieldValueRequired", "spec.signerName")),
        ("signerName", "signer", ("FieldValueInvalid", "spec.signerName")),
        ("expirationSeconds", 5, ("FieldValueInvalid", "spec.expirationSeconds")),
    ],
)
async def test_a_request_that_cannot_be_signed_is_invalid(api: RawApi, field: str, value: Any, cause: tuple[str, str]):
    refused = await api.post(REQUESTS, signing_request("a", **{field: value}))
    assert (refused.status, [found[:2] for found in refused.causes]) == (422, [cause])


async def test_requests_can_be_selected_by_their_signer(api: RawApi):
    await made(api, "a")
    found = await api.get(REQUESTS, fieldSelector="spec.signerName=example.org/nobody")
    assert (found.status, found.names) == (200, [])


async def test_an_autoscaler_of_v1_has_the_default_target_in_both_versions(api: RawApi, ns: Space):
    spec = {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    made = await api.post(
        ns.at("autoscaling/v1", "horizontalpodautoscalers"), {"metadata": {"name": "a"}, "spec": spec}
    )
    assert made.body["spec"]["targetCPUUtilizationPercentage"] == 80
    (entry,) = made.body["metadata"]["managedFields"]
    assert "f:targetCPUUtilizationPercentage" in entry["fieldsV1"]["f:spec"]
    read = await api.get(ns.at("autoscaling/v2", "horizontalpodautoscalers/a"))
    assert read.body["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}
