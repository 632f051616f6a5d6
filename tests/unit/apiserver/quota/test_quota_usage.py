"""What is kept of a quota's usage is what a count of all objects comes to."""

from __future__ import annotations

from random import Random

import pytest

from steersman.apiserver.quota.quota_usage import RESOURCE_QUOTA, QuotaUsage
from steersman.apiserver.quota.resource_quotas import namespace_usage
from steersman.apiserver.storage.store import Store
from steersman.kube.api.gvk import Kind
from steersman.testing.clock import VirtualClock
from tests.support.manifests import container, pod

PODS = Kind(version="v1", kind="Pod", plural="pods")
HARD = {"pods": "9", "requests.cpu": "9", "count/pods": "9", "count/resourcequotas": "9"}


def quota(namespace="a", name="most", **hard):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard or HARD}}


def sized(namespace, name, cpu, phase):
    made = pod(name, namespace=namespace, spec={"containers": [container(resources={"requests": {"cpu": cpu}})]})
    return {**made, "status": {"phase": phase}}


def counted(store, limited):
    namespace = limited["metadata"]["namespace"]
    return namespace_usage(limited, lambda name: [record.obj for record in store.find_table(name).scan(namespace)])


@pytest.mark.parametrize("seed", range(20))
def test_usage_is_that_of_a_count_after_any_changes(seed):
    random, store = Random(seed), Store(VirtualClock())
    usage, pods, quotas = QuotaUsage(store), store.table(PODS), store.table(RESOURCE_QUOTA)
    for _ in range(60):
        namespace, name = random.choice("ab"), random.choice("xyz")
        key = f"{namespace}/{name}"
        match random.randrange(6):
            case 0 if key in pods.records:
                store.remove(pods, key)
            case 1:
                store.put(quotas, f"{namespace}/most", quota(namespace, **random.choice([{}, {"pods": "1"}])))
            case 2 if f"{namespace}/most" in quotas.records:
                store.remove(quotas, f"{namespace}/most")
            case _:
                cpu, phase = random.choice(["100m", "1", "2500m"]), random.choice(["Running", "Succeeded"])
                store.put(pods, key, sized(namespace, name, cpu, phase))
        for record in quotas.scan():
            assert usage.of(record.obj) == counted(store, record.obj)


def test_objects_are_counted_once_and_then_never_again():
    store = Store(VirtualClock())
    usage, pods = QuotaUsage(store), store.table(PODS)
    limited = store.put(store.table(RESOURCE_QUOTA), "a/most", quota()).obj
    for number in range(5):
        store.put(pods, f"a/x{number}", sized("a", f"x{number}", "1", "Running"))
    first = usage.of(limited)
    pods.records.clear()  # nothing can be counted any more
    pods.keys.clear()
    store.put(pods, "a/y", sized("a", "y", "1", "Running"))
    assert usage.of(limited) is first
    assert str(first["pods"]) == "6"
