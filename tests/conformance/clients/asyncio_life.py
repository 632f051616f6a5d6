"""A short life of an operator with kubernetes_asyncio, whose watch runs beside the writes."""

import asyncio

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.leaderelection.electionconfig import Config
from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock
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


async def apply(widgets):
    """Two managers apply the same field."""

    async def applied(manager, size, **options):
        """The widget after an apply; the client does not read the answer to one that creates."""
        await widgets.patch_namespaced_custom_object(
            *PLACE,
            "d",
            widget("d", size=size),
            field_manager=manager,
            _content_type="application/apply-patch+yaml",
            **options,
        )
        return await widgets.get_namespaced_custom_object(*PLACE, "d")

    see_object("applied", await applied("first", 1))
    await refused("applied by another", applied("second", 2))
    see_object("applied by force", await applied("second", 2, force=True))
    await widgets.delete_namespaced_custom_object(*PLACE, "d")


async def lead(api, candidate):
    """Lead with the elector of the package until its task is cancelled; the next one waits for the Lease to expire."""
    leading = asyncio.Event()

    async def work():
        leading.set()

    lock = LeaseLock("asyncio-elected", NAMESPACE, candidate, api)
    settings = Config(lock, 3, 2, 1, onstarted_leading=work, onstopped_leading=None)
    election = asyncio.create_task(LeaderElection(settings).run())
    await leading.wait()
    election.cancel()
    spec = (await client.CoordinationV1Api(api).read_namespaced_lease("asyncio-elected", NAMESPACE)).spec
    see(
        "elected", holder=spec.holder_identity, seconds=spec.lease_duration_seconds, renewed=spec.renew_time is not None
    )


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
        await apply(widgets)
        await lead(api, "first")
        await lead(api, "second")
        await leases.create_namespaced_lease(NAMESPACE, lease("first", 0))
        held = await leases.read_namespaced_lease("asyncio-leader", NAMESPACE)
        held.spec.holder_identity = "second"
        taken = await leases.replace_namespaced_lease("asyncio-leader", NAMESPACE, held)
        see("leads", holder=taken.spec.holder_identity)
        await refused("lost the race", leases.replace_namespaced_lease("asyncio-leader", NAMESPACE, held))
        await definitions.delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
        see("done")


asyncio.run(main())
