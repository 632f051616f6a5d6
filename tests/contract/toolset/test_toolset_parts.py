"""A ConfigMap that is too large for one object, and names: other people's, and the longest there are."""

from __future__ import annotations

import yaml

from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types import ConfigMap
from steersman.operators.toolset.api.config import BACKUP_SUFFIX
from steersman.operators.toolset.render.merge import join_files
from steersman.testing import eventually
from tests.support.states import every_state

NAME = "kubernaut-toolset-config"
PROMETHEUS = {"labels": {"app": "prometheus"}, "ports": [("web", 9090)]}


async def test_a_configmap_splits_grows_and_joins_again_and_no_key_is_ever_missing(site):
    names = [f"prometheus-{number}" for number in range(8)]
    for name in names[:2]:
        await site.add(name, **PROMETHEUS)

    def keys_of(state):
        found = {key for one in state.values() for key in one.data or ()}
        return {key for key in found if key.startswith("prometheus-") and key.endswith("-toolset.yaml")}

    async def until(passing, count, *, split):
        """Read states until there are so many toolsets; meanwhile those of services that stay are in all of them."""
        async for everything in passing:
            ours = {NAME, *(f"{NAME}-{number}" for number in range(1, 10))}
            state = {name: one for name, one in everything.items() if name in ours}
            keys, base = keys_of(state), state[NAME]
            assert stay <= keys, stay - keys
            parts = yaml.safe_load(base.data["index.yaml"])["parts"] if "index.yaml" in base.data else []
            for part in parts:
                assert {*part["keys"]} - leaving <= (state[part["configMap"]].data or {}).keys()
            if len(keys) == count and bool(parts) == split and len(state) == 1 + len(parts):
                return [base, *(state[part["configMap"]] for part in parts)]
        raise AssertionError("the watch ended")

    leaving: set[str] = set()  # their part is written before the index that names them
    async with site.running(max_bytes=3000):
        stay = {*await site.has("prometheus-toolset.yaml")} - {"kubernetes-toolset.yaml", "custom_toolset.yaml"}
        assert len(stay) == 2
        async with every_state(site.client, ConfigMap, namespace=site.namespace) as passing:
            for name in names[2:]:
                await site.add(name, **PROMETHEUS)
            files = [one.data["custom_toolset.yaml"] for one in await until(passing, 8, split=True)]
            joined = yaml.safe_load(join_files(files))
            assert len(joined["toolsets"]["prometheus/metrics"]["config"]["instances"]) == 8
            await site.told("Split")
            leaving = {f"prometheus-{site.namespace}-{name}-toolset.yaml" for name in names[1:]}
            for name in names[1:]:
                await site.remove(name)
            stay = {"prometheus-toolset.yaml"}
            await until(passing, 1, split=False)


async def test_configmaps_that_only_have_the_names_of_a_part_and_a_copy_stay_as_they_are(site):
    names = [f"{NAME}-1", f"{NAME}{BACKUP_SUFFIX}"]
    for name in names:
        meta = ObjectMeta(name=name, namespace=site.namespace)
        await site.client.create(ConfigMap(metadata=meta, data={"mine": "1"}), field_manager="somebody")
    before = [await site.target(name) for name in names]
    async with site.running():
        await site.has("kubernetes-toolset.yaml")
        await site.told("NameTaken")
    assert [await site.target(name) for name in names] == before


async def test_a_name_that_is_taken_before_a_part_needs_it_is_not_used(site):
    names = [f"prometheus-{number}" for number in range(8)]
    for name in names[:2]:
        await site.add(name, **PROMETHEUS)
    async with site.running(max_bytes=3000):
        await site.has("prometheus-toolset.yaml")  # it has looked for parts, and found none
        meta = ObjectMeta(name=f"{NAME}-1", namespace=site.namespace)
        await site.client.create(ConfigMap(metadata=meta, data={"mine": "1"}), field_manager="somebody")
        before = await site.target(f"{NAME}-1")
        for name in names[2:]:
            await site.add(name, **PROMETHEUS)

        async def complete():
            parts = [part["part"] for part in yaml.safe_load((await site.data())["index.yaml"])["parts"]]
            keys = {key for part in parts for key in await site.data(f"{NAME}-{part}")}
            assert len([key for key in keys if key.startswith("prometheus-")]) == 8, keys
            return parts

        async def split():
            return "index.yaml" in await site.data() and await complete()

        parts = await eventually(split, "all of them are in other parts", timeout=90)
        assert 1 not in parts
        await site.told("NameTaken")
    async with site.running(max_bytes=3000):  # a new process finds its parts behind the foreign one
        await site.counted("toolset_configmap_reconcile_total", operation="noop", status="success")
        for name in names[1:]:
            await site.remove(name)
        for part in parts:
            await eventually(lambda part=part: site.is_gone(f"{NAME}-{part}"), "the part is gone", timeout=90)
    assert await site.target(f"{NAME}-1") == before


async def test_names_and_keys_of_the_greatest_length_work(site):
    longest = "n" * (253 - len(BACKUP_SUFFIX))
    asked = {"toolset": "true", "toolset-type": "t" * 63, "toolset-name": "i" * 253}
    for name in ("s" * 63, "r" * 63):
        await site.add(name, annotations=asked, ports=[80])
    key = "k" * 248 + ".yaml"
    meta = ObjectMeta(name=longest, namespace=site.namespace)
    await site.client.create(ConfigMap(metadata=meta, data={key: "mine", "overrides.yaml": f"{'o' * 253}: {{}}\n"}))
    async with site.running(name=longest, max_bytes=2000):

        async def split():
            data = await site.data(longest)
            parts = yaml.safe_load(data["index.yaml"])["parts"] if "index.yaml" in data else []
            keys = {one for part in parts for one in await site.data(f"{longest}-{part['part']}")}
            found = {one for one in keys if one.startswith("t" * 63)}
            return data if len(found) == 2 else None

        data = await eventually(split, "both have a key each", timeout=90)
        assert data[key] == "mine"
        await site.told("UnmappableOverride")
        await site.has(key, name=f"{longest}{BACKUP_SUFFIX}")
