"""How far another controller's Lease reaches, as both servers say: a pod that may act everywhere holds everything."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.times import format_micro_time
from steersman.kube.api.types import Lease
from steersman.kube.api.types.coordination import LeaseSpec
from steersman.operators.reload.compat.lease_conflict import LeaseConflictWatch
from steersman.testing import eventually

LIMIT = 60


class Tools:
    """A namespace in which somebody has installed Reloader, as nobody has documented."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace
        self.lease = f"lock-{namespace}"  # of its own: other tests of this run have other names

    async def install(self, *, bound):
        await self._create("v1", "ServiceAccount", "reloader", {})
        container = {"name": "main", "image": "reloader:1"}
        await self._create(
            "v1", "Pod", "reloader-0", {"spec": {"serviceAccountName": "reloader", "containers": [container]}}
        )
        if bound:
            rbac, name = "rbac.authorization.k8s.io/v1", f"reloader-{self.namespace}"
            rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["update", "patch"]}
            await self._create(rbac, "ClusterRole", name, {"rules": [rule]}, wide=True)
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            subject = {"kind": "ServiceAccount", "name": "reloader", "namespace": self.namespace}
            await self._create(rbac, "ClusterRoleBinding", name, {"roleRef": role, "subjects": [subject]}, wide=True)

    async def _create(self, version, kind, name, body, *, wide=False):
        meta = {"name": name, **({} if wide else {"namespace": self.namespace})}
        await self.client.create({"apiVersion": version, "kind": kind, "metadata": meta, **body})

    async def lead(self, holder):
        now = format_micro_time(1_900_000_000.0)  # as if its clock were far ahead: only that it changes counts
        spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=3600, renew_time=now)
        await self.client.create(Lease(metadata=ObjectMeta(name=self.lease, namespace=self.namespace), spec=spec))

    @asynccontextmanager
    async def watched(self):
        rivals = LeaseConflictWatch([self.lease], asks=True, registry=CollectorRegistry())
        task = asyncio.create_task(rivals.run(self.client))
        try:
            await asyncio.wait_for(rivals.all_observed.wait(), LIMIT)
            yield rivals
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def tools(client, cluster, namespace):
    return Tools(client, namespace)


async def test_a_conflicting_controller_that_may_act_everywhere_holds_everything_from_the_first_moment_on(tools):
    await tools.install(bound=True)
    await tools.lead("reloader-0")
    async with tools.watched() as rivals:
        assert "may patch deployments in all namespaces" in rivals.problem("elsewhere")
        await tools.client.delete(Lease, tools.lease, namespace=tools.namespace)
        await eventually(lambda: rivals.problem("elsewhere") is None, "nobody leads any more", timeout=LIMIT)


async def test_a_lease_whose_holder_is_not_a_pod_holds_its_namespace(tools):
    await tools.install(bound=True)
    await tools.lead("somebody")
    async with tools.watched() as rivals:
        assert rivals.problem("elsewhere") is None
        assert rivals.problem(tools.namespace) is not None


async def test_a_pod_without_such_rights_holds_its_namespace(tools):
    await tools.install(bound=False)
    await tools.lead("reloader-0")
    async with tools.watched() as rivals:
        assert rivals.problem("elsewhere") is None
        assert rivals.problem(tools.namespace) is not None
