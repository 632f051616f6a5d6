"""The example across two clusters: an embedded server is the other one."""

import steersman as sm
from steersman.apiserver import EmbeddedServer
from steersman.testing import eventually, running


async def test_a_copy_follows_its_original(example, client, cluster, namespace, tmp_path):
    async with EmbeddedServer() as other:
        other.write_kubeconfig(tmp_path / "other")
        async with sm.Client.connect(sm.load_config(tmp_path / "other")) as there:
            await there.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            (mirror,) = example.controllers()
            async with running(client, mirror.within([namespace]), clusters={"there": there}):
                meta = sm.ObjectMeta(name="menu", namespace=namespace, annotations={example.WANTED: "true"})
                await client.create(sm.ConfigMap(metadata=meta, data={"soup": "3"}))

                async def copied(value):
                    try:
                        copy = await there.get(sm.ConfigMap, "menu", namespace=namespace)
                    except sm.NotFound:
                        return value is None
                    return copy.data == value

                await eventually(lambda: copied({"soup": "3"}))
                await there.patch(sm.ConfigMap, "menu", {"data": {"soup": "free"}}, namespace=namespace)
                await eventually(lambda: copied({"soup": "3"}))
                await client.delete(sm.ConfigMap, "menu", namespace=namespace)
                await eventually(lambda: copied(None))
