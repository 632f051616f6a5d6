"""The example with everything, on both servers."""

import pytest

import steersman as sm
from steersman.testing import eventually, running_least_privilege


def database(example, namespace, **spec):
    return example.Database(
        metadata=sm.ObjectMeta(name="orders", namespace=namespace), spec=example.Database.Spec(version="17", **spec)
    )


async def test_a_database_has_its_parts_and_says_how_it_is_doing(installed, client, cluster, namespace):
    (controller,) = installed.controllers()
    async with running_least_privilege(cluster, controller, namespace=namespace):
        await client.create(database(installed, namespace))

        async def starting():
            live = await client.get(installed.Database, "orders", namespace=namespace)
            return live.status.phase == "Starting" and live.status.conditions

        (news,) = await eventually(starting)
        assert (news.type, news.status, news.reason) == ("Ready", "False", "Starting")
        for kind in (sm.Secret, sm.Service, sm.StatefulSet):
            assert (await client.get(kind, "orders", namespace=namespace)).metadata.owner_references

        ready = {"status": {"replicas": 1, "readyReplicas": 1}}
        await client.patch(sm.StatefulSet, "orders", ready, namespace=namespace, subresource="status")

        async def serving():
            return (await client.get(installed.Database, "orders", namespace=namespace)).status.phase == "Ready"

        await eventually(serving)


@pytest.mark.parametrize(("on_delete", "left"), [("Keep", 1), ("Delete", 0)])
async def test_volumes_are_deleted_only_when_that_was_asked_for(installed, client, cluster, namespace, on_delete, left):
    (controller,) = installed.controllers()
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-orders-0",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/instance": "orders"},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    async with running_least_privilege(cluster, controller, namespace=namespace):
        await client.create(database(installed, namespace, on_delete=on_delete))
        await client.create(claim)

        async def held():
            live = await client.get(installed.Database, "orders", namespace=namespace)
            return installed.FINALIZER in (live.metadata.finalizers or ())

        await eventually(held)
        await client.delete(installed.Database, "orders", namespace=namespace)

        async def gone():
            listing = await client.list(installed.Database, namespace=namespace)
            return not listing.items

        await eventually(gone)
        claims = await client.list(installed.VOLUMES, namespace=namespace)
        assert len([c for c in claims.items if "deletionTimestamp" not in c["metadata"]]) == left


# The webhook, as the API server calls it


async def test_shrinking_is_refused(installed, steersman_webhooks, client, cluster, namespace):
    await steersman_webhooks(installed.volumes_never_shrink)
    await eventually(lambda: client.create(database(installed, namespace, storage="10Gi")))
    with pytest.raises(sm.Invalid, match=r"spec\.storage: cannot shrink from 10Gi to 5Gi"):
        await client.patch(installed.Database, "orders", {"spec": {"storage": "5Gi"}}, namespace=namespace)
    await client.patch(installed.Database, "orders", {"spec": {"storage": "20Gi"}}, namespace=namespace)
