"""Taking over from other programs on both API servers: nothing restarts at rest, a change restarts once, and the marks
that are left are those the other program would have left."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.resources import Kind
from steersman.kube.selectors import Selector
from steersman.operators.reload.controller import controllers
from steersman.operators.reload.dialects import dialects_for
from steersman.operators.reload.dialects.hashes import ReloaderHash, ShipshapeHash, XingHash, wave_data, wave_hash
from steersman.operators.reload.state import read_state
from steersman.operators.reload.types import (
    APPLIED,
    RESTARTED_FOR,
    Budget,
    KindConfig,
    Options,
    Scope,
    SourceKind,
    Window,
)
from steersman.testing import RequestLog, eventually, running

CM = SourceKind.CONFIGMAP
CONFIGMAP = Kind(version="v1", kind="ConfigMap", plural="configmaps")
DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
LABELS = {"app": "web", "env": "test"}
CHECKSUMS = "com.xing.deployment-restart.applied-config-checksums"


class Original:
    """What one program leaves on a Deployment that uses ConfigMap `app` with `{mode: VALUE}`."""

    def __init__(self, namespace):
        self.namespace = namespace

    def metadata(self, value):
        return {}

    def template(self, value):
        return {}

    def variables(self, value):
        return []


class FromShipshape(Original):
    dialect = "shipshape"

    def template(self, value):
        hashed = ShipshapeHash()(CM, {"mode": value}, None)
        return {"shipshape.io/restartedAt": "2026-01-01T00:00:00Z", "shipshape.io/config-hash-app": hashed}


class FromXing(Original):
    dialect = "xing"

    def metadata(self, value):
        checksums = {f"configmap/{self.namespace}/app": XingHash()(CM, {"mode": value}, None)}
        return {"com.xing.deployment-restart": "enabled", CHECKSUMS: json.dumps(checksums, separators=(",", ":"))}

    def template(self, value):
        return {"com.xing.deployment-restart.timestamp": "Mar  5 14:03:09"}


class FromReloader(Original):
    dialect = "reloader"

    def metadata(self, value):
        return {"reloader.stakater.com/auto": "true"}

    def variables(self, value):
        return [{"name": "STAKATER_APP_CONFIGMAP", "value": ReloaderHash()(CM, {"mode": value}, None)}]


class FromWave(Original):
    dialect = "wave"

    def metadata(self, value):
        return {"wave.pusher.com/update-on-config-change": "true"}

    def template(self, value):
        return {"wave.pusher.com/config-hash": wave_hash({"app": wave_data(CM, {"mode": value}, None, None)}, {})}


ORIGINALS = [FromShipshape, FromXing, FromReloader, FromWave]
TIMES = {"shipshape.io/restartedAt", "com.xing.deployment-restart.timestamp"}


async def put_source(client, namespace, value):
    meta = {"name": "app", "namespace": namespace, "labels": LABELS}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": value}}
    await client.apply(body, field_manager="test", force=True)


async def put_workload(client, original, value):
    container = {
        "name": "main",
        "image": "web:1",
        "env": [{"name": "OWN", "value": "1"}, *original.variables(value)],
        "envFrom": [{"configMapRef": {"name": "app"}}],
    }
    template = {
        "metadata": {"labels": {"app": "web"}, "annotations": {"own": "1", **original.template(value)}},
        "spec": {"containers": [{"name": "side", "image": "side:1"}, container]},
    }
    await client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "web",
                "namespace": original.namespace,
                "labels": LABELS,
                "annotations": {"own": "1", **original.metadata(value)},
            },
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
        }
    )


def operators(original):
    scope = Scope(namespace=original.namespace, selector=Selector.parse("app=web"))
    options = Options(
        window=Window(quiet=timedelta(0), limit=timedelta(0)),
        budget=Budget(restarts=0),
        kinds=(KindConfig(kind="Deployment"),),
        namespaces=frozenset({original.namespace}),
        dialects=(original.dialect,),
        scopes=(scope,) if original.dialect == "shipshape" else (),
    )
    return controllers(options, dialects=dialects_for(options), registry=CollectorRegistry())


async def found(client, namespace):
    return await client.get(DEPLOYMENT, "web", namespace=namespace)


def template_marks(obj):
    return obj["spec"]["template"]["metadata"].get("annotations") or {}


def restarts(obj):
    """How often it was restarted; each is written together with the template."""
    return len(read_state(obj["metadata"]["annotations"][APPLIED]).applied.restarts)


async def is_seeded(client, namespace):
    async def seeded():
        return APPLIED in (await found(client, namespace))["metadata"]["annotations"]

    await eventually(seeded, "it is seeded")


@pytest.mark.parametrize("program", ORIGINALS, ids=lambda one: one.dialect)
async def test_nothing_restarts_at_rest_and_a_change_restarts_once(client, cluster, namespace, program):
    original = program(namespace)
    await put_source(client, namespace, "a")
    await put_workload(client, original, "a")
    before = await found(client, namespace)
    async with running(client, *operators(original)):
        await is_seeded(client, namespace)
        at_rest = await found(client, namespace)
        assert at_rest["spec"] == before["spec"]
        assert {**at_rest["metadata"]["annotations"], APPLIED: ""} == {**before["metadata"]["annotations"], APPLIED: ""}
        with RequestLog(client) as log:
            await put_source(client, namespace, "b")

            async def restarted():
                return RESTARTED_FOR in template_marks(await found(client, namespace))

            await eventually(restarted, "it is restarted")
        assert len([one for one in log.requests if one.startswith("PATCH ") and "/deployments/" in one]) == 1
    after = await found(client, namespace)
    assert restarts(after) == 1
    marks = template_marks(after)
    wanted = original.template("b")
    assert {name: marks[name] for name in wanted if name not in TIMES} == {
        name: value for name, value in wanted.items() if name not in TIMES
    }
    assert all(marks[name] != wanted[name] for name in TIMES & wanted.keys())
    assert after["metadata"]["annotations"].items() >= original.metadata("b").items()
    side, main = after["spec"]["template"]["spec"]["containers"]
    assert main["env"] == [{"name": "OWN", "value": "1"}, *original.variables("b")]
    assert "env" not in side
    assert marks["own"] == "1"


@pytest.mark.parametrize("program", ORIGINALS, ids=lambda one: one.dialect)
async def test_what_changed_while_nobody_ran_restarts_once(client, cluster, namespace, program):
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
