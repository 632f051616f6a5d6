"""A short life of an operator with the official Python client."""

from kubernetes import client, config, watch
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

leases.create_namespaced_lease(NAMESPACE, lease("first", 0))
held = leases.read_namespaced_lease("official-leader", NAMESPACE)
held.spec.holder_identity, held.spec.lease_transitions = "second", 1
taken = leases.replace_namespaced_lease("official-leader", NAMESPACE, held)
see("leads", holder=taken.spec.holder_identity, transitions=taken.spec.lease_transitions)
refused("lost the race", lambda: leases.replace_namespaced_lease("official-leader", NAMESPACE, held))
definitions.delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
see("done")
