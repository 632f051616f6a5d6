"""A short life of an operator with the official Python client."""

import queue

from kubernetes import client, config, watch
from kubernetes.informer import SharedInformer
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from observations import (
    DEFINITION,
    GROUP,
    LABELS,
    NAMESPACE,
    PLURAL,
    VERSION,
    is_established,
    lease,
    see,
    see_object,
    see_refusal,
    until_served,
    widget,
)  # fmt: skip

config.load_kube_config()
plain = client.ApiClient()
definitions = client.ApiextensionsV1Api()
widgets = client.CustomObjectsApi()
leases = client.CoordinationV1Api()
PLACE = (GROUP, VERSION, NAMESPACE, PLURAL)
APPLY = "application/apply-patch+yaml"


def refused(step, call):
    try:
        call()
    except client.ApiException as error:
        see_refusal(step, error.status, error.body)
    else:
        see(step, code=200)


definitions.create_custom_resource_definition(DEFINITION)
for event in watch.Watch().stream(
    definitions.list_custom_resource_definition, field_selector=f"metadata.name={PLURAL}.{GROUP}", timeout_seconds=60
):
    if is_established(event["raw_object"]):
        break
see("established")
until_served(lambda: widgets.list_namespaced_custom_object(*PLACE), client.ApiException)

see_object("created", widgets.create_namespaced_custom_object(*PLACE, widget("a", size=1)))
refused("created again", lambda: widgets.create_namespaced_custom_object(*PLACE, widget("a", size=1)))
refused("invalid", lambda: widgets.create_namespaced_custom_object(*PLACE, widget("b", size=0)))
stale = widgets.get_namespaced_custom_object(*PLACE, "a")
see_object("patched", widgets.patch_namespaced_custom_object(*PLACE, "a", {"spec": {"size": 2}}))
refused("stale", lambda: widgets.replace_namespaced_custom_object(*PLACE, "a", stale))
live = widgets.patch_namespaced_custom_object_status(*PLACE, "a", {"status": {"ready": True}, "spec": {"size": 9}})
see_object("status", live)
widgets.create_namespaced_custom_object(*PLACE, widget("b", size=3))
listed = widgets.list_namespaced_custom_object(*PLACE, label_selector="app=shop")
see("listed", names=[row["metadata"]["name"] for row in listed["items"]])

widgets.delete_namespaced_custom_object(*PLACE, "b")
widgets.create_namespaced_custom_object(*PLACE, widget("c", size=4))
widgets.delete_collection_namespaced_custom_object(*PLACE, label_selector=f"app={LABELS['app']}")
seen = []
for event in watch.Watch().stream(
    widgets.list_namespaced_custom_object,
    *PLACE,
    resource_version=listed["metadata"]["resourceVersion"],
    timeout_seconds=60,
):
    seen.append(f"{event['type']} {event['object']['metadata']['name']}")
    if len(seen) == 4:
        break
see("watched", events=sorted(seen))
refused("gone", lambda: widgets.get_namespaced_custom_object(*PLACE, "a"))


def applied(manager, size, **options):
    """The widget after an apply; the client does not read the answer to one that creates."""
    widgets.patch_namespaced_custom_object(
        *PLACE, "d", widget("d", size=size), field_manager=manager, _content_type=APPLY, **options
    )
    return widgets.get_namespaced_custom_object(*PLACE, "d")


see_object("applied", applied("first", 1))
refused("applied by another", lambda: applied("second", 2))
live = applied("second", 2, force=True)
see_object("applied by force", live)
live["status"] = {"ready": True}
see_object("updated status", widgets.replace_namespaced_custom_object_status(*PLACE, "d", live))
widgets.delete_namespaced_custom_object(*PLACE, "d")


def inform():
    """Follow ConfigMaps with the informer of the package."""
    core, events = client.CoreV1Api(), queue.Queue()
    informer = SharedInformer(core.list_namespaced_config_map, namespace=NAMESPACE, label_selector="app=shop")
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, lambda obj, kind=kind: events.put(f"{kind} {obj.data['size']}"))
    made = {"metadata": {"name": "informed", "labels": LABELS}, "data": {"size": "1"}}
    core.create_namespaced_config_map(NAMESPACE, made)
    informer.start()
    seen = [events.get(timeout=60)]
    core.patch_namespaced_config_map("informed", NAMESPACE, {"data": {"size": "2"}})
    seen.append(events.get(timeout=60))
    cached = [known.data["size"] for known in informer.cache.list()]
    core.delete_namespaced_config_map("informed", NAMESPACE)
    seen.append(events.get(timeout=60))
    informer.stop()
    see("informed of configmaps", events=seen, cached=cached, left=len(informer.cache.list()))


def lead(candidate):
    """Lead with the elector of the package until the work fails; the next one waits for the Lease to expire."""

    def work():
        raise RuntimeError("steps down")

    lock = LeaseLock("official-elected", NAMESPACE, candidate)
    LeaderElection(Config(lock, 3, 2, 1, onstarted_leading=work, onstopped_leading=lambda: None)).run()
    spec = leases.read_namespaced_lease("official-elected", NAMESPACE).spec
    see(
        "elected", holder=spec.holder_identity, seconds=spec.lease_duration_seconds, renewed=spec.renew_time is not None
    )


inform()
lead("first")
lead("second")
leases.create_namespaced_lease(NAMESPACE, lease("first", 0))
held = leases.read_namespaced_lease("official-leader", NAMESPACE)
held.spec.holder_identity, held.spec.lease_transitions = "second", 1
taken = leases.replace_namespaced_lease("official-leader", NAMESPACE, held)
see("leads", holder=taken.spec.holder_identity, transitions=taken.spec.lease_transitions)
refused("lost the race", lambda: leases.replace_namespaced_lease("official-leader", NAMESPACE, held))
definitions.delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
see("done")
