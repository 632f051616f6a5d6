"""What commands see of other namespaces, and what they say when they may not look there."""

from __future__ import annotations

import re
import time
from contextlib import asynccontextmanager, contextmanager, nullcontext

import pytest
from prometheus_client import CollectorRegistry

from steersman.cli.manifest_files import Manifests
from steersman.cli.reload.audit import _read as audit
from steersman.cli.reload.inspection import events_of
from steersman.cli.reload.plan import _live, headline
from steersman.cli.reload.why import _ask
from steersman.crd import crd_manifest
from steersman.kube.api.errors import Forbidden
from steersman.kube.api.types import Deployment
from steersman.operators.reload.api.config import ReloadConfig
from steersman.operators.reload.api.policy import ClusterReloadPolicy, ReloadPolicy
from steersman.operators.reload.controllers.setup import operator
from steersman.operators.reload.inspect.audit import Auditor
from steersman.operators.reload.workloads.kinds import BUILT_IN
from steersman.testing import eventually, running

pytestmark = pytest.mark.timeout(300)
RESOURCES = re.compile(r"/(?:api/v1|apis/[^/]+/[^/]+)/(?P<rest>.+)")
LONG = 60.0


def configmap(namespace, mode, **marks):
    meta = {"name": "app", "namespace": namespace, "annotations": marks}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"mode": mode}}


def deployment(namespace, name, **marks):
    source = {"configMapRef": {"name": "app", "optional": True}}
    container = {"name": "main", "image": "web:1", "envFrom": [source]}
    labels = {"app": name}
    meta = {"name": name, "namespace": namespace, "annotations": {"steersman.dev/reload": "auto", **marks}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


@contextmanager
def confined(client, namespace):
    """As one who has rights in a namespace and nowhere else."""
    transport = client.transport
    forward = transport.request

    async def request(verb, path, **options):
        found = RESOURCES.fullmatch(path)
        if found is not None and not found["rest"].startswith(f"namespaces/{namespace}/"):
            raise Forbidden(f"{verb} {path} is forbidden", code=403)
        return await forward(verb, path, **options)

    transport.request = request
    try:
        yield
    finally:
        del transport.request


@pytest.fixture
async def elsewhere(cluster, client, namespace):
    """Another namespace."""
    name = f"{namespace}-other"
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@asynccontextmanager
async def at_work(client, *workloads, **config):
    """The operator in the namespaces of these workloads, which it has taken in."""
    spaces = tuple(sorted({workload["metadata"]["namespace"] for workload in workloads}))
    made = ReloadConfig(quiet_period="0s", max_delay="0s", namespaces=spaces, kinds=("Deployment",), **config)
    for one in workloads:
        await client.create(one)
    async with running(client, *operator(made, registry=CollectorRegistry())):
        for one in workloads:
            await eventually(lambda one=one: applied(client, one), "it is seeded", timeout=LONG)
        yield


async def found(client, one):
    meta = one["metadata"]
    return await client.get(Deployment, meta["name"], namespace=meta["namespace"])


async def applied(client, one):
    return (await found(client, one)).annotations.get("steersman.dev/applied")


async def restarted(client, one):
    marks = (await found(client, one)).spec.template.metadata.annotations or {}
    return "steersman.dev/restarted-at" in marks


async def why(client, namespace, name, **config):
    options = ReloadConfig(quiet_period="0s", max_delay="0s", kinds=("Deployment",), **config).options()
    return await _ask(nullcontext(client), options, "deployment", name, namespace)


async def change(client, source):
    await client.apply(source, field_manager="test", force=True)


async def test_why_sees_a_lower_wave_in_an_agreed_namespace_that_goes_first(client, namespace, elsewhere):
    await client.create(configmap(elsewhere, "a", **{"steersman.dev/share-with": namespace}))
    first = deployment(elsewhere, "web", **{"steersman.dev/order-with": namespace})
    shares = {"steersman.dev/wave": "1", "steersman.dev/reload-extra": f"configmap/{elsewhere}/app"}
    shares["steersman.dev/order-with"] = elsewhere
    async with at_work(client, first, deployment(namespace, "api", **shares)):
        await change(client, configmap(elsewhere, "b", **{"steersman.dev/share-with": namespace}))
        await eventually(lambda: restarted(client, first), "the first wave restarts", timeout=LONG)
        told = await why(client, namespace, "api")
        assert told.pending.gate == "wave"
        expected = f"restart pending: wave 0 goes first: deployment/{elsewhere}/web: it is being restarted"
        assert told.verdict == expected
        assert told.problems == ()


async def test_why_counts_restarts_of_other_namespaces_where_the_cluster_has_a_limit(client, namespace, elsewhere):
    for home in (namespace, elsewhere):
        await client.create(configmap(home, "a"))
    first, second = deployment(elsewhere, "web"), deployment(namespace, "api")
    async with at_work(client, first, second, max_concurrent=1):
        await change(client, configmap(elsewhere, "b"))
        await eventually(lambda: restarted(client, first), "the first one restarts", timeout=LONG)
        await change(client, configmap(namespace, "b"))
        told = await why(client, namespace, "api", max_concurrent=1)
        assert (told.pending.gate, told.problems) == ("concurrency", ())
        assert told.pending.reason == "at most 1 rollouts at once in the cluster"
        with confined(client, namespace):
            blind = await why(client, namespace, "api", max_concurrent=1)
        assert blind.pending.sources == ("configmap/app#mode",)
        assert any(problem.startswith("restarts in other namespaces count") for problem in blind.problems)
        assert sum("annotations of namespaces" in problem for problem in blind.problems) == 1
        assert not await restarted(client, second)


async def foretold(client, namespace, *manifests):
    given = Manifests(tuple((f"file:{place}", one) for place, one in enumerate(manifests)))
    options = ReloadConfig(kinds=("Deployment",)).options()
    return await _live(nullcontext(client), options, given, namespace, time.time())


async def test_an_audit_says_what_it_could_not_read(cluster, client, namespace):
    await client.create(deployment(namespace, "web"))
    options = ReloadConfig(kinds=("Deployment",)).options()
    with confined(client, namespace):
        stale, unseen = await audit(nullcontext(client), options, namespace, all_namespaces=False)
    assert stale == []
    assert any("annotations of namespaces may say more" in text for text in unseen)


async def test_events_that_may_not_be_read_are_reported_as_missing(cluster, client, namespace, elsewhere):
    unseen = []
    with confined(client, elsewhere):
        assert await events_of(client, namespace, unseen=unseen) == []
    assert unseen[0].startswith("Events cannot be read")


async def test_a_plan_with_rights_to_one_namespace_answers_for_it_and_says_what_it_did_not_see(
    cluster, client, namespace
):
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace, "web"))
    with confined(client, namespace):
        changed = await foretold(client, namespace, configmap(namespace, "b"))
        same = await foretold(client, namespace, configmap(namespace, "a"))
    assert [one.workload.name for one in changed.changes] == ["web"]
    assert [one.workload.name for one in same.unaffected] == ["web"]
    for made in (changed, same):
        assert not made.problems
        assert any(one.startswith("workloads of other namespaces may use these sources") for one in made.unseen)
        assert any(one.startswith("annotations of namespaces may say more") for one in made.unseen)


