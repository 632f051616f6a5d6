"""A short life of an operator with kubernetes_asyncio, whose watch runs beside the writes."""

import asyncio

from kubernetes_asyncio import client, config, watch
from observations import (
    DEFINITION,
    GROUP,
    NAMESPACE,
    PLURAL,
    VERSION,
    is_established,
    lease,
    see,
    see_object,
    see_refusal,
    widget,
)  # fmt: skip

PLACE = (GROUP, VERSION, NAMESPACE, PLURAL)


async def refused(step, call):
    try:
        await call
    except client.ApiException as error:
        see_refusal(step, error.status, error.body)
    else:
        see(step, code=200)


async def first_list(widgets):
    """The resourceVersion to watch from; the real server answers 429 until it has a cache for a new kind."""
    while True:
        try:
            return (await widgets.list_namespaced_custom_object(*PLACE))["metadata"]["resourceVersion"]
        except client.ApiException as error:
            if error.status != 429:
                raise
        await asyncio.sleep(0.1)


async def follow(widgets, version, wanted):
    seen = []
    async with watch.Watch() as stream:
        async for event in stream.stream(
            widgets.list_namespaced_custom_object, *PLACE, resource_version=version, timeout_seconds=60
        ):
            seen.append(f"{event['type']} {event['object']['metadata']['name']}")
            if len(seen) == wanted:
                return seen
    return seen


async def main():
    await config.load_kube_config()
    async with client.ApiClient() as api:
        definitions, widgets = client.ApiextensionsV1Api(api), client.CustomObjectsApi(api)
        leases = client.CoordinationV1Api(api)
        await definitions.create_custom_resource_definition(DEFINITION)
        async with watch.Watch() as stream:
            name = f"metadata.name={PLURAL}.{GROUP}"
            async for event in stream.stream(definitions.list_custom_resource_definition, field_selector=name):
                if is_established(event["raw_object"]):
                    break
        see("established")
        start = await first_list(widgets)
        following = asyncio.create_task(follow(widgets, start, 5))
        see_object("created", await widgets.create_namespaced_custom_object(*PLACE, widget("a", size=1)))
        await refused("created again", widgets.create_namespaced_custom_object(*PLACE, widget("a", size=1)))
        await refused("invalid", widgets.create_namespaced_custom_object(*PLACE, widget("b", size=0)))
        stale = await widgets.get_namespaced_custom_object(*PLACE, "a")
        live = await widgets.patch_namespaced_custom_object(
            *PLACE, "a", {"spec": {"size": 2}}, _content_type="application/merge-patch+json"
        )
        see_object("patched", live)
        await refused("stale", widgets.replace_namespaced_custom_object(*PLACE, "a", stale))
        live = await widgets.patch_namespaced_custom_object_status(
            *PLACE, "a", {"status": {"ready": True}}, _content_type="application/merge-patch+json"
        )
        see_object("status", live)
        await widgets.create_namespaced_custom_object(*PLACE, widget("b", size=3))
        listed = await widgets.list_namespaced_custom_object(*PLACE, label_selector="app=shop")
        see("listed", names=[row["metadata"]["name"] for row in listed["items"]])
        await widgets.delete_namespaced_custom_object(*PLACE, "b")
        see("watched", events=await following)
        await widgets.delete_collection_namespaced_custom_object(*PLACE, label_selector="app=shop")
        await refused("gone", widgets.get_namespaced_custom_object(*PLACE, "a"))
        await leases.create_namespaced_lease(NAMESPACE, lease("first", 0))
        held = await leases.read_namespaced_lease("asyncio-leader", NAMESPACE)
        held.spec.holder_identity = "second"
        taken = await leases.replace_namespaced_lease("asyncio-leader", NAMESPACE, held)
        see("leads", holder=taken.spec.holder_identity)
        await refused("lost the race", leases.replace_namespaced_lease("asyncio-leader", NAMESPACE, held))
        await definitions.delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
        see("done")


asyncio.run(main())
