"""Sources that are watched one by one, on both API servers: where nobody may list them, or nobody should."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.errors import Forbidden
from steersman.kube.api.gvk import Kind, NamespacedName
from steersman.kube.api.types import Event
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import KindConfig, ReloadOptions, RestartBudget, SourceKind, Window
from steersman.operators.reload.compat.dialects.wave import ENABLED, Wave
from steersman.operators.reload.controllers.setup import controllers
from steersman.operators.reload.planning.snapshot import read_totals
from steersman.operators.reload.planning.state import read_state
from steersman.testing import eventually, running
from tests.support.reload.profiles import refusing

DEPLOYMENTS = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
REFUSED = Forbidden("secrets is forbidden", code=403)
LONG = 60.0  # seconds a fact may take on a busy machine


class Site:
    """A namespace with an operator."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    def running(self, by_name="refused", names=None):
        options = ReloadOptions(
            window=Window(quiet=timedelta(0), limit=timedelta(0)),
            budget=RestartBudget(restarts=0),
            kinds=(KindConfig(kind="Deployment"),),
            namespaces=frozenset({self.namespace}),
            configmaps_by_name=by_name,
            secrets_by_name=by_name,
            names=names or {},
        )
        return running(self.client, *controllers(options, dialects=[Wave()], registry=CollectorRegistry()))

    async def source(self, name, value, kind="Secret"):
        data = {"key": b64encode(value.encode()).decode() if kind == "Secret" else value}
        meta = {"name": name, "namespace": self.namespace}
        body = {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": data}
        await self.client.apply(body, field_manager="test", force=True)

    def pod(self, *secrets, optional=False):
        sources = [{"secretRef": {"name": name, "optional": optional}} for name in secrets]
        return {"containers": [{"name": "main", "image": "web:1", "envFrom": sources}]}

    async def workload(self, *secrets, name="web", optional=False, **annotations):
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": self.pod(*secrets, optional=optional)}
        annotations["steersman.dev/reload"] = "auto"
        meta = {"name": name, "namespace": self.namespace, "annotations": annotations}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        await self.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})

    async def state(self, name="web"):
        found = await self.client.get(DEPLOYMENTS, name, namespace=self.namespace)
        return read_state((found["metadata"].get("annotations") or {}).get(APPLIED)).applied

    async def applied(self, *sources, name="web"):
        async def applied():
            state = await self.state(name)
            assert state is not None
            assert sorted(state.sources) == sorted(sources)
            return True

        await eventually(applied, f"{name} is seeded with {sources}", timeout=LONG)

    async def restarted(self, times, name="web"):
        async def restarted():
            return len((await self.state(name)).restarts) == times

        await eventually(restarted, f"{name} is restarted {times} times", timeout=LONG)

    async def told(self, reason):
        async def told():
            listing = await self.client.list(Event, namespace=self.namespace)
            return [event.message for event in listing.items if event.reason == reason]

        return await eventually(told, f"somebody is told {reason}", timeout=LONG)


def secrets_of(manager):
    """Where Secrets come from."""
    (informer,) = [cach for cach in manager.cluster().caches if cach.kind.plural == "secrets"]
    return informer


def names_of(manager):
    """The Secrets that are in memory."""
    with secrets_of(manager).snapshot() as snapshot:
        return [one.name for one in snapshot]


@pytest.fixture
def site(client, cluster, namespace):
    return Site(client, namespace)


async def test_where_a_list_is_refused_the_names_in_use_are_watched_and_no_other(site):
    for name in ("db", "unused"):
        await site.source(name, "a")
    await site.workload("db")
    with refusing(site.client, "GET", "/secrets", REFUSED, unless="metadata.name=") as refused:
        async with site.running() as manager:
            await site.applied("secret/db")
            await site.source("unused", "b")
            await site.source("db", "b")
            await site.restarted(1)
            assert names_of(manager) == ["db"]
            assert {name: why for name, why in manager.ready().items() if why} == {}
    assert refused  # it was asked for the whole list first


