"""What a webhook answers to a review."""

from __future__ import annotations

import base64
import json

import pytest

from steersman.kube.objects import Resource, Struct
from steersman.kube.patches import apply_json_patch
from steersman.runtime.admission import Admission, Denied, mutate, respond, validate


class AppSpec(Struct):
    image: str = ""
    replicas: int = 1


class App(Resource, group="example.org", version="v1"):
    spec: AppSpec


def review(obj=None, *, old=None, operation="CREATE") -> bytes:
    request = {
        "uid": "u-1",
        "kind": {"group": "example.org", "version": "v1", "kind": "App"},
        "operation": operation,
        "name": "web",
        "namespace": "shop",
        "userInfo": {"username": "ann", "groups": ["dev"]},
        "object": obj,
        "oldObject": old,
        "options": {"kind": "CreateOptions"},
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def app(**spec) -> dict:
    return {
        "apiVersion": "example.org/v1",
        "kind": "App",
        "metadata": {"name": "web", "namespace": "shop", "futureField": True},
        "spec": {"image": "web:1", "unknown": {"kept": 1}, **spec},
    }


@validate(App)
async def no_latest(request: Admission[App]):
    if request.object.spec.image.endswith(":latest"):
        raise Denied("latest is not a version", field="spec.image")
    return ["one replica is not much"] if request.object.spec.replicas == 1 else None


@mutate(App)
async def at_least_two(request: Admission[App]):
    obj = request.object
    if obj.spec.replicas >= 2:
        return None
    obj.spec.replicas = 2
    return obj


async def test_an_allowed_object_may_come_with_warnings():
    answer = await respond(no_latest, review(app()))
    assert answer["response"] == {"uid": "u-1", "allowed": True, "warnings": ["one replica is not much"]}
    assert answer["apiVersion"] == "admission.k8s.io/v1"


async def test_a_denial_names_the_field():
    answer = await respond(no_latest, review(app(image="web:latest")))
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"] == {
        "status": "Failure",
        "message": "spec.image: latest is not a version",
        "code": 422,
        "reason": "Invalid",
        "details": {
            "causes": [{"reason": "FieldValueInvalid", "message": "latest is not a version", "field": "spec.image"}]
        },
    }


async def test_a_mutation_touches_only_what_it_changed():
    answer = await respond(at_least_two, review(app()))
    operations = json.loads(base64.b64decode(answer["response"]["patch"]))
    assert operations == [{"op": "add", "path": "/spec/replicas", "value": 2}]
    changed = apply_json_patch(app(), operations)
    assert changed["spec"]["unknown"] == {"kept": 1}
    assert changed["metadata"]["futureField"] is True


async def test_a_mutation_that_changes_nothing_sends_no_patch():
    answer = await respond(at_least_two, review(app(replicas=3)))
    assert answer["response"] == {"uid": "u-1", "allowed": True}


async def test_a_deletion_shows_the_object_as_it_is():
    seen = []

    @validate(App, operations=("DELETE",))
    async def look(request: Admission[App]):
        seen.append((request.operation, request.new, request.object.spec.image, request.user.username))

    await respond(look, review(None, old=app(), operation="DELETE"))
    assert seen == [("DELETE", None, "web:1", "ann")]


async def test_an_object_that_does_not_decode_is_denied_with_the_place():
    answer = await respond(no_latest, review(app(replicas="many")))
    assert answer["response"]["allowed"] is False
    assert "$.spec.replicas" in answer["response"]["status"]["message"]


async def test_an_object_that_does_not_decode_may_be_repaired_and_the_hook_is_told():
    seen = []

    @validate(App)
    async def look(request: Admission[App]):
        seen.append((request.old, request.old_problem, request.object.spec.replicas))

    answer = await respond(look, review(app(replicas=2), old=app(replicas="many"), operation="UPDATE"))
    assert answer["response"]["allowed"] is True
    assert seen == [(None, "Expected `int`, got `str` - at `$.spec.replicas`", 2)]


def leaving(obj: dict) -> dict:
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize("hook", [no_latest, at_least_two], ids=["validate", "mutate"])
@pytest.mark.parametrize(
    ("operation", "new", "allowed"),
    [
        ("DELETE", None, True),
        ("UPDATE", leaving(app(replicas="many")), True),  # its last finalizer is removed
        ("UPDATE", app(replicas="many"), False),
    ],
)
async def test_an_object_that_does_not_decode_may_go(hook, operation, new, allowed):
    answer = await respond(hook, review(new, old=app(replicas="many"), operation=operation))
    response = answer["response"]
    said = response["warnings"] if allowed else [response["status"]["message"]]
    assert response["allowed"] is allowed
    assert ["$.spec.replicas" in line for line in said] == [True]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": null}', b"\xff"])
async def test_what_is_not_a_review_is_refused(body):
    with pytest.raises(ValueError, match="not an AdmissionReview"):
        await respond(no_latest, body)


def test_paths_and_names_say_what_a_hook_is_about():
    assert no_latest.path == "/validate/example.org/v1/apps/no_latest"
    assert no_latest.name == "no-latest.apps.example.org"
    assert at_least_two.path.startswith("/mutate/")


def test_a_hook_must_be_async():
    with pytest.raises(TypeError, match="async function"):
        validate(App)(lambda request: None)
