"""A short life of an operator with kr8s."""

import kr8s
from kr8s.objects import new_class
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

api = kr8s.api(namespace=NAMESPACE)
Definition = new_class(
    "CustomResourceDefinition", "apiextensions.k8s.io/v1", namespaced=False, plural="customresourcedefinitions"
)
Lease = new_class("Lease", "coordination.k8s.io/v1", namespaced=True, plural="leases")
Widget = new_class("Widget", f"{GROUP}/{VERSION}", namespaced=True, plural=PLURAL)
Definition.singular, Lease.singular, Widget.singular = "customresourcedefinition", "lease", "widget"


def refused(step, call):
    try:
        call()
    except kr8s.ServerError as error:
        see_refusal(step, error.response.status_code, error.response.text)
    except kr8s.NotFoundError:
        see(step, code=404)
    else:
        see(step, code=200)


definition = Definition(DEFINITION, api=api)
definition.create()
while not is_established(definition.raw):
    definition.refresh()
see("established")
until_served(lambda: list(kr8s.get(Widget, namespace=NAMESPACE, api=api)), kr8s.ServerError)
first = Widget(widget("a", size=1), api=api)
first.create()
see_object("created", first.raw)
refused("created again", lambda: Widget(widget("a", size=1), api=api).create())
refused("invalid", lambda: Widget(widget("b", size=0), api=api).create())
first.patch({"spec": {"size": 2}})
see_object("patched", first.raw)
first.patch({"status": {"ready": True}}, subresource="status")
see_object("status", first.raw)
first.label(tier="front")
see("labelled", labels=dict(first.labels))
Widget(widget("b", size=3), api=api).create()
found = kr8s.get(Widget, namespace=NAMESPACE, label_selector=LABELS, api=api)
see("listed", names=sorted(row.name for row in found))
seen = []
for kind, live in api.watch(Widget, namespace=NAMESPACE):
    seen.append(f"{kind} {live.name}")
    if len(seen) == 2:
        live.delete()
    if len(seen) == 3:
        break
see("watched", events=[seen[0], seen[1], seen[2].split()[0]])
for row in kr8s.get(Widget, namespace=NAMESPACE, api=api):
    row.delete()
    row.wait("delete")
see("left", names=[row.name for row in kr8s.get(Widget, namespace=NAMESPACE, api=api)])
refused("gone", first.refresh)
held = Lease(lease("first", 0), api=api)
held.create()
held.patch({"spec": {"holderIdentity": "second"}})
see("leads", holder=held.spec.holderIdentity)
definition.delete()
see("done")
