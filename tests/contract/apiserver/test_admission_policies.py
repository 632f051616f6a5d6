"""ValidatingAdmissionPolicies: which requests they judge, what they decide, and what follows from it.

A real server takes up policies about once a second, so each test installs all its policies before it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing import eventually
from steersman.testing.raw_api import MERGE_PATCH
from tests.support.admission_policies import REGISTRATION, PolicyInstaller, policy_rule, validations
from tests.support.manifests import configmap, deployment, secret

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Manifest, Space

POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
BINDINGS = f"{REGISTRATION}/validatingadmissionpolicybindings"


@pytest.fixture
async def policies(api: RawApi, ns: Space):
    installer = PolicyInstaller(api, ns)
    yield installer
    await installer.remove()


def for_case(name: str) -> Manifest:
    """Limits a policy for ConfigMaps to the objects of one case."""
    return {"resourceRules": [policy_rule("configmaps")], "objectSelector": {"matchLabels": {"case": name}}}


def denial(answer: RawResponse) -> tuple[int, str, str]:
    """Code, reason and what the policy says."""
    message = answer.body["message"].split("denied request: ", 1)[-1]
    return answer.status, answer.body["reason"], message


# Each expression is false for the ConfigMap of the test exactly where `denied` is true.
EXPRESSIONS: dict[str, tuple[Manifest, bool]] = {
    "object": (validations("object.data.mode == 'fast'"), False),
    "false": (validations("object.data.mode == 'slow'"), True),
    "second": (validations("true", "object.data.mode == 'slow'"), True),
    "no-old": (validations("oldObject == null"), False),
    "request": (validations("request.operation == 'CREATE' && request.resource.resource == 'configmaps'"), False),
    "kind": (validations("request.kind.kind == 'ConfigMap' && request.kind.version == 'v1'"), False),
    "user": (validations("request.userInfo.username == 'nobody'"), True),
    "dry-run": (validations("!request.dryRun"), False),
    "namespace": (validations("namespaceObject.metadata.name == request.namespace"), False),
    "label": (validations("'kubernetes.io/metadata.name' in namespaceObject.metadata.labels"), False),
    "phase": (validations("namespaceObject.status.phase == 'Terminating'"), True),
    "type": (validations("object.kind == 'ConfigMap' && object.apiVersion == 'v1'"), False),
    "optional": (validations("object.?data['none'].orValue('x') == 'x'"), False),
    "functions": (validations("quantity(object.data.size).isLessThan(quantity('2Gi'))"), False),
    "variable": (
        validations(
            "variables.count == 2 && variables.mode == 'fast'",
            variables=[
                {"name": "data", "expression": "object.data"},
                {"name": "count", "expression": "size(variables.data)"},
                {"name": "mode", "expression": "variables.data.mode"},
            ],
        ),
        False,
    ),
    "time": (
        validations(
            "variables.later - variables.start == variables.wait",
            variables=[
                {"name": "start", "expression": "timestamp('2026-01-01T00:00:00Z')"},
                {"name": "wait", "expression": "duration('90s')"},
                {"name": "later", "expression": "variables.start + variables.wait"},
            ],
        ),
        False,
    ),
    "unused-error": (
        validations("true", variables=[{"name": "broken", "expression": "object.nothing.below"}]),
        False,
    ),
    "absorbed-error": (
        validations("true || variables.broken", variables=[{"name": "broken", "expression": "1 / int(0) == 1"}]),
        False,
    ),
    "variable-error": (
        validations("variables.broken == 1", variables=[{"name": "broken", "expression": "object.nothing.below"}]),
        True,
    ),
    "ignored-error": (validations("object.nothing.below == 1", failurePolicy="Ignore"), False),
    "error": (validations("object.nothing.below == 1"), True),
    "ignored-but-false": (validations("false", failurePolicy="Ignore"), True),
    "excluded": (validations("false", matchConditions=[{"name": "no", "expression": "false"}]), False),
    "included": (validations("false", matchConditions=[{"name": "a", "expression": "has(object.data)"}]), True),
    "condition-error": (
        validations("true", matchConditions=[{"name": "a", "expression": "object.nothing.below == 1"}]),
        True,
    ),
    "condition-error-ignored": (
        validations(
            "false",
            failurePolicy="Ignore",
            matchConditions=[{"name": "a", "expression": "object.nothing.below == 1"}],
        ),
        False,
    ),
    "no-params": (validations("params == null", paramKind={"apiVersion": "v1", "kind": "Secret"}), False),
    "unknown-kind": (validations("true", paramKind={"apiVersion": "none.example.org/v1", "kind": "None"}), True),
    "unknown-kind-ignored": (
        validations("false", failurePolicy="Ignore", paramKind={"apiVersion": "none.example.org/v1", "kind": "None"}),
        False,
    ),
}


async def test_expressions_decide_about_a_create(policies: PolicyInstaller):
    for name, (spec, _) in EXPRESSIONS.items():
        await policies.install(name, {**spec, "matchConstraints": for_case(name)})
    await policies.ready()
    found = {}
    for name in EXPRESSIONS:
        labelled = configmap(f"of-{name}", {"mode": "fast", "size": "1Gi"}, labels={"case": name})
        found[name] = (await policies.create(labelled)).status
    assert found == {name: 422 if denied else 201 for name, (_, denied) in EXPRESSIONS.items()}


async def test_a_denial_has_the_message_the_reason_and_the_code_of_its_validation(policies: PolicyInstaller):
    cases: dict[str, tuple[Manifest, tuple[int, str, str]]] = {
        "plain": ({"expression": " false "}, (422, "Invalid", "failed expression: false")),
        "message": ({"expression": "false", "message": " no "}, (422, "Invalid", "no")),
        "spoken": (
            {"expression": "false", "message": "no", "messageExpression": "'not ' + object.metadata.name"},
            (422, "Invalid", "not of-spoken"),
        ),
        "silent": (
            {"expression": "false", "message": "no", "messageExpression": "string(object.nothing)"},
            (422, "Invalid", "no"),
        ),
        "lines": (
            {"expression": "false", "messageExpression": "'a\\nb'"},
            (422, "Invalid", "failed expression: false"),
        ),
        "forbidden": ({"expression": "false", "reason": "Forbidden"}, (403, "Forbidden", "failed expression: false")),
        "large": (
            {"expression": "false", "reason": "RequestEntityTooLarge", "message": "big"},
            (413, "RequestEntityTooLarge", "big"),
        ),
    }
    names = {
        name: await policies.install(name, validations(validation, matchConstraints=for_case(name)))
        for name, (validation, _) in cases.items()
    }
    await policies.ready()
    answers = {name: await policies.create(configmap(f"of-{name}", labels={"case": name})) for name in cases}
    assert {name: denial(answer) for name, answer in answers.items()} == {
        name: expected for name, (_, expected) in cases.items()
    }
    answer, name = answers["plain"], names["plain"]
    said = f"ValidatingAdmissionPolicy '{name}' with binding '{name}-b0' denied request: failed expression: false"
    assert answer.body["message"] == f'configmaps "of-plain" is forbidden: {said}'
    assert answer.body["details"] == {"name": "of-plain", "kind": "configmaps", "causes": [{"message": said}]}


async def test_a_policy_judges_what_its_constraints_and_its_binding_match(policies: PolicyInstaller, ns: Space):
    here = {"matchLabels": {"kubernetes.io/metadata.name": str(ns)}}
    elsewhere = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
    configmaps = [policy_rule("configmaps")]
    cases: dict[str, tuple[Manifest, list[Manifest], bool]] = {
        "all": ({}, [{}], True),
        "no-binding-matches": ({}, [{"matchResources": {"namespaceSelector": elsewhere}}], False),
        "one-binding-matches": ({}, [{"matchResources": {"namespaceSelector": elsewhere}}, {}], True),
        "binding-here": ({}, [{"matchResources": {"namespaceSelector": here}}], True),
        "binding-of-secrets": ({}, [{"matchResources": {"resourceRules": [policy_rule("secrets")]}}], False),
        "binding-excludes": ({}, [{"matchResources": {"excludeResourceRules": configmaps}}], False),
        "elsewhere": ({"namespaceSelector": elsewhere}, [{}], False),
        "secrets": ({"resourceRules": [policy_rule("secrets")]}, [{}], False),
        "stars": ({"resourceRules": [policy_rule("*", group="*", version="*")]}, [{}], True),
        "updates": ({"resourceRules": [policy_rule("configmaps", operations=["UPDATE"])]}, [{}], False),
        "excluded": ({"excludeResourceRules": configmaps}, [{}], False),
        "excluded-name": ({"excludeResourceRules": [policy_rule("configmaps", resourceNames=["b"])]}, [{}], True),
        "named": ({"resourceRules": [policy_rule("configmaps", resourceNames=["of-named"])]}, [{}], True),
        "other-name": ({"resourceRules": [policy_rule("configmaps", resourceNames=["b"])]}, [{}], False),
        "cluster": ({"resourceRules": [policy_rule("configmaps", scope="Cluster")]}, [{}], False),
        "namespaced": ({"resourceRules": [policy_rule("configmaps", scope="Namespaced")]}, [{}], True),
    }
    for name, (match, bindings, _) in cases.items():
        spec = validations("false", matchConstraints={**for_case(name), **match})
        await policies.install(name, spec, *bindings)
    await policies.ready()
    found = {name: (await policies.create(configmap(f"of-{name}", labels={"case": name}))).status for name in cases}
    assert found == {name: 422 if denied else 201 for name, (_, _, denied) in cases.items()}


async def test_a_binding_without_its_policy_and_a_policy_without_a_binding_decide_nothing(
    api: RawApi, policies: PolicyInstaller
):
    name = await policies.install("lonely", validations("false", matchConstraints=for_case("lonely")))
    await api.delete(f"{BINDINGS}/{name}-b0")
    await policies.install("orphan", validations("false", matchConstraints=for_case("orphan")), {"policyName": "none"})
    await policies.ready()
    for case in ("lonely", "orphan"):
        assert (await policies.create(configmap(f"of-{case}", labels={"case": case}))).status == 201


async def test_updates_patches_and_deletes_are_judged_with_the_stored_object(
    api: RawApi, ns: Space, policies: PolicyInstaller
):
    grows = "request.operation != 'UPDATE' || int(object.data.count) > int(oldObject.data.count)"
    kept = "request.operation != 'DELETE' || (object == null && oldObject.data.count == '9')"
    await policies.install("transition", validations(grows, kept))
    await policies.ready()
    path = ns.core("configmaps/a")
    assert (await policies.create(configmap("a", {"count": "5"}))).status == 201

    async def count(value: str) -> int:
        return (await api.patch(path, {"data": {"count": value}}, MERGE_PATCH)).status

    assert await count("4") == 422
    assert (await api.put(path, configmap("a", {"count": "5"}))).status == 422
    assert await count("6") == 200
    assert (await api.delete(path)).status == 422
    assert (await api.delete(ns.core("configmaps"), fieldSelector="metadata.name=a")).status == 422
    assert await count("9") == 200
    assert (await api.delete(path)).status == 200


async def test_subresources_are_judged_when_a_rule_names_them(api: RawApi, ns: Space, policies: PolicyInstaller):
    rules = [policy_rule("deployments/scale", "deployments/status", group="apps")]
    small = "request.subResource != 'scale' || object.spec.replicas < 3"
    spec = validations(small, matchConstraints={"resourceRules": rules})
    await policies.install("small", spec)
    await policies.ready()
    assert (await api.post(ns.at("apps/v1", "deployments"), deployment("web", replicas=5))).status == 201
    path = ns.at("apps/v1", "deployments/web")
    assert (await api.patch(path, {"spec": {"replicas": 6}}, MERGE_PATCH)).status == 200
    assert (await api.patch(f"{path}/scale", {"spec": {"replicas": 7}}, MERGE_PATCH)).status == 422
    assert (await api.patch(f"{path}/scale", {"spec": {"replicas": 2}}, MERGE_PATCH)).status == 200
    assert (await api.patch(f"{path}/status", {"status": {"replicas": 9}}, MERGE_PATCH)).status == 200


async def test_a_policy_of_another_version_sees_the_object_in_that_version(
    api: RawApi, ns: Space, policies: PolicyInstaller
):
    first = [policy_rule("horizontalpodautoscalers", group="autoscaling")]
    small = "object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage < 50"
    asked = "request.kind.version == 'v1' && request.requestKind.version == 'v2'"
    spec = validations(f"{small} && {asked}", matchConstraints={"resourceRules": first})
    await policies.install("equivalent", spec)
    exact = {"resourceRules": first, "matchPolicy": "Exact"}
    await policies.install("exact", validations("false", matchConstraints=exact))
    await policies.ready()

    def autoscaler(percent: int) -> Manifest:
        target = {"type": "Utilization", "averageUtilization": percent}
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec = {"scaleTargetRef": reference, "maxReplicas": 3, "metrics": [metric]}
        return {"metadata": {"name": f"at-{percent}"}, "spec": spec}

    path = ns.at("autoscaling/v2", "horizontalpodautoscalers")
    assert [(await api.post(path, autoscaler(percent))).status for percent in (40, 60)] == [201, 422]


async def test_a_denial_is_an_error_a_warning_or_an_annotation_as_the_binding_says(policies: PolicyInstaller):
    for actions in (["Warn"], ["Audit"], ["Warn", "Audit"], ["Deny", "Audit"]):
        case = "-".join(actions).lower()
        spec = validations({"expression": "false", "message": "no"}, matchConstraints=for_case(case))
        await policies.install(case, spec, {"validationActions": actions})
    await policies.ready()

    async def answer(case: str) -> tuple[int, bool]:
        made = await policies.create(configmap(f"of-{case}", labels={"case": case}))
        said = f"Validation failed for ValidatingAdmissionPolicy '{case}-"
        return made.status, any(text.startswith(said) and text.endswith(": no") for text in made.warnings)

    assert await answer("warn") == (201, True)
    assert await answer("audit") == (201, False)
    assert await answer("warn-audit") == (201, True)
    assert await answer("deny-audit") == (422, False)


async def test_audit_annotations_are_evaluated_and_deny_when_they_fail(policies: PolicyInstaller):
    def annotated(case: str, expression: str, **spec: Any) -> Manifest:
        annotation = {"key": "note", "valueExpression": expression}
        match = for_case(case)
        return {"matchConstraints": match, "auditAnnotations": [annotation], **spec}

    await policies.install("noted", annotated("noted", "'it is ' + object.metadata.name"))
    await policies.install("null", annotated("null", "null"))
    await policies.install("broken", annotated("broken", "string(object.nothing)"), {"validationActions": ["Audit"]})
    await policies.install("ignored", annotated("ignored", "string(object.nothing)", failurePolicy="Ignore"))
    await policies.ready()
    cases = ("noted", "null", "broken", "ignored")
    found = [(await policies.create(configmap(f"of-{case}", labels={"case": case}))).status for case in cases]
    assert found == [201, 201, 422, 201]


async def test_parameters_come_by_name_or_selector(api: RawApi, ns: Space, policies: PolicyInstaller):
    for name in ("low", "high"):
        made = secret(name, labels={"limit": "yes", "size": name})
        assert (await api.post(ns.core("secrets"), made)).status == 201
    kind = {"apiVersion": "v1", "kind": "Secret"}
    below = "params.metadata.name != 'low' || int(object.data.size) <= 1"

    def ref(**fields: Any) -> Manifest:
        return {"paramRef": {"parameterNotFoundAction": "Deny", **fields}}

    by_label = {"matchLabels": {"limit": "yes"}}
    cases: dict[str, tuple[Manifest, bool]] = {
        "high": (ref(name="high"), False),
        "low": (ref(name="low"), True),
        "both": (ref(selector=by_label), True),
        "selected": (ref(selector={"matchLabels": {"size": "high"}}), False),
        "elsewhere": (ref(name="low", namespace="default"), True),
        "missing": (ref(name="none"), True),
        "missing-allowed": (ref(name="none", parameterNotFoundAction="Allow"), False),
        "none-selected": (ref(selector={"matchLabels": {"size": "none"}}, parameterNotFoundAction="Allow"), False),
    }
    for name, (binding, _) in cases.items():
        await policies.install(name, validations(below, paramKind=kind, matchConstraints=for_case(name)), binding)
    conditional = validations(
        "false",
        paramKind=kind,
        matchConstraints=for_case("condition"),
        matchConditions=[{"name": "low", "expression": "params.metadata.name == 'low'"}],
    )
    await policies.install("condition", conditional, ref(name="high"))
    await policies.ready()
    found = {}
    for name in (*cases, "condition"):
        labelled = configmap(f"of-{name}", {"size": "5"}, labels={"case": name})
        found[name] = (await policies.create(labelled)).status
    assert found == {name: 422 if denied else 201 for name, (_, denied) in cases.items()} | {"condition": 201}


async def test_a_policy_ends_with_its_binding(api: RawApi, policies: PolicyInstaller):
    name = await policies.install("brief", validations("false"))
    await policies.ready()
    assert (await policies.create(configmap("a"), dryRun="All")).status == 422
    assert (await api.delete(f"{BINDINGS}/{name}-b0")).status == 200

    async def passes() -> bool:
        return bool((await policies.create(configmap("a"), dryRun="All")).status == 201)

    await eventually(passes)


INVALID, REQUIRED = "FieldValueInvalid", "FieldValueRequired"
UNSUPPORTED, DUPLICATE = "FieldValueNotSupported", "FieldValueDuplicate"
VARIABLE = {"name": "a", "expression": "1"}


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"validations": [{"expression": "object."}]}, [(INVALID, "validations[0].expression")]),
        ({"validations": [{"expression": " "}]}, [(REQUIRED, "validations[0].expression")]),
        ({"validations": [{"expression": "1 + 1"}]}, [(INVALID, "validations[0].expression")]),
        ({"validations": [{"expression": "unknown"}]}, [(INVALID, "validations[0].expression")]),
        ({"validations": [{"expression": "params.a == 1"}]}, [(INVALID, "validations[0].expression")]),
        ({"validations": [{"expression": "variables.a == 1"}]}, [(INVALID, "validations[0].expression")]),
        ({"validations": [{"expression": "request.unknown == 1"}]}, [(INVALID, "validations[0].expression")]),
        (
            {"validations": [{"expression": "namespaceObject.metadata.uid == ''"}]},
            [(INVALID, "validations[0].expression")],
        ),
        (
            {"validations": [{"expression": "true", "reason": "Unauthorized"}]},
            [(UNSUPPORTED, "validations[0].reason")],
        ),
        ({"validations": [{"expression": "true", "message": " "}]}, [(INVALID, "validations[0].message")]),
        ({"validations": [{"expression": "true", "message": "a\nb"}]}, [(INVALID, "validations[0].message")]),
        (
            {"validations": [{"expression": "true", "messageExpression": "1"}]},
            [(INVALID, "validations[0].messageExpression")],
        ),
        (
            {"validations": [{"expression": "true", "messageExpression": " "}]},
            [(INVALID, "validations[0].messageExpression")],
        ),
        ({"validations": []}, [(REQUIRED, "validations"), (REQUIRED, "auditAnnotations")]),
        ({"failurePolicy": "Sometimes"}, [(UNSUPPORTED, "failurePolicy")]),
        ({"paramKind": {"kind": "Secret"}}, [(REQUIRED, "paramKind.apiVersion")]),
        ({"paramKind": {"apiVersion": "v1"}}, [(REQUIRED, "paramKind.kind")]),
        ({"paramKind": {"apiVersion": "a/b/c", "kind": "A"}}, [(INVALID, "paramKind.apiVersion")]),
        ({"paramKind": {"apiVersion": "V_/1", "kind": "a b"}}, None),
        ({"matchConstraints": None}, [(REQUIRED, "matchConstraints")]),
        ({"matchConstraints": {}}, [(REQUIRED, "matchConstraints.resourceRules")]),
        (
            {"matchConstraints": {"resourceRules": [policy_rule("a", operations=["LIST"])]}},
            [(UNSUPPORTED, "matchConstraints.resourceRules[0].operations[0]")],
        ),
        (
            {"matchConstraints": {"resourceRules": [policy_rule("a", resourceNames=["b", "b", "c/d"])]}},
            [
                (DUPLICATE, "matchConstraints.resourceRules[0].resourceNames[1]"),
                (INVALID, "matchConstraints.resourceRules[0].resourceNames[2]"),
            ],
        ),
        (
            {"matchConstraints": {"resourceRules": [policy_rule("a")], "excludeResourceRules": [policy_rule()]}},
            [(REQUIRED, "matchConstraints.excludeResourceRules[0].resources")],
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "variables.a == 1"}], "variables": [VARIABLE]},
            [(INVALID, "matchConditions[0].expression")],
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "params == null"}]},
            [(INVALID, "matchConditions[0].expression")],
        ),
        ({"variables": [{"name": "a b", "expression": "1"}]}, [(INVALID, "variables[0].name")]),
        ({"variables": [{"name": "for", "expression": "1"}]}, [(INVALID, "variables[0].name")]),
        ({"variables": [{"name": "", "expression": "1"}]}, [(REQUIRED, "variables[0].name")]),
        ({"variables": [{"name": "a", "expression": " "}]}, [(REQUIRED, "variables[0].expression")]),
        ({"variables": [{"name": "a", "expression": "b"}]}, [(INVALID, "variables[0].expression")]),
        (
            {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]},
            [(INVALID, "variables[0].expression")],
        ),
        (
            {"variables": [VARIABLE], "validations": [{"expression": "variables.a == 'text'"}]},
            [(INVALID, "validations[0].expression")],
        ),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": "1"}]},
            [(INVALID, "auditAnnotations[0].valueExpression")],
        ),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": ""}]},
            [(REQUIRED, "auditAnnotations[0].valueExpression")],
        ),
        ({"auditAnnotations": [{"key": "a b", "valueExpression": "''"}]}, [(INVALID, "auditAnnotations[0].key")]),
        ({"auditAnnotations": [{"key": "a", "valueExpression": "''"}] * 2}, [(DUPLICATE, "auditAnnotations[1].key")]),
    ],
)
async def test_a_policy_that_cannot_be_evaluated_is_rejected(
    api: RawApi, fields: Manifest, causes: list[tuple[str, str]] | None
):
    spec = {key: value for key, value in (validations("true") | fields).items() if value is not None}
    made = await api.post(POLICIES, {"metadata": {"name": "rejected"}, "spec": spec}, dryRun="All")
    assert made.status == 422, made.body
    if causes is not None:
        assert [cause[:2] for cause in made.causes] == [(reason, f"spec.{field}") for reason, field in causes]


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"policyName": ""}, [(REQUIRED, "policyName")]),
        ({"policyName": "A_b"}, [(INVALID, "policyName")]),
        ({"validationActions": []}, [(REQUIRED, "validationActions")]),
        ({"validationActions": ["Log"]}, [(UNSUPPORTED, "validationActions[0]")]),
        ({"validationActions": ["Deny", "Warn"]}, [(INVALID, "validationActions")]),
        ({"paramRef": {"name": "a"}}, [(REQUIRED, "paramRef.parameterNotFoundAction")]),
        ({"paramRef": {"parameterNotFoundAction": "Deny"}}, [(REQUIRED, "paramRef")]),
        (
            {"paramRef": {"name": "a", "parameterNotFoundAction": "Maybe"}},
            [(UNSUPPORTED, "paramRef.parameterNotFoundAction")],
        ),
        (
            {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}},
            [("FieldValueForbidden", "paramRef.name"), ("FieldValueForbidden", "paramRef.selector")],
        ),
        ({"matchResources": {"matchPolicy": "Near"}}, [(UNSUPPORTED, "matchResources.matchPolicy")]),
    ],
)
async def test_a_binding_that_means_nothing_is_rejected(api: RawApi, fields: Manifest, causes: list[tuple[str, str]]):
    spec = {"policyName": "a", "validationActions": ["Deny"]} | fields
    made = await api.post(BINDINGS, {"metadata": {"name": "rejected"}, "spec": spec}, dryRun="All")
    assert made.status == 422, made.body
    assert [cause[:2] for cause in made.causes] == [(reason, f"spec.{field}") for reason, field in causes]


async def test_a_stored_policy_has_its_defaults_and_an_empty_status(api: RawApi, policies: PolicyInstaller):
    name = await policies.install("stored", validations("true"), {"matchResources": {}})
    policy, binding = await api.get(f"{POLICIES}/{name}"), await api.get(f"{BINDINGS}/{name}-b0")
    assert policy.body["spec"]["failurePolicy"] == "Fail"
    assert policy.body["spec"]["matchConstraints"]["matchPolicy"] == "Equivalent"
    assert policy.body["spec"]["matchConstraints"]["objectSelector"] == {}
    assert policy.body["metadata"]["generation"] == 1
    assert policy.body.get("status", {}) == {}
    assert binding.body["spec"]["matchResources"]["matchPolicy"] == "Equivalent"
