"""An operator with everything: children, a finalizer, conditions, events, and a webhook.

A Database is a Secret with its address, a Service and a StatefulSet. When it is deleted, its volumes are kept unless
`spec.onDelete` says Delete; the finalizer makes sure of that before the object goes.

steersman crds examples/database.py | kubectl apply -f -
steersman webhooks examples/database.py --host 127.0.0.1:9443 | kubectl apply -f -
steersman run examples/database.py --webhooks
"""

from typing import Annotated, Any, Literal

import steersman as sm

FINALIZER = "example.org/volumes"
VOLUMES = sm.Kind(version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")


class Database(sm.Resource, group="example.org", version="v1", short_names=("db",)):
    """A database with storage of its own."""

    class Spec(sm.Struct):
        """What to run, and what becomes of the data."""

        version: Annotated[str, sm.Pattern(r"^\d+(\.\d+)?$"), sm.Column("Version")]
        """The version of the server, such as 17 or 17.2."""
        storage: Annotated[str, sm.Pattern(r"^\d+(Mi|Gi|Ti)$")] = "1Gi"
        """The size of its volume, which can grow and never shrink."""
        on_delete: Literal["Keep", "Delete"] = "Keep"
        """Whether the volumes stay when the Database is deleted."""

    class Status(sm.Struct):
        """How it is doing."""

        phase: Annotated[str, sm.Column("Phase")] = ""
        """Starting or Ready."""
        conditions: list[sm.Condition] | None = None
        """`Ready` says whether it answers."""

    spec: Spec
    status: Status = Status()


@sm.validate(Database)
async def volumes_never_shrink(request: sm.AdmissionRequest[Database]) -> None:
    """Storage can grow; shrinking it would lose data, so it is refused before it is stored."""
    if request.old is None or request.new is None:
        return
    old, new = (sm.Quantity.parse(database.spec.storage) for database in (request.old, request.new))
    if new < old:
        raise sm.Denied(f"cannot shrink from {old} to {new}", field="spec.storage")


async def reconcile(ctx: sm.Context, database: Database) -> sm.Result:
    """Children first, then what they say."""
    for child in children(database):
        await ctx.apply(child)
    live = ctx.cache[sm.StatefulSet].get(database.ref)
    ready = live is not None and live.status.ready_replicas == 1
    if ready and database.status.phase != "Ready":
        ctx.event(database, "Ready", f"version {database.spec.version} answers")
    news = sm.new_condition(
        "Ready",
        ready,
        "Serving" if ready else "Starting",
        "" if ready else "waiting for the pod",
        generation=database.metadata.generation,
    )
    conditions = sm.set_conditions(database.status.conditions, news, now=ctx.clock.time())
    await ctx.status(database, phase="Ready" if ready else "Starting", conditions=conditions)
    return sm.done


async def clean_up(ctx: sm.Context, database: Database) -> sm.Result:
    """Before a Database goes: delete its volumes if that was asked for."""
    if database.spec.on_delete == "Delete":
        selector = f"app.kubernetes.io/instance={database.name}"
        await ctx.client.delete_collection(VOLUMES, namespace=database.namespace, label_selector=selector)
    return sm.done


def children(database: Database) -> list[dict[str, Any]]:
    """The objects a Database consists of."""
    metadata = {"name": database.name, "namespace": database.namespace}
    labels = {"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": database.name}
    address = {"host": f"{database.name}.{database.namespace}.svc", "port": "5432"}
    pod = {"containers": [{"name": "server", "image": f"postgres:{database.spec.version}"}]}
    volume = {
        "metadata": {"name": "data", "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": database.spec.storage}},
        },
    }
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": address},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": "None", "selector": labels, "ports": [{"name": "sql", "port": 5432}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {
                "serviceName": database.name,
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
                "volumeClaimTemplates": [volume],
            },
        },
    ]


def controllers() -> list[sm.Controller]:
    """What `steersman run` runs."""
    return [
        sm.Controller(Database, reconcile)
        .when(sm.generation | sm.deletion_started)
        .owns(sm.Secret, sm.Service, sm.StatefulSet)
        .finalizer(FINALIZER, clean_up),
    ]
