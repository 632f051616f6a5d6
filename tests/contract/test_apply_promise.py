"""The promise of `ctx.apply`: it makes the fields of the object so, and touches no other."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steersman.kube.api.objects import ObjectMeta, Resource, Struct
from steersman.kube.client.client import Client
from steersman.kube.config.kubeconfig import load_config
from steersman.runtime.cluster import Cluster, ClusterSnapshot
from steersman.runtime.reconcile.context import ClusterContext
from tests.support.manifests import deployment

_numbers = itertools.count(1)


class PodSpec(Struct):
    termination_grace_period_seconds: int = 30
    host_network: bool = False
    scheduler_name: str = "default-scheduler"


class Template(Struct):
    spec: PodSpec = PodSpec()


class Spec(Struct):
    replicas: int = 1
    paused: bool = False
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    template: Template = Template()


class Deployment(Resource, group="apps", version="v1"):
    spec: Spec = Spec()


SPEC = {
    "replicas": st.sampled_from([1, 0, 7]),
    "paused": st.booleans(),
    "min_ready_seconds": st.sampled_from([0, 5]),
    "revision_history_limit": st.sampled_from([10, 3]),
}
POD = {
    "termination_grace_period_seconds": st.sampled_from([30, 0, 60]),
    "host_network": st.booleans(),
    "scheduler_name": st.sampled_from(["default-scheduler", "other"]),
}
DEFAULTS = {  # of the server, which are those of the types above
    "replicas": 1,
    "paused": False,
    "min_ready_seconds": 0,
    "revision_history_limit": 10,
    "termination_grace_period_seconds": 30,
    "host_network": False,
    "scheduler_name": "default-scheduler",
}
some_fields = st.fixed_dictionaries({}, optional=SPEC | POD)


def wanted(name: str, namespace: str, fields: dict[str, Any], *, assigned: bool) -> Deployment:
    """A Deployment that mentions exactly these fields, by construction or by assignment."""
    spec = {field: value for field, value in fields.items() if field in SPEC}
    pod = {field: value for field, value in fields.items() if field in POD}
    meta = ObjectMeta(name=name, namespace=namespace)
    if not assigned:
        parts = {"template": Template(spec=PodSpec(**pod))} if pod else {}
        return Deployment(metadata=meta, spec=Spec(**spec, **parts))
    made = Deployment(metadata=meta)
    for field, value in spec.items():
        setattr(made.spec, field, value)
    for field, value in pod.items():
        setattr(made.spec.template.spec, field, value)
    return made


def camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(part.title() for part in rest)


def on_the_wire(fields: dict[str, Any]) -> dict[str, Any]:
    spec = {camel(field): value for field, value in fields.items() if field in SPEC}
    return {**spec, "template": {"spec": {camel(field): value for field, value in fields.items() if field in POD}}}


def fields_of(found: dict[str, Any]) -> dict[str, Any]:
    spec, pod = found["spec"], found["spec"]["template"]["spec"]
    held = {field: spec.get(camel(field), DEFAULTS[field]) for field in SPEC}
    return held | {field: pod.get(camel(field), DEFAULTS[field]) for field in POD}


@pytest.fixture
async def client(cluster, tmp_path):
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    async with Client.connect(load_config(tmp_path / "kubeconfig")) as connected:
        yield connected


@pytest.mark.timeout(300)
@settings(max_examples=40, database=None, suppress_health_check=list(HealthCheck))
@given(theirs=some_fields, first=some_fields, second=some_fields, assigned=st.booleans())
async def test_what_is_mentioned_becomes_so_and_nothing_else_changes(client, ns, theirs, first, second, assigned):
    name, namespace = f"web-{next(_numbers)}", str(ns)
    body = deployment(name)
    body["metadata"]["namespace"] = namespace
    await client.create(body, field_manager="creator")
    others = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}}
    held = fields_of(
        await client.apply({**others, "spec": on_the_wire(theirs)}, field_manager="others", force=True, into=dict)
    )
    assert held == DEFAULTS | theirs
    ctx = ClusterContext(Cluster(client, None), ClusterSnapshot([], user="test"), field_manager="ours")
    shared = {field for field in theirs if field in first and theirs[field] == first[field]}
    for mentioned in (first, second):
        dropped = {field for field in first if mentioned is second and field not in second}
        await ctx.apply(wanted(name, namespace, mentioned, assigned=assigned), owner=None)
        expected = held | mentioned | {field: DEFAULTS[field] for field in dropped - shared}
        held = fields_of(await client.get(Deployment.KIND, name, namespace=namespace))
        assert held == expected
