"""Profiles on both API servers: what the tests of the originals ask for, and better where those encode a weakness."""

from __future__ import annotations

import json
from contextlib import ExitStack

import aiohttp
import pytest

from steersman.kube.api.errors import Forbidden, NotFound, ResourceExpired, ServerError, Unauthorized
from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_micro_time
from steersman.kube.api.types import Lease
from steersman.kube.api.types.coordination import LeaseSpec
from steersman.operators.reload.api.annotations import APPLIED, RESTARTED_FOR
from steersman.operators.reload.api.config import SourceKind
from steersman.operators.reload.compat.dialects.hashes import ShipshapeHash, XingHash
from steersman.operators.reload.compat.profiles import read_profile
from steersman.operators.reload.compat.profiles.process import RightsMissing, with_namespaces
from steersman.operators.reload.planning.state import read_state
from steersman.testing import RequestLog, eventually
from tests.support.reload.profiles import interrupting, refusing, station

CM = SourceKind.CONFIGMAP
APPS = {
    name: Kind(group="apps", version="v1", kind=name, plural=f"{name.lower()}s")
    for name in ("Deployment", "StatefulSet")
}
CONFIGMAP = Kind(version="v1", kind="ConfigMap", plural="configmaps")
AT, HASH = "shipshape.io/restartedAt", "shipshape.io/config-hash-app"
ENABLED = "com.xing.deployment-restart"
CHECKSUMS, STAMP = f"{ENABLED}.applied-config-checksums", f"{ENABLED}.timestamp"
LONG = 60.0  # seconds a fact may take on a busy machine


