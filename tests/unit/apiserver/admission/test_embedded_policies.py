"""What only the embedded server shows of policies: annotations in the request log, and what it cannot evaluate."""

from __future__ import annotations

import json

import pytest

from steersman.apiserver import EmbeddedServer
from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.admission_policies import REGISTRATION, PolicyInstaller, validations
from tests.support.manifests import Space, configmap

NS = Space("default")


@pytest.fixture
async def server():
    async with EmbeddedServer() as server:
        yield server


@pytest.fixture
async def api(server):
    async with RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api:
        yield api


@pytest.fixture
def policies(api):
    return PolicyInstaller(api, NS)


async def test_audit_annotations_are_in_the_request_log(server, api, policies):
    annotation = {"key": "note", "valueExpression": "'it is ' + object.metadata.name"}
    spec = validations({"expression": "false", "message": "no"}, auditAnnotations=[annotation])
    name = await policies.install("noted", spec, {"validationActions": ["Audit"]})
    assert (await api.post(NS.core("configmaps"), configmap("a"))).status == 201
    annotations = server.requests[-1].annotations
    assert annotations[f"{name}/note"] == "it is a"
    assert json.loads(annotations["validation.policy.admission.k8s.io/validation_failure"]) == [
        {
            "message": "no",
            "policy": name,
            "binding": f"{name}-b0",
            "expressionIndex": 0,
            "validationActions": ["Audit"],
        }
    ]


async def test_the_values_of_an_annotation_under_several_bindings_are_joined(server, api, policies):
    for limit in ("1", "2"):
        await api.post(NS.core("configmaps"), configmap(f"limit-{limit}", {"limit": limit}))
    annotation = {"key": "limit", "valueExpression": "string(params.data.limit)"}
    spec = validations("true", auditAnnotations=[annotation], paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    refs = [{"paramRef": {"name": f"limit-{n}", "parameterNotFoundAction": "Deny"}} for n in "112"]
    name = await policies.install("joined", spec, *refs)
    await api.post(NS.core("configmaps"), configmap("a"))
    assert server.requests[-1].annotations == {f"{name}/limit": "1, 2"}


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (validations("authorizer.group('').resource('pods').check('list').allowed()"), "authorizer: supported by"),
        (validations("true", variables=[{"name": "a", "expression": "object.?spec"}]), "orValue()"),
    ],
)
async def test_what_this_server_cannot_evaluate_is_rejected_and_named(api, spec, word):
    made = await api.post(f"{REGISTRATION}/validatingadmissionpolicies", {"metadata": {"name": "a"}, "spec": spec})
    assert made.status == 422
    assert word in made.body["message"]


async def test_a_policy_that_loops_too_long_is_stopped_and_denies(api, policies):
    await policies.install("slow", validations("object.data.all(a, object.data.all(b, object.data.all(c, c != '')))"))
    few, many = (configmap(f"of-{size}", {f"key{n}": "" for n in range(size)}) for size in (5, 50))
    assert (await api.post(NS.core("configmaps"), few)).status == 201
    answer = await api.post(NS.core("configmaps"), many)
    assert answer.status == 422
    assert "cost limit exceeded" in answer.body["message"]


async def test_a_mutating_policy_is_stored_with_a_warning_that_it_is_not_evaluated(api):
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}
    match = validations("true")["matchConstraints"]
    spec = {"matchConstraints": match, "mutations": [patch], "reinvocationPolicy": "Never"}
    made = await api.post(f"{REGISTRATION}/mutatingadmissionpolicies", {"metadata": {"name": "a"}, "spec": spec})
    assert made.status == 201, made.body
    assert [text for text in made.warnings if "does not evaluate" in text]
