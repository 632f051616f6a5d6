"""One operator across two clusters: ConfigMaps that say so here are kept equal there.

steersman run examples/mirror.py --cluster there=CONTEXT

A ConfigMap with the annotation `example.org/mirror: "true"` is copied to the same namespace of the other cluster, a
copy that somebody changes there is put right again, and one whose original is gone is removed. Only copies that carry
our label are ever touched.
"""

import steersman as sm

WANTED = "example.org/mirror"
COPY = "example.org/mirrored"


async def mirror(ctx: sm.Context, ref: sm.NamespacedName) -> sm.Result:
    """Make the copy of one ConfigMap what it should be."""
    there = ctx.clusters["there"]
    original = ctx.cache[sm.ConfigMap].get(ref)
    copy = there.cache[sm.ConfigMap].get(ref)
    if original is not None and original.annotations.get(WANTED) == "true":
        await there.apply(copy_of(original))
    elif copy is not None:
        await there.delete(copy)
    return sm.done


def copy_of(original: sm.ConfigMap) -> sm.ConfigMap:
    """The copy, marked as one."""
    metadata = sm.ObjectMeta(name=original.name, namespace=original.namespace, labels={COPY: "true"})
    return sm.ConfigMap(metadata=metadata, data=original.data, binary_data=original.binary_data)


def itself(config: sm.ConfigMap) -> list[sm.NamespacedName]:
    """Original and copy have the same name."""
    return [config.ref]


def controllers() -> list[sm.Controller]:
    """What `steersman run` runs."""
    return [
        sm.Controller(None, mirror, "mirror")
        .watches(sm.ConfigMap, to=itself)
        .watches(sm.ConfigMap, to=itself, label_selector=f"{COPY}=true", cluster="there")
    ]
