"""A short life of a kopf operator: create, field and delete handlers, a daemon, a finalizer, a child and status."""

import asyncio
import threading

import kopf
from kubernetes import client, config, watch
from observations import DEFINITION, GROUP, NAMESPACE, PLURAL, VERSION, is_established, see, until_served, widget

HANDLED = "kopf.zalando.org/last-handled-configuration"
PLACE = (GROUP, VERSION, NAMESPACE, PLURAL)
config.load_kube_config()
definitions, widgets, core = client.ApiextensionsV1Api(), client.CustomObjectsApi(), client.CoreV1Api()
handled = []


@kopf.on.startup()
def quiet(settings, **_):
    settings.posting.enabled = False


@kopf.on.create(GROUP, VERSION, PLURAL)
def created(body, spec, patch, **_):
    child = {"metadata": {"name": body["metadata"]["name"]}, "data": {"size": str(spec["size"])}}
    kopf.adopt(child)
    core.create_namespaced_config_map(NAMESPACE, child)
    patch.status["ready"] = True


@kopf.on.field(GROUP, VERSION, PLURAL, field="spec.size")
def resized(old, new, **_):
    handled.append(f"size {old} -> {new}")


@kopf.on.delete(GROUP, VERSION, PLURAL)
def deleted(name, **_):
    handled.append(f"deleted {name}")


@kopf.daemon(GROUP, VERSION, PLURAL)
async def stay(stopped, **_):
    await stopped.wait()
    handled.append("daemon ended")


definitions.create_custom_resource_definition(DEFINITION)
for event in watch.Watch().stream(
    definitions.list_custom_resource_definition, field_selector=f"metadata.name={PLURAL}.{GROUP}", timeout_seconds=60
):
    if is_established(event["raw_object"]):
        break

until_served(lambda: widgets.list_namespaced_custom_object(*PLACE), client.ApiException)
ready, stop = threading.Event(), threading.Event()


def operate():
    asyncio.run(kopf.operator(namespaces=[NAMESPACE], standalone=True, ready_flag=ready, stop_flag=stop))


operator = threading.Thread(target=operate)
operator.start()
ready.wait(60)
widgets.create_namespaced_custom_object(*PLACE, widget("a", size=1))
resize = True
for event in watch.Watch().stream(widgets.list_namespaced_custom_object, *PLACE, timeout_seconds=120):
    live = event["object"]
    if event["type"] == "DELETED":
        break
    # kopf calls its handlers in several rounds; a change in between would be part of the creation
    is_handled = HANDLED in live["metadata"].get("annotations", {})
    if live.get("status", {}).get("ready") and is_handled and resize:
        resize = False
        see("ready", finalizers=live["metadata"]["finalizers"], spec=live["spec"])
        child = core.read_namespaced_config_map("a", NAMESPACE)
        see("child", data=child.data, owners=[f"{row.kind} {row.name}" for row in child.metadata.owner_references])
        widgets.patch_namespaced_custom_object(*PLACE, "a", {"spec": {"size": 2}})
    if "size 1 -> 2" in handled and not live["metadata"].get("deletionTimestamp"):
        widgets.delete_namespaced_custom_object(*PLACE, "a")
stop.set()
operator.join(60)
see("handled", rows=sorted(set(handled)), ended=not operator.is_alive())
definitions.delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
see("done")
