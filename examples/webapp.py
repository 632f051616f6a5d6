"""A first operator: a WebApp is a Deployment, and says whether it is ready.

steersman crds examples/webapp.py | kubectl apply -f -
steersman run examples/webapp.py
"""

from typing import Annotated

import steersman as sm


class WebApp(sm.Resource, group="example.org", version="v1", short_names=("wa",)):
    """A web application."""

    class Spec(sm.Struct):
        """What to run."""

        image: str
        """The image of its container."""
        replicas: Annotated[int, sm.Ge(1)] = 1
        """How many pods to run."""

    class Status(sm.Struct):
        """How it is doing."""

        ready: Annotated[bool, sm.Column("Ready")] = False
        """Whether all pods are ready."""

    spec: Spec
    status: Status | None = None  # until the first reconcile


@sm.controller(WebApp, owns=[sm.Deployment])
async def webapp(ctx: sm.Context, app: WebApp) -> sm.Result:
    """Keep one Deployment per WebApp, and report whether all replicas are ready."""
    await ctx.apply(deployment_for(app))  # server-side apply; no request when nothing differs
    live = ctx.cache[sm.Deployment].get(app.ref)
    ready = live is not None and live.status.ready_replicas == app.spec.replicas
    await ctx.status(app, ready=ready)
    return sm.done


def deployment_for(app: WebApp) -> dict[str, object]:
    """The Deployment a WebApp asks for; a pure function, so it needs no cluster to be tested."""
    labels = {"app.kubernetes.io/name": app.name}
    container = {"name": "web", "image": app.spec.image}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app.name, "namespace": app.namespace},
        "spec": {
            "replicas": app.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