async def test_a_plan_that_may_not_read_the_sources_themselves_says_so_as_a_problem(cluster, client, namespace):
    await client.create(deployment(namespace, "web"))
    with confined(client, "nowhere"):
        made = await foretold(client, namespace, configmap(namespace, "b"))
    assert not made.changes
    assert headline(made).startswith("unknown whether anything would restart; ")
    told = [problem.message for problem in made.problems]
    assert any(message.startswith(f"configmaps of namespace {namespace} cannot be read: ") for message in told)
    assert any(message.startswith(f"deployments of namespace {namespace} cannot be read: ") for message in told)


async def test_an_empty_plan_reads_nothing(cluster, client, namespace):
    await client.create(configmap(namespace, "a"))
    await client.create(deployment(namespace, "web"))
    made = await foretold(client, namespace)
    assert (made.changes, made.unaffected) == ((), ())


async def test_a_plan_for_a_namespace_that_does_not_exist_yet_is_made(cluster, client, namespace):
    fresh = f"{namespace}-fresh"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": fresh}}
    made = await foretold(client, namespace, space, configmap(fresh, "a"), deployment(fresh, "web"))
    assert [one.workload.name for one in made.unaffected] == ["web"]
    assert not made.problems


async def test_stale_pods_are_counted_with_rights_to_one_namespace(cluster, client, namespace):
    for kind in (ReloadPolicy, ClusterReloadPolicy):
        await client.apply(crd_manifest(kind), field_manager="test", force=True)
    served = [*(one.kind for one in BUILT_IN), ReloadPolicy.KIND, ClusterReloadPolicy.KIND]
    await eventually(lambda: client.list(ReloadPolicy, namespace=namespace), "the kinds are served", timeout=LONG)
    auditor = Auditor(ReloadConfig(namespaces=(namespace,)).options(), installed(served), CollectorRegistry())
    with confined(client, namespace):
        assert await auditor.count(client) == {}


def installed(kinds):
    """Those of every cluster, and ours."""
    return [kind for kind in kinds if kind.group in ("apps", "batch", "steersman.dev")]


@contextmanager
def barred(client, resource, *names):
    """As one who may read no object of a kind, or only those with these names."""
    transport = client.transport
    forward = transport.request

    async def request(verb, path, **options):
        query = dict(options.get("params") or {})
        named = str(query.get("fieldSelector", ""))
        if f"/{resource}" in path and not any(f"metadata.name={name}" in named.split(",") for name in names):
            raise Forbidden(f"{verb} {path} is forbidden", code=403)
        return await forward(verb, path, **options)

    transport.request = request
    try:
        yield
    finally:
        transport.request = forward


@pytest.mark.parametrize(
    ("config", "resource", "names"),
    [
        ({"config_maps": False}, "configmaps", ()),
        ({"secrets": False}, "secrets", ()),
        ({"config_map_names": ("app",)}, "configmaps", ("app",)),
        ({"secret_names": ("db", "tls")}, "secrets", ("db", "tls")),
    ],
)
async def test_stale_pods_are_counted_without_rights_to_sources_that_are_not_watched(
    cluster, client, namespace, config, resource, names
):
    await client.create(configmap(namespace, "a"))
    auditor = Auditor(ReloadConfig(namespaces=(namespace,), **config).options(), (), CollectorRegistry())
    with barred(client, resource, *names):
        assert await auditor.count(client) == {}
