"""What a webhook answers to a review."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import steersman as sm
from steersman.errors import ConfigError
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Resource, Struct
from steersman.kube.api.patches import apply_json_patch
from steersman.runtime.webhook.admission import AdmissionRequest, Denied, default, mutate, respond, validate
from tests.support.docs.pages import blocks_of


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


async def test_a_mutation_changes_only_its_own_fields():
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


async def test_an_object_that_does_not_decode_may_be_repaired_and_the_webhook_knows():
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


APPS = Kind(group="example.org", version="v1", kind="App", plural="apps")


async def test_objects_of_a_kind_without_a_type_are_dicts():
    @mutate(APPS)
    async def labelled(request: AdmissionRequest[dict[str, Any]]):
        request.object["metadata"]["labels"] = {"user": request.user.username}
        del request.object["spec"]["image"]

    @validate(APPS)
    async def labels_needed(request: AdmissionRequest[dict[str, Any]]):
        if "labels" not in request.object["metadata"]:
            raise Denied("is required", field="metadata.labels")

    changed = await patched(labelled, app())
    assert changed == {
        **app(),
        "metadata": {**app()["metadata"], "labels": {"user": "ann"}},
        "spec": {"unknown": {"kept": 1}},
    }
    assert (await respond(labels_needed, review(app())))["response"]["allowed"] is False
    assert (await respond(labels_needed, review(changed)))["response"]["allowed"] is True
    assert labelled.path == "/mutate/example.org/v1/apps/labelled"


@pytest.mark.parametrize("target", [dict, "App", Resource], ids=repr)
def test_what_is_neither_a_type_nor_a_kind_is_refused(target):
    with pytest.raises(ConfigError, match=r"always: .* is neither a Resource class with a version nor a Kind"):

        @validate(target)
        async def always(request: Any):
            return None


async def test_a_plain_function_runs_beside_the_event_loop():
    threads = []

    @mutate(App)
    def slow(request: AdmissionRequest[App]):
        threads.append(threading.current_thread())
        request.object.spec.replicas = 7

    @validate(App)
    def strict(request: AdmissionRequest[App]):
        threads.append(threading.current_thread())
        raise Denied("no")

    assert (await patched(slow, app()))["spec"]["replicas"] == 7
    assert (await respond(strict, review(app())))["response"]["allowed"] is False
    assert threading.current_thread() not in threads


async def test_a_defaulter_gets_the_object_and_changes_it_in_place():
    @default(App)
    async def filled(obj: App):
        obj.spec.replicas = 3

    @default(APPS)
    def marked(obj: dict[str, Any]):
        obj["metadata"].setdefault("annotations", {"a": "b"})

    assert (await patched(filled, app()))["spec"] == {**app()["spec"], "replicas": 3}
    assert (await patched(marked, app()))["metadata"] == {**app()["metadata"], "annotations": {"a": "b"}}


async def test_a_defaulter_is_not_asked_about_a_deletion():
    @default(App, operations=("DELETE",))
    async def filled(obj: App):
        obj.spec.replicas = 3

    answer = await respond(filled, review(None, old=app(), operation="DELETE"))
    assert answer["response"] == {"uid": "u-1", "allowed": True}


async def test_a_defaulter_that_returns_something_is_an_error_that_says_so():
    @default(App)
    async def wrong(obj: App) -> Any:
        return obj

    with pytest.raises(TypeError, match="wrong returned App: a defaulter changes the object in place"):
        await respond(wrong, review(app()))


async def test_mutators_and_denials_warn_too():
    @mutate(App)
    async def noisy(request: AdmissionRequest[App]):
        request.warn("replicas are set to 2")
        request.object.spec.replicas = 2

    @validate(App)
    async def denied(request: AdmissionRequest[App]):
        request.warn("see the manual")
        raise Denied("no")

    answers = [(await respond(hook, review(app())))["response"] for hook in (noisy, denied)]
    assert [(answer["allowed"], answer["warnings"]) for answer in answers] == [
        (True, ["replicas are set to 2"]),
        (False, ["see the manual"]),
    ]


async def test_a_validator_may_warn_both_ways():
    @validate(App)
    async def talkative(request: AdmissionRequest[App]):
        request.warn("first")
        return ["second"]

    assert (await respond(talkative, review(app())))["response"]["warnings"] == ["first", "second"]


@pytest.mark.parametrize("field", ["namespace_selector", "object_selector"])
@pytest.mark.parametrize("selector", ["a in", "size>3"])
def test_a_selector_that_is_none_is_refused_where_it_is_written(field, selector):
    with pytest.raises(ConfigError, match=f"^look: {field}: "):

        @validate(App, **{field: selector})
        async def look(request: AdmissionRequest[App]):
            return None


async def test_the_examples_of_the_documentation_work():
    page = Path(__file__).parents[4] / "docs" / "concepts" / "webhooks.md"
    shown: dict[str, Any] = {"sm": sm, "App": App, "Any": Any}
    for block in blocks_of(page, page.parents[2]):
        if "@sm.default" in block.text:
            exec(block.text, shown)
    assert (await patched(shown["two_replicas"], app()))["spec"]["replicas"] == 2
    bare = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "labels": {"team": "shop"}}}
    assert (await respond(shown["named_owner"], review(bare)))["response"]["warnings"] == [
        "this will be required in May"
    ]
    (configuration,) = sm.webhook_configurations(
        [shown["named_owner"]], name="shop", client_config=lambda path: {"url": f"https://127.0.0.1{path}"}
    )
    (webhook,) = configuration["webhooks"]
    assert {name: webhook[name] for name in ("namespaceSelector", "objectSelector", "matchConditions")} == {
        "namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]},
        "objectSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        "matchConditions": [{"name": "by-people", "expression": "!request.userInfo.username.startsWith('system:')"}],
    }
