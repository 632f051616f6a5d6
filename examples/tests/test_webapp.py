"""The first example, on both servers."""

import steersman as sm
from steersman.testing import RequestLog, eventually, running, running_least_privilege


async def ready(client, target, name, namespace):
    try:
        return await client.get(target, name, namespace=namespace)
    except sm.NotFound:
        return None


async def test_a_webapp_becomes_a_deployment_and_drift_is_put_right(installed, client, cluster, namespace):
    app = installed.WebApp(
        metadata=sm.ObjectMeta(name="shop", namespace=namespace), spec=installed.WebApp.Spec(image="shop:1", replicas=2)
    )
    async with running_least_privilege(cluster, installed.webapp, namespace=namespace):
        await client.create(app)
        live = await eventually(lambda: ready(client, sm.Deployment, "shop", namespace))
        assert live.spec.replicas == 2
        assert live.metadata.owner_references[0].kind == "WebApp"

        async def looked_at():
            return (await client.get(installed.WebApp.KIND, "shop", namespace=namespace)).get("status")

        assert await eventually(looked_at) == {"ready": False}  # said, and not just left out
        await client.patch(sm.Deployment, "shop", {"spec": {"replicas": 9}}, namespace=namespace)

        async def repaired():
            return (await client.get(sm.Deployment, "shop", namespace=namespace)).spec.replicas == 2

        await eventually(repaired)


async def test_nothing_is_written_when_nothing_differs(installed, client, cluster, namespace):
    app = installed.WebApp(
        metadata=sm.ObjectMeta(name="still", namespace=namespace), spec=installed.WebApp.Spec(image="shop:1")
    )
    await client.create(app)
    async with running(client, installed.webapp.within([namespace])) as manager:
        await eventually(lambda: ready(client, sm.Deployment, "still", namespace))
        engine = manager.runner("webapp")
        await eventually(lambda: len(engine.queue) == engine.queue.processing == 0)
        with RequestLog(client) as log:
            before = engine.tally.seconds.count
            engine.add(app.ref)
            await eventually(lambda: engine.tally.seconds.count > before)
            assert log.writes == []
