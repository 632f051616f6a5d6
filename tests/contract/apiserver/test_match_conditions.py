"""Match conditions of admission webhooks: which requests they exclude, and what follows when they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.manifests import secret
from tests.support.webhooks import REGISTRATION, WebhookStub, allowed, denied, patch, rule

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi
    from tests.support.manifests import Manifest, Space


@pytest.fixture
async def stub():
    async with WebhookStub() as stub:
        stub.on("/hook", lambda _: allowed())
        yield stub


def conditional(stub: WebhookStub, *expressions: str, **fields: object) -> Manifest:
    conditions = [{"name": f"c{at}", "expression": expression} for at, expression in enumerate(expressions)]
    return stub.webhook("/hook", rule("secrets"), matchConditions=conditions, **fields)


@pytest.mark.parametrize(
    ("expressions", "asked"),
    [
        (["true"], True),
        (["false"], False),
        (["true", "false"], False),
        (["object.metadata.name == 'a'"], True),
        (["object.metadata.name.startsWith('b')"], False),
        (["oldObject == null"], True),
        (["request.operation == 'CREATE' && request.resource.resource == 'secrets'"], True),
        (["request.namespace.startsWith('kube-')"], False),
        (["request.kind.group == '' && request.kind.kind == 'Secret'"], True),
        (["!('system:nodes' in request.userInfo.groups)"], True),
        (["request.dryRun"], False),
        (["!has(request.userInfo.extra)"], True),
        (["request.options.kind == 'CreateOptions' && !has(request.subResource)"], True),
        (["has(object.metadata.labels) && 'skip' in object.metadata.labels"], False),
        (["object.nothing.below == 1", "false"], False),
    ],
)
async def test_a_webhook_is_asked_when_all_its_conditions_hold(
    api: RawApi, ns: Space, stub: WebhookStub, expressions: list[str], *, asked: bool
):
    await stub.configure(api, ns, validating=[conditional(stub, *expressions)])
    assert (await api.post(ns.core("secrets"), secret("a"))).status == 201
    assert bool(stub.asked("/hook")) == asked


async def test_conditions_see_the_old_and_the_new_object(api: RawApi, ns: Space, stub: WebhookStub):
    changed = "oldObject != null && object != null && oldObject.type == object.type"
    deleted = "object == null && oldObject.metadata.name == 'a'"
    await stub.configure(api, ns, validating=[conditional(stub, f"({changed}) || ({deleted})")])
    await api.post(ns.core("secrets"), secret("a"))
    await api.patch(ns.core("secrets/a"), {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    await api.delete(ns.core("secrets/a"))
    assert [request["operation"] for request in stub.asked("/hook")] == ["UPDATE", "DELETE"]


async def test_a_later_webhook_is_matched_with_what_an_earlier_one_made(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/label", lambda _: patch({"op": "add", "path": "/metadata/labels", "value": {"from": "webhook"}}))
    later = conditional(stub, "object.metadata.?labels['from'].orValue('') == 'webhook'")
    await stub.configure(api, ns, mutating=[stub.webhook("/label", rule("secrets")), later])
    await api.post(ns.core("secrets"), secret("a"))
    assert len(stub.asked("/hook")) == 1


async def test_a_condition_that_fails_refuses_the_request(api: RawApi, ns: Space, stub: WebhookStub):
    await stub.configure(api, ns, validating=[conditional(stub, "object.nothing.below == 1")])
    made = await api.post(ns.core("secrets"), secret("a"))
    assert (made.status, made.body["reason"]) == (403, "Forbidden")
    assert made.body["details"] == {"name": "a", "kind": "secrets"}
    assert stub.asked("/hook") == []


async def test_a_condition_that_fails_is_ignored_with_the_webhook(api: RawApi, ns: Space, stub: WebhookStub):
    stub.on("/hook", lambda _: denied())
    await stub.configure(api, ns, validating=[conditional(stub, "object.nothing.below == 1", failurePolicy="Ignore")])
    assert (await api.post(ns.core("secrets"), secret("a"))).status == 201


@pytest.mark.parametrize(
    ("conditions", "reason", "field"),
    [
        ([{"name": "a", "expression": "object."}], "FieldValueInvalid", "[0].expression"),
        ([{"name": "a", "expression": "1 + 1"}], "FieldValueInvalid", "[0].expression"),
        ([{"name": "a", "expression": "object.data"}], "FieldValueInvalid", "[0].expression"),
        ([{"name": "a", "expression": "unknown == 1"}], "FieldValueInvalid", "[0].expression"),
        ([{"name": "a", "expression": "request.unknown == 1"}], "FieldValueInvalid", "[0].expression"),
        ([{"name": "a", "expression": "request.name == 1"}], "FieldValueInvalid", "[0].expression"),
        ([{"name": "a", "expression": " "}], "FieldValueRequired", "[0].expression"),
        ([{"name": "", "expression": "true"}], "FieldValueRequired", "[0].name"),
        ([{"name": "a b", "expression": "true"}], "FieldValueInvalid", "[0].name"),
        ([{"name": "a", "expression": "true"}] * 2, "FieldValueDuplicate", "[1].name"),
        ([{"name": f"a{at}", "expression": "true"} for at in range(65)], "FieldValueTooMany", ""),
    ],
)
async def test_conditions_that_cannot_be_evaluated_are_rejected_with_the_configuration(
    api: RawApi, stub: WebhookStub, conditions: list[Manifest], reason: str, field: str
):
    webhook = stub.webhook("/hook", rule("secrets"), matchConditions=conditions)
    manifest = {"metadata": {"name": "conditions"}, "webhooks": [webhook]}
    made = await api.post(f"{REGISTRATION}/validatingwebhookconfigurations", manifest, dryRun="All")
    assert made.status == 422, made.body
    assert [cause[:2] for cause in made.causes] == [(reason, f"webhooks[0].matchConditions{field}")]