async def test_references_that_come_and_go_take_their_watches_with_them(site):
    for name in ("old", "new"):
        await site.source(name, "a")
    await site.workload("old")
    async with site.running("always") as manager:
        await site.applied("secret/old")
        body = {"spec": {"template": {"spec": site.pod("new")}}}
        await site.client.patch(DEPLOYMENTS, "web", body, namespace=site.namespace)
        await site.applied("secret/new")
        await eventually(lambda: names_of(manager) == ["new"], timeout=LONG)
        await site.source("old", "b")
        await site.source("new", "b")
        await site.restarted(1)
        await site.client.delete(DEPLOYMENTS, "web", namespace=site.namespace)
        await eventually(lambda: names_of(manager) == [], timeout=LONG)


async def test_what_is_seen_for_the_first_time_restarts_nothing_and_what_appears_later_does(site):
    await site.workload("db", "later", optional=True)
    await site.source("db", "a")  # newer than the workload: by revisions it could be a change
    async with site.running("always"):
        await site.applied("secret/db", "secret/later")
        assert (await site.state()).restarts == ()
        await site.source("later", "a")
        await site.restarted(1)


async def test_nothing_is_lost_between_two_processes_that_watch_by_name(site):
    await site.source("db", "a")
    await site.workload("db")
    async with site.running("always"):
        await site.applied("secret/db")
    await site.source("db", "b")
    async with site.running("always"):
        await site.restarted(1)


async def test_a_name_that_may_not_be_read_is_reported_and_its_workload_waits_while_others_go_on(site):
    for name in ("db", "closed"):
        await site.source(name, "a")
    await site.workload("db")
    await site.workload("closed", name="shut", optional=True)
    with refusing(site.client, "GET", "/secrets", REFUSED, unless="metadata.name=db"):
        async with site.running():
            await site.applied("secret/db")
            (message,) = await site.told("SourceUnreadable")
            assert message.startswith("secret/closed cannot be read: ")
            await site.source("db", "b")
            await site.restarted(1)
            assert await site.state("shut") is None


async def test_with_a_list_of_names_no_other_is_asked_for(site):
    for name in ("db", "closed"):
        await site.source(name, "a")
    await site.workload("db", "closed")
    async with site.running("always", {SourceKind.SECRET: frozenset({"db"})}) as manager:
        await site.applied("secret/db")
        assert names_of(manager) == ["db"]
        await site.source("db", "b")
        await site.restarted(1)


async def test_when_the_right_to_list_is_granted_later_nothing_is_lost_and_nothing_restarts(site):
    for name in ("db", "unused"):
        await site.source(name, "a")
    await site.workload("db")
    with refusing(site.client, "GET", "/secrets", REFUSED, unless="metadata.name=", times=2):
        async with site.running() as manager:
            await site.applied("secret/db")
            await eventually(lambda: names_of(manager) == ["db", "unused"], "the list is read", timeout=LONG)
            assert (await site.state()).restarts == ()
            await site.source("db", "b")
            await site.restarted(1)


async def test_a_name_that_becomes_known_during_a_reconcile_is_not_taken_for_missing(site, monkeypatch):
    managers = []

    async def slowly(client, workload, dialects):
        if workload.name == "slow":
            ref = NamespacedName("db", site.namespace)
            await eventually(
                lambda: managers and secrets_of(managers[0]).is_synced_for(ref), "db is known", timeout=LONG
            )
        return await read_totals(client, workload, dialects)

    monkeypatch.setattr("steersman.operators.reload.controllers.reconciler.read_totals", slowly)
    await site.source("db", "a")
    await site.workload("db", name="slow", optional=True, **{ENABLED: "true"})
    await site.workload("db", name="web")
    async with site.running("always") as manager:
        managers.append(manager)
        await site.applied("secret/db", name="web")
        digest = (await site.state()).sources["secret/db"]

        async def same():
            state = await site.state("slow")
            return state is not None and state.sources.get("secret/db") == digest

        await eventually(same, "slow is seeded as web is", timeout=LONG)
        assert (await site.state("slow")).restarts == ()
