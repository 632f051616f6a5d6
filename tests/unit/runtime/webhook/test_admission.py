"""What a webhook answers to a review."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from steersman.kube.api.objects import Resource, Struct
from steersman.kube.api.patches import apply_json_patch
from steersman.runtime.webhook.admission import AdmissionRequest, Denied, mutate, respond, validate


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
async def no_latest(request: AdmissionRequest[App]):
    if request.object.spec.image.endswith(":latest"):
        raise Denied("latest is not a version", field="spec.image")
    return ["one replica is not much"] if request.object.spec.replicas == 1 else None


@mutate(App)
async def at_least_two(request: AdmissionRequest[App]):
    obj = request.object
    if obj.spec.replicas >= 2:
        return None
    obj.spec.replicas = 2
    return obj


async def patched(hook, obj):
    response = (await respond(hook, review(obj)))["response"]
    assert response["allowed"] is True
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return apply_json_patch(obj, patch)


async def test_an_edit_in_place_is_the_answer_though_nothing_is_returned():
    @mutate(App)
    async def in_place(request: AdmissionRequest[App]):
        request.object.spec.replicas = 2
        request.object.metadata.labels = {"team": "shop"}

    changed = await patched(in_place, app(replicas=1))
    assert changed["spec"] == {**app()["spec"], "replicas": 2}
    assert changed["metadata"]["labels"] == {"team": "shop"}


async def test_an_edit_in_place_of_untyped_parts_is_the_answer():
    class Loose(Resource, group="example.org", version="v1", kind="App"):
        spec: dict[str, Any]

    @mutate(Loose)
    async def in_place(request: AdmissionRequest[Loose]):
        request.object.spec["env"].append({"name": "A"})

    obj = app() | {"spec": {"env": []}}
    assert (await patched(in_place, obj))["spec"] == {"env": [{"name": "A"}]}


async def test_a_mutator_that_changes_nothing_sends_no_patch():
    @mutate(App)
    async def idle(request: AdmissionRequest[App]):
        request.object.spec.replicas = request.object.spec.replicas

    assert (await respond(idle, review(app())))["response"] == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize("answer", [True, {"spec": {}}, "yes"])
async def test_a_mutator_that_returns_something_else_is_an_error_that_says_so(answer):
    @mutate(App)
    async def odd(request: AdmissionRequest[App]) -> Any:
        return answer

    with pytest.raises(TypeError, match=f"odd returned {type(answer).__name__}: return the App, or nothing"):
        await respond(odd, review(app()))


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
    async def look(request: AdmissionRequest[App]):
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
    async def look(request: AdmissionRequest[App]):
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
    assert no_latest.path == "/validate/example.org/v1/apps/no-latest"
    assert no_latest.name == "no-latest.apps.example.org"
    assert at_least_two.path.startswith("/mutate/")


def test_a_hook_must_be_async():
    with pytest.raises(TypeError, match="async function"):
        validate(App)(lambda request: None)
