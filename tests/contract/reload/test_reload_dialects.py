"""Taking over from other programs on both API servers: nothing restarts at rest, a change restarts once, and the marks
that are left are those the other program would have left."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.gvk import Kind
from steersman.kube.api.selectors import Selector
from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_FOR
from steersman.operators.reload.api.config import KindConfig, LabelScope, ReloadOptions, RestartBudget, Window
from steersman.operators.reload.compat.dialects import dialects_for
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.planning.state import read_state
from steersman.testing import RequestLog, eventually, running
from tests.support.reload.originals import ORIGINALS, TIMES, put_source, put_workload

CASES = [
    pytest.param(original, kind, id=f"{original.dialect} {kind}") for original in ORIGINALS for kind in original.kinds
]


def operators(original, kind="Deployment"):
    scope = LabelScope(namespace=original.namespace, selector=Selector.parse("app=web"))
    options = ReloadOptions(
        window=Window(quiet=timedelta(0), limit=timedelta(0)),
        budget=RestartBudget(restarts=0),
        kinds=(KindConfig(kind=kind),),
        namespaces=frozenset({original.namespace}),
        dialects=(original.dialect,),
        scopes=(scope,) if original.dialect == "shipshape" else (),
    )
    return controllers(options, dialects=dialects_for(options), registry=CollectorRegistry())


async def found(client, namespace, kind="Deployment"):
    target = Kind(group="apps", version="v1", kind=kind, plural=f"{kind.lower()}s")
    return await client.get(target, "web", namespace=namespace)


def template_marks(obj):
    return obj["spec"]["template"]["metadata"].get("annotations") or {}


def restarts(obj):
    """How often it was restarted; each is written together with the template."""
    return len(read_state(obj["metadata"]["annotations"][APPLIED]).applied.restarts)


async def is_seeded(client, namespace, kind):
    async def seeded():
        return APPLIED in (await found(client, namespace, kind))["metadata"]["annotations"]

    await eventually(seeded, "it is seeded")


@pytest.mark.parametrize(("program", "kind"), CASES)
async def test_nothing_restarts_at_rest_and_a_change_restarts_once(client, cluster, namespace, program, kind):
    original = program(namespace)
    await put_source(client, namespace, "a")
    await put_workload(client, original, "a", kind)
    before = await found(client, namespace, kind)
    async with running(client, *operators(original, kind)):
        await is_seeded(client, namespace, kind)
        at_rest = await found(client, namespace, kind)
        assert at_rest["spec"] == before["spec"]
        assert {**at_rest["metadata"]["annotations"], APPLIED: ""} == {**before["metadata"]["annotations"], APPLIED: ""}
        with RequestLog(client) as log:
            await put_source(client, namespace, "b")

            async def restarted():
                return RESTARTED_FOR in template_marks(await found(client, namespace, kind))

            await eventually(restarted, "it is restarted")
        assert (
            len(
                [
                    request
                    for request in log.requests
                    if request.startswith("PATCH ") and f"/{kind.lower()}s/" in request
                ]
            )
            == 1
        )
    after = await found(client, namespace, kind)
    assert restarts(after) == 1
    marks = template_marks(after)
    wanted = original.template("b")
    assert {name: marks[name] for name in wanted if name not in TIMES} == {
        name: value for name, value in wanted.items() if name not in TIMES
    }
    assert all(marks[name] != wanted[name] for name in TIMES.keys() & wanted.keys())
    assert after["metadata"]["annotations"].items() >= original.metadata("b").items()
    side, main = after["spec"]["template"]["spec"]["containers"]
    assert main["env"] == [{"name": "OWN", "value": "1"}, *original.variables("b")]
    assert "env" not in side
    assert marks["own"] == "1"


@pytest.mark.parametrize("program", ORIGINALS, ids=lambda one: one.dialect)
async def test_what_changed_while_no_operator_ran_restarts_once(client, cluster, namespace, program):
    original = program(namespace)
    await put_source(client, namespace, "b")
    await put_workload(client, original, "a")
    async with running(client, *operators(original)):

        async def restarted():
            return RESTARTED_FOR in template_marks(await found(client, namespace))

        await eventually(restarted, "it is restarted")
    after = await found(client, namespace)
    assert restarts(after) == 1
    async with running(client, *operators(original)):
        await put_source(client, namespace, "c")

        async def again():
            return restarts(await found(client, namespace)) > 1

        await eventually(again, "it is restarted again")
    assert restarts(await found(client, namespace)) == 2