class Site:
    """A namespace with sources and workloads."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    async def source(self, name="app", *, labels=None, annotations=None, kind="ConfigMap", **data):
        meta = {"name": name, "namespace": self.namespace}
        meta |= {"labels": labels} if labels else {}
        meta |= {"annotations": annotations} if annotations else {}
        body = {"apiVersion": "v1", "kind": kind, "metadata": meta}
        body |= {"stringData" if kind == "Secret" else "data": data}
        await self.client.apply(body, field_manager="test", force=True)

    async def workload(self, name="web", *, kind="Deployment", labels=None, annotations=None, template=None, pod=None):
        container = {"name": "main", "image": "web:1", "envFrom": [{"configMapRef": {"name": "app"}}]}
        spec = {
            "replicas": 0,
            "selector": {"matchLabels": {"pod": name}},
            "template": {
                "metadata": {"labels": {"pod": name}, **({"annotations": template} if template else {})},
                "spec": pod or {"containers": [container]},
            },
        }
        if kind == "StatefulSet":
            spec["serviceName"] = name
        meta = {"name": name, "namespace": self.namespace}
        meta |= {"labels": labels} if labels else {}
        meta |= {"annotations": annotations} if annotations else {}
        await self.client.create({"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec})

    async def get(self, name="web", kind="Deployment"):
        return await self.client.get(APPS[kind], name, namespace=self.namespace)

    async def marks(self, name="web", kind="Deployment"):
        return (await self.get(name, kind))["spec"]["template"]["metadata"].get("annotations") or {}

    async def annotations(self, name="web", kind="Deployment"):
        return (await self.get(name, kind))["metadata"].get("annotations") or {}

    async def restarts(self, name="web", kind="Deployment"):
        state = read_state((await self.annotations(name, kind)).get(APPLIED)).applied
        return len(state.restarts) if state is not None else 0

    async def seeded(self, name="web", kind="Deployment"):
        async def seeded():
            return APPLIED in await self.annotations(name, kind)

        await eventually(seeded, f"{name} is seeded", timeout=LONG)

    async def restarted(self, times, name="web", kind="Deployment"):
        async def restarted():
            return await self.restarts(name, kind) == times

        await eventually(restarted, f"{name} is restarted {times} times", timeout=LONG)

    async def delete_source(self, name="app"):
        await self.client.delete(CONFIGMAP, name, namespace=self.namespace)


@pytest.fixture
def site(client, cluster, namespace):
    return Site(client, namespace)


def scraped(process, name, **labels):
    return process._registry.get_sample_value(name, labels)


async def settled(process):
    """Everything seen so far has been looked at."""

    def idle():
        queues = [engine.queue for engine in process.manager.runners.values()]
        return all(queue.processing == 0 and not sum(queue.depths().values()) for queue in queues)

    await eventually(idle, "nothing is left to look at", timeout=LONG)


# ----------------------------------------------------------------------------------------------------------- shipshape
def env(value="test", app="web"):
    return {"app": app, "env": value}


def shipshape(site, **environ):
    values = {"APP_SELECTOR": "app=web", "DEBOUNCE_SECONDS": "0", "LEADER_ELECTION_ENABLED": "false"}
    return station(site.client, site.namespace, "shipshape", **{**values, "WATCH_NAMESPACE": site.namespace, **environ})


async def test_shipshape_a_configmap_outside_of_the_selector_or_without_environment_restarts_nothing(site):
    await site.source("app", labels=env(), mode="a")
    await site.source("other", labels=env(app="shop"), mode="a")
    await site.source("nowhere", labels={"app": "web"}, mode="a")
    await site.workload(labels=env())
    async with shipshape(site) as process:
        await site.seeded()
        await site.source("other", labels=env(app="shop"), mode="b")
        await site.source("nowhere", labels={"app": "web"}, mode="b")
        await site.source("app", labels=env(), mode="b")
        await site.restarted(1)
        await settled(process)
        assert (await site.marks())[RESTARTED_FOR] == "configmap/app#mode"


async def test_shipshape_a_new_configmap_is_taken_in_silence_and_its_first_change_restarts(site):
    await site.source("app", labels=env(), mode="a")
    await site.workload(labels=env())
    async with shipshape(site) as process:
        await site.seeded()
        await site.source("late", labels=env(), mode="a")

        async def known():
            return "configmap/late" in read_state((await site.annotations())[APPLIED]).applied.sources

        await eventually(known, "it is seeded too", timeout=LONG)
        await settled(process)
        assert await site.restarts() == 0
        await site.source("late", labels=env(), mode="b")
        await site.restarted(1)


async def test_shipshape_only_a_change_of_data_restarts_and_metadata_costs_no_request(site):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env())
    async with shipshape(site) as process:
        await site.seeded()
        await settled(process)
        with RequestLog(site.client) as log:
            await site.source(labels=env(), annotations={"note": "1"}, mode="a")
            await site.source(labels={**env(), "more": "1"}, mode="a")
            await settled(process)
        assert [write for write in log.writes if "/deployments/" in write] == []
        await site.source(labels=env(), mode="b")
        await site.restarted(1)


async def test_shipshape_a_configmap_that_joins_with_new_data_restarts_and_one_that_only_joins_does_not(site):
    await site.source("app", labels=env(), mode="a")
    await site.source("quiet", labels={"app": "web"}, mode="a")
    await site.source("loud", labels={"app": "web"}, mode="a")
    await site.workload(labels=env())
    async with shipshape(site) as process:
        await site.seeded()
        await site.source("quiet", labels=env(), mode="a")
        await settled(process)
        assert await site.restarts() == 0
        await site.source("loud", labels=env(), mode="b")
        await site.restarted(1)
        assert (await site.marks())[RESTARTED_FOR].startswith("configmap/loud")


async def test_shipshape_only_deployments_of_the_same_environment_restart(site):
    await site.source(labels=env(), mode="a")
    for name, labels in (("one", env()), ("two", env()), ("live", env("live")), ("shop", env(app="shop"))):
        await site.workload(name, labels=labels)
    async with shipshape(site) as process:
        await site.seeded("one")
        await site.seeded("two")
        await site.source(labels=env(), mode="b")
        await site.restarted(1, "one")
        await site.restarted(1, "two")
        await settled(process)
        assert await site.restarts("live") == await site.restarts("shop") == 0
        assert scraped(process, "configmap_reload_restarts_total", env="test") == 2


async def test_shipshape_a_restart_writes_the_time_and_the_hash_of_the_new_data_in_one_patch(site):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env())
    async with shipshape(site, ROLLOUT_ANNOTATION_KEY=AT):
        await site.seeded()
        with RequestLog(site.client) as log:
            await site.source(labels=env(), mode="b")
            await site.restarted(1)
        assert len([write for write in log.writes if write.startswith("PATCH ") and "/deployments/web" in write]) == 1
        marks = await site.marks()
        assert marks[HASH] == ShipshapeHash()(CM, {"mode": "b"}, None)
        assert marks[AT].endswith("Z")
        assert len(marks[AT]) == len("2026-01-01T00:00:00Z")


async def test_shipshape_one_that_fails_is_tried_again_and_the_others_go_ahead(site):
    await site.source(labels=env(), mode="a")
    for name in ("bad", "good"):
        await site.workload(name, labels=env())
    async with shipshape(site) as process:
        await site.seeded("bad")
        await site.seeded("good")
        with refusing(site.client, "PATCH", "/deployments/bad", ServerError("boom", code=500), times=2) as refused:
            await site.source(labels=env(), mode="b")
            await site.restarted(1, "good")
            await site.restarted(1, "bad")
            await settled(process)
        assert len(refused) == 2
        assert scraped(process, "configmap_reload_errors_total", env="test") == 2
        assert scraped(process, "configmap_reload_retry_total", env="test") == 2
        assert scraped(process, "configmap_reload_restarts_total", env="test") == 2


async def test_shipshape_changes_within_the_window_are_one_more_restart_and_are_flushed_at_the_end(site):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env())
    async with shipshape(site, DEBOUNCE_SECONDS="3600") as process:
        await site.seeded()
        await site.source(labels=env(), mode="b")
        await site.restarted(1)
        await site.source(labels=env(), mode="c")
        await eventually(lambda: scraped(process, "configmap_reload_pending_restarts") == 1, timeout=LONG)
        await site.source(labels=env(), mode="d")
        await eventually(lambda: scraped(process, "configmap_reload_debounced_total", env="test") == 2, timeout=LONG)
        assert await site.restarts() == 1
    assert await site.restarts() == 2
    assert (await site.marks())[HASH] == ShipshapeHash()(CM, {"mode": "d"}, None)
    async with shipshape(site) as process:  # the next one finds everything done
        await settled(process)
        assert await site.restarts() == 2


async def test_shipshape_a_flush_that_keeps_failing_is_given_up_counted_and_found_by_the_next_process(site):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env())
    with ExitStack() as until_it_ended:
        async with shipshape(site, DEBOUNCE_SECONDS="3600") as process:
            await site.seeded()
            await site.source(labels=env(), mode="b")
            await site.restarted(1)
            await site.source(labels=env(), mode="c")
            await eventually(lambda: scraped(process, "configmap_reload_pending_restarts") == 1, timeout=LONG)
            refusal = refusing(site.client, "PATCH", "/deployments/web", ServerError("boom", code=500))
            until_it_ended.enter_context(refusal)
            process.end()
            await eventually(lambda: scraped(process, "configmap_reload_dropped_restarts_total") == 1, timeout=LONG)
    assert await site.restarts() == 1
    async with shipshape(site):
        await site.restarted(2)


async def test_shipshape_a_deleted_configmap_restarts_nothing_and_one_that_comes_back_only_with_new_data(site):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env())
    async with shipshape(site) as process:
        await site.seeded()
        await site.delete_source()
        await settled(process)
        await site.source(labels=env(), mode="a")
        await settled(process)
        assert await site.restarts() == 0
        await site.delete_source()
        await site.source(labels=env(), mode="b")
        await site.restarted(1)


@pytest.mark.parametrize(
    ("template", "restarts"),
    [
        ({AT: "2026-01-01T00:00:00Z", HASH: ShipshapeHash()(CM, {"mode": "old"}, None)}, 1),
        ({AT: "2026-01-01T00:00:00Z", HASH: ShipshapeHash()(CM, {"mode": "a"}, None)}, 0),
        ({}, 0),
        ({AT: "2026-01-01T00:00:00Z"}, 1),
        ({AT: "2026-01-01T00:00:00Z", "shipshape.io/config-hash-other": "0" * 64}, 0),
    ],
    ids=["stale hash", "current hash", "neither hash nor time", "time without any hash", "hash of another configmap"],
)
async def test_shipshape_what_the_original_left_on_the_template_says_what_was_missed(site, template, restarts):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env(), template=template)
    async with shipshape(site) as process:
        await site.seeded()
        await site.restarted(restarts)
        await settled(process)
    assert await site.restarts() == restarts
    if restarts:
        assert (await site.marks())[HASH] == ShipshapeHash()(CM, {"mode": "a"}, None)


async def test_shipshape_a_process_that_may_not_read_ends_with_an_error_and_is_not_ready(site):
    forbidden = Forbidden("configmaps is forbidden", code=403)
    with (
        refusing(site.client, "GET", "/configmaps", forbidden),
        pytest.raises(RightsMissing, match="configmaps"),
    ):
        async with shipshape(site):
            pytest.fail("it began to work")


@pytest.mark.parametrize("error", [Unauthorized("who are you?", code=401), Forbidden("not any more", code=403)])
async def test_shipshape_a_watch_that_is_refused_while_it_runs_ends_the_process_with_an_error(site, error):
    async def run(interruption):
        async with shipshape(site) as process:
            assert process.ready()
            interruption.end(error, refuse=True)
            await eventually(lambda: not process.ready(), "it is not ready", timeout=LONG)
            await eventually(process.manager._stopping.is_set, "it stops by itself", timeout=LONG)

    await site.source(labels=env(), mode="a")
    with interrupting(site.client, "/configmaps") as interruption, pytest.raises(RightsMissing, match="configmaps"):
        await run(interruption)


@pytest.mark.parametrize(("mode", "restarts"), [("b", 1), ("a", 0)])
async def test_shipshape_what_changed_while_a_watch_was_deaf_and_expired_restarts_once(site, mode, restarts):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env())
    with interrupting(site.client, "/configmaps") as interruption:
        async with shipshape(site) as process:
            await site.seeded()
            interruption.silence()
            await site.source(labels=env(), mode=mode)
            await site.source("late", labels=env(), mode="x")
            interruption.end(ResourceExpired("too old resource version", code=410))

            async def seen():
                return "configmap/late" in (await site.annotations())[APPLIED]

            await eventually(seen, "the sources are listed anew", timeout=LONG)
            await site.restarted(restarts)
            await settled(process)
        assert await site.restarts() == restarts


async def test_shipshape_serves_the_paths_of_the_original_and_everything_else_that_is_known(site):
    await site.source(labels=env(), mode="a")
    async with shipshape(site) as process, aiohttp.ClientSession() as session:
        base = f"http://127.0.0.1:{process.manager.health.port}"
        expected = {"/healthz": (200, "ok"), "/leadz": (200, "ok"), "/readyz": (200, "ready=true leader=true")}
        for path, answer in expected.items():
            async with session.get(base + path) as response:
                assert (response.status, await response.text()) == answer
        async with session.get(f"{base}/nowhere") as response:
            assert response.status == 404
        async with session.get(f"{base}/metrics") as response:
            assert "configmap_reload_leader_state 1.0" in await response.text()


async def test_shipshape_the_lease_of_the_original_is_used_and_given_back_after_the_flush(site):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env())
    lease = ("helloworld-controller-leader", site.namespace)
    with pytest.raises(NotFound):
        await site.client.get(Lease, lease[0], namespace=lease[1])
    async with shipshape(site, LEADER_ELECTION_ENABLED="true", HOSTNAME="pod-a", DEBOUNCE_SECONDS="3600") as process:
        await site.seeded()
        held = await site.client.get(Lease, lease[0], namespace=lease[1])
        assert held.spec.holder_identity.startswith("pod-a_")
        assert held.spec.lease_duration_seconds == 15
        assert scraped(process, "configmap_reload_leader_transitions_total", transition="acquired") == 1
        await site.source(labels=env(), mode="b")
        await site.restarted(1)
        await site.source(labels=env(), mode="c")
        await eventually(lambda: scraped(process, "configmap_reload_pending_restarts") == 1, timeout=LONG)
        with RequestLog(site.client) as log:
            process.end()
            await eventually(lambda: _flushed(log) and "/leases/" in log.writes[-1], timeout=LONG)
        flushed = _flushed(log)
        released = [index for index, one in enumerate(log.writes) if one.startswith("PUT ") and "/leases/" in one]
        assert flushed[-1] < released[-1]
    assert await site.restarts() == 2
    assert (await site.client.get(Lease, lease[0], namespace=lease[1])).spec.holder_identity in (None, "")
    async with shipshape(site, LEADER_ELECTION_ENABLED="true") as process:  # an empty holder is nobody to wait for
        await settled(process)
        assert await site.restarts() == 2


def _flushed(log):
    return [index for index, one in enumerate(log.writes) if "/deployments/web" in one]


# ---------------------------------------------------------------------------------------------------------------- xing
def xing(site, *argv, **environ):
    return station(site.client, site.namespace, "xing", ("-r", "0", *argv), **environ)


def checksum(mode):
    return XingHash()(CM, {"mode": mode}, None).split()[0]


def recorded(site, **modes):
    return json.dumps({f"configmap/{site.namespace}/{name}": checksum(mode) for name, mode in modes.items()})


@pytest.mark.parametrize("kind", APPS)
async def test_xing_a_workload_without_checksums_gets_them_without_a_restart_and_a_change_restarts_once(site, kind):
    await site.source(mode="a")
    await site.workload(kind=kind, annotations={ENABLED: "enabled"})
    async with xing(site) as process:
        await site.seeded(kind=kind)
        assert json.loads((await site.annotations(kind=kind))[CHECKSUMS]) == json.loads(recorded(site, app="a"))
        assert STAMP not in await site.marks(kind=kind)
        with RequestLog(site.client) as log:
            await site.source(mode="b")
            await site.restarted(1, kind=kind)
            await settled(process)
        assert len([write for write in log.writes if write.startswith("PATCH ") and f"/{kind.lower()}s/" in write]) == 1
        assert json.loads((await site.annotations(kind=kind))[CHECKSUMS]) == json.loads(recorded(site, app="b"))
        assert len((await site.marks(kind=kind))[STAMP]) == len("Mar  5 14:03:09")


@pytest.mark.parametrize(
    ("mode", "restarts"), [("a", 0), ("old", 1)], ids=["checksum of now", "checksum of something else"]
)
async def test_xing_recorded_checksums_say_what_was_missed(site, mode, restarts):
    await site.source(mode="a")
    await site.workload(annotations={ENABLED: "enabled", CHECKSUMS: f"\n{recorded(site, app=mode)}\n"})
    async with xing(site) as process:
        await site.seeded()
        await site.restarted(restarts)
        await settled(process)
        assert await site.restarts() == restarts
        assert json.loads((await site.annotations())[CHECKSUMS]) == json.loads(recorded(site, app="a"))


@pytest.mark.parametrize("junk", ["null", "[]", "junk", '{"configmap/x/y":1}', ""])
async def test_xing_checksums_that_cannot_be_read_are_as_none_and_stop_nothing_else(site, junk):
    await site.source(mode="a")
    await site.workload(annotations={ENABLED: "enabled", CHECKSUMS: junk})
    await site.workload("other", annotations={ENABLED: "enabled"})
    async with xing(site):
        await site.seeded()
        await site.seeded("other")
        await site.source(mode="b")
        await site.restarted(1)
        await site.restarted(1, "other")
        assert json.loads((await site.annotations())[CHECKSUMS]) == json.loads(recorded(site, app="b"))


@pytest.mark.parametrize("value", ["disabled", "Enabled", "true", ""])
async def test_xing_any_other_value_than_enabled_takes_no_part(site, value):
    await site.source(mode="a")
    await site.workload("out", annotations={ENABLED: value})
    await site.workload("web", annotations={ENABLED: "enabled"})
    async with xing(site) as process:
        await site.seeded()
        await site.source(mode="b")
        await site.restarted(1)
        await settled(process)
        assert APPLIED not in await site.annotations("out")
        assert CHECKSUMS not in await site.annotations("out")
        assert scraped(process, "deployment_restart_controller_deployments_total") == 1


async def test_xing_a_change_within_the_grace_period_is_flushed_at_the_end(site):
    await site.source(mode="a")
    await site.workload(annotations={ENABLED: "enabled"})
    async with xing(site, "-r", "3600") as process:
        await site.seeded()
        await site.source(mode="b")
        await eventually(
            lambda: scraped(process, "deployment_restart_controller_changes_waiting_total") == 1, timeout=LONG
        )
        assert await site.restarts() == 0
    assert await site.restarts() == 1


async def test_xing_an_error_of_one_workload_stops_neither_the_process_nor_the_others(site):
    await site.source(mode="a")
    for name in ("bad", "good"):
        await site.workload(name, annotations={ENABLED: "enabled"})
    async with xing(site, "--ignored-errors", "boom"):
        await site.seeded("bad")
        await site.seeded("good")
        with refusing(site.client, "PATCH", "/deployments/bad", ServerError("boom", code=500), times=1):
            await site.source(mode="b")
            await site.restarted(1, "good")
            await site.restarted(1, "bad")


async def test_xing_wiped_checksums_are_written_again_without_a_restart(site):
    await site.source(mode="a")
    await site.workload(annotations={ENABLED: "enabled"})
    async with xing(site) as process:
        await site.seeded()
        await site.client.patch(
            APPS["Deployment"],
            "web",
            {"metadata": {"annotations": {CHECKSUMS: None, APPLIED: None}}},
            namespace=site.namespace,
        )

        async def restored():
            return CHECKSUMS in await site.annotations()

        await eventually(restored, "they are back", timeout=LONG)
        await settled(process)
        assert await site.restarts() == 0


async def test_xing_a_source_that_was_deleted_and_made_again_goes_on_restarting(site):
    await site.source(mode="a")
    await site.workload(annotations={ENABLED: "enabled"})
    async with xing(site) as process:
        await site.seeded()
        await site.delete_source()
        await settled(process)
        await site.source(mode="a")
        await settled(process)
        assert await site.restarts() == 0
        await site.source(mode="b")
        await site.restarted(1)


async def test_xing_a_secret_and_references_the_original_never_saw_restart_too(site):
    await site.source("app", kind="Secret", mode="a")
    pod = {
        "initContainers": [{"name": "init", "image": "web:1", "envFrom": [{"secretRef": {"name": "app"}}]}],
        "containers": [{"name": "main", "image": "web:1"}],
    }
    await site.workload(annotations={ENABLED: "enabled"}, pod=pod)
    async with xing(site):
        await site.seeded()
        await site.source("app", kind="Secret", mode="b")
        await site.restarted(1)
        assert (await site.marks())[RESTARTED_FOR] == "secret/app#mode"


# ------------------------------------------------------------------------------------------------ rivals and the shadow
async def rival(site, name="stakater-reloader-lock", holder="rival-0", namespace=None):
    now = format_micro_time(1_900_000_000.0)  # as if its clock were far ahead: only that it changes counts
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=3600, renew_time=now)
    meta = ObjectMeta(name=name, namespace=namespace or site.namespace)
    return await site.client.create(Lease(metadata=meta, spec=spec))


@pytest.mark.parametrize("name", ["stakater-reloader-lock", "reloader-leader-election", "wave"])
async def test_while_a_conflicting_controller_leads_nothing_is_written_and_when_it_is_gone_nothing_was_lost(site, name):
    await site.source(labels=env(), mode="a")
    await site.workload(labels=env(), template={HASH: ShipshapeHash()(CM, {"mode": "old"}, None)})
    await rival(site, name)
    async with shipshape(site) as process:
        with RequestLog(site.client) as log:
            await settled(process)
            problem = await eventually(lambda: process.manager.ready()["reload rivals"], timeout=LONG)
            assert f"rival-0 leads as {'wave' if name == 'wave' else 'Reloader'}" in problem
            assert scraped(process, "steersman_reload_rival") == 1
            assert log.writes == []
        await site.client.delete(Lease, name, namespace=site.namespace)
        await site.restarted(1)
        assert process.manager.ready()["reload rivals"] is None


async def test_a_lease_in_a_tenant_namespace_holds_that_namespace_and_no_other(site):
    theirs = Site(site.client, f"{site.namespace}-theirs")
    await site.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": theirs.namespace}})
    for place in (site, theirs):
        await place.source(mode="a")
        await place.workload(annotations={ENABLED: "enabled"})
    await rival(theirs)
    async with station(site.client, site.namespace, "xing", ("-r", "0"), further=[theirs.namespace]) as process:
        await site.seeded()
        await settled(process)
        await eventually(lambda: scraped(process, "steersman_reload_rival_namespaces") == 1, timeout=LONG)
        assert process.manager.ready()["reload rivals"] is None
        await theirs.source(mode="b")
        await site.source(mode="b")
        await site.restarted(1)
        assert APPLIED not in await theirs.annotations()
        await site.client.delete(Lease, "stakater-reloader-lock", namespace=theirs.namespace)
        await theirs.seeded()


async def test_in_the_shadow_nothing_is_written_and_decisions_are_reported(site):
    await site.source(mode="a")
    await site.workload(annotations={ENABLED: "enabled"})
    async with station(site.client, site.namespace, "xing", ("-r", "0"), shadow=True) as process:
        await settled(process)
        with RequestLog(site.client) as log:
            await site.source(mode="b")
            async with aiohttp.ClientSession() as session:

                async def ours():
                    url = f"http://127.0.0.1:{process.manager.health.port}/api/reload/shadow"
                    async with session.get(url) as response:
                        return (await response.json())["waiting"] == 1

                await eventually(ours, "our restart waits for its counterpart", timeout=LONG)
        assert [write for write in log.writes if "/deployments/" in write] == []
        assert APPLIED not in await site.annotations()


# ------------------------------------------------------------------------------------------------------------ reloader
async def test_reloader_counts_every_event_and_how_long_it_all_took(site):
    await site.source(mode="a")
    await site.workload(annotations={"reloader.stakater.com/auto": "true"})
    async with station(site.client, site.namespace, "reloader") as process:
        await site.seeded()
        await site.source(mode="b")
        await site.restarted(1)
        await site.delete_source()

        def deleted():
            labels = {"event_type": "delete", "resource_type": "configmaps"}
            return scraped(process, "reloader_events_received_total", **labels)

        assert await eventually(deleted, "the deletion is counted", timeout=LONG) == 1
        labels = {"event_type": "update", "resource_type": "configmaps"}
        assert scraped(process, "reloader_events_received_total", **labels) == 1
        assert scraped(process, "reloader_reconcile_duration_seconds_count", result="success") >= 2
        assert scraped(process, "reloader_workqueue_latency_seconds_count") >= 2
        assert scraped(process, "reloader_action_latency_seconds_count", workload_kind="Deployment") == 1


async def test_a_profile_asks_the_server_whether_it_may_read_namespaces(client, cluster):
    assert (await with_namespaces(read_profile("wave", (), {}), client)).config.options().watch_namespaces
