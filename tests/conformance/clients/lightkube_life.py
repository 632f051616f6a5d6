"""A short life of an operator with lightkube, which applies on the server's side."""

import json

from lightkube import ApiError, Client, KubeConfig
from lightkube.codecs import load_all_yaml
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.coordination_v1 import Lease
from lightkube.types import PatchType
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

Widget = create_namespaced_resource(GROUP, VERSION, "Widget", PLURAL)
api = Client(config=KubeConfig.from_env(), namespace=NAMESPACE, field_manager="lightkube")


def refused(step, call):
    try:
        call()
    except ApiError as error:
        see_refusal(step, error.status.code, error.status.to_dict())
    else:
        see(step, code=200)


(definition,) = load_all_yaml(json.dumps(DEFINITION))
api.create(definition)
for _, live in api.watch(CustomResourceDefinition, fields={"metadata.name": f"{PLURAL}.{GROUP}"}):
    if is_established(live.to_dict()):
        break
see("established")
until_served(lambda: list(api.list(Widget)), ApiError)
see_object("applied", api.apply(Widget.from_dict(widget("a", size=1))).to_dict())
refused("applied by another", lambda: api.apply(Widget.from_dict(widget("a", size=2)), field_manager="other"))
live = api.apply(Widget.from_dict(widget("a", size=2)), field_manager="other", force=True)
see_object("applied by force", live.to_dict())
refused("invalid", lambda: api.create(Widget.from_dict(widget("b", size=0))))
stale = api.get(Widget, "a")
live = api.patch(Widget, "a", {"spec": {"color": "blue"}}, patch_type=PatchType.MERGE)
see_object("patched", live.to_dict())
refused("stale", lambda: api.replace(stale))
live = api.patch(Widget.Status, "a", {"status": {"ready": True}}, patch_type=PatchType.MERGE)
see_object("status", live.to_dict())
start = api.list(Widget)
list(start)
api.create(Widget.from_dict(widget("b", size=3)))
see("listed", names=[row.metadata.name for row in api.list(Widget, labels=LABELS)])
api.delete(Widget, "b")
seen = []
for kind, live in api.watch(Widget, resource_version=start.resourceVersion):
    seen.append(f"{kind} {live.metadata.name}")
    if len(seen) == 2:
        break
see("watched", events=seen)
api.deletecollection(Widget)
refused("gone", lambda: api.get(Widget, "a"))
api.create(Lease.from_dict(lease("first", 0)))
held = api.get(Lease, "lightkube-leader")
held.spec.holderIdentity = "second"
see("leads", holder=api.replace(held).spec.holderIdentity)
refused("lost the race", lambda: api.replace(held))
api.delete(CustomResourceDefinition, f"{PLURAL}.{GROUP}")
see("done")
