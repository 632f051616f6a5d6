"""Small objects for tests: each builder writes what the kind needs to be valid, and you say only what matters.

Every builder takes `**meta`, which becomes metadata (`labels={…}`, `finalizers=[…]`). Names of metadata fields are
Kubernetes' own, so what you write is what is sent. Nothing here talks to a server.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "WIDGET_SCHEMA",
    "Manifest",
    "Space",
    "configmap",
    "container",
    "crd",
    "cronjob",
    "deployment",
    "job",
    "owner",
    "pod",
    "secret",
    "service",
    "widget",
    "widgets_crd",
]

Manifest = dict[str, Any]


class Space(str):
    """A namespace that knows the paths inside it.

    >>> Space("shop").core("configmaps/a")
    '/api/v1/namespaces/shop/configmaps/a'
    >>> Space("shop").at("apps/v1", "deployments/web", "scale")
    '/apis/apps/v1/namespaces/shop/deployments/web/scale'
    """

    __slots__ = ()

    def core(self, *parts: str) -> str:
        """A path of the core group."""
        return "/".join(("/api/v1/namespaces", self, *parts))

    def at(self, group_version: str, *parts: str) -> str:
        """A path of a named group."""
        return "/".join(("/apis", group_version, "namespaces", self, *parts))


def _object(api_version: str, kind: str, name: str | None, meta: Manifest, **rest: Any) -> Manifest:
    named = {} if name is None else {"name": name}
    fields = {key: value for key, value in rest.items() if value is not None}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**named, **meta}, **fields}


def configmap(name: str | None = "settings", data: Manifest | None = None, **meta: Any) -> Manifest:
    """A ConfigMap; `data` may be left out."""
    return _object("v1", "ConfigMap", name, meta, data=data)


def secret(name: str | None = "token", string_data: Manifest | None = None, **meta: Any) -> Manifest:
    """An Opaque Secret from plain text."""
    return _object("v1", "Secret", name, meta, stringData=string_data)


def container(name: str = "main", image: str = "registry.example/app:1", **fields: Any) -> Manifest:
    """One container of a pod."""
    return {"name": name, "image": image, **fields}


def pod(name: str | None = "pod", *, spec: Manifest | None = None, **meta: Any) -> Manifest:
    """A pod of one container that asks for no service-account token."""
    spec = {"containers": [container()], "automountServiceAccountToken": False} | (spec or {})
    return _object("v1", "Pod", name, meta, spec=spec)


def service(name: str | None = "web", *, spec: Manifest | None = None, **meta: Any) -> Manifest:
    """A ClusterIP service on port 80."""
    return _object(
        "v1", "Service", name, meta, spec={"ports": [{"port": 80}], "selector": {"app": "web"}} | (spec or {})
    )


def deployment(
    name: str = "web", *, spec: Manifest | None = None, pod_spec: Manifest | None = None, **meta: Any
) -> Manifest:
    """A Deployment selecting `app: NAME` with one container."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container()]} | (pod_spec or {})}
    return _object(
        "apps/v1",
        "Deployment",
        name,
        meta,
        spec={"selector": {"matchLabels": labels}, "template": template} | (spec or {}),
    )


def job(name: str | None = "job", *, spec: Manifest | None = None, **meta: Any) -> Manifest:
    """A Job of one container that never restarts."""
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    return _object("batch/v1", "Job", name, meta, spec={"template": template} | (spec or {}))


def cronjob(name: str = "cron", schedule: str = "*/5 * * * *", **meta: Any) -> Manifest:
    """A CronJob around `job`."""
    template = {"spec": job(None)["spec"]}
    return _object("batch/v1", "CronJob", name, meta, spec={"schedule": schedule, "jobTemplate": template})


def owner(of: Manifest, *, block: bool | None = None, controller: bool | None = None) -> Manifest:
    """An owner reference to a live object."""
    flags = {"blockOwnerDeletion": block, "controller": controller}
    return {
        "apiVersion": of["apiVersion"],
        "kind": of["kind"],
        "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"],
    } | {key: value for key, value in flags.items() if value is not None}


def crd(
    kind: str,
    *,
    group: str,
    schema: Manifest,
    scope: str = "Namespaced",
    names: Manifest | None = None,
    versions: list[Manifest] | None = None,
    **version: Any,
) -> Manifest:
    """A CustomResourceDefinition with one version `v1` of this schema, or with the versions given."""
    plural = kind.lower() + "s"
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}} | version
    spec = {
        "group": group,
        "scope": scope,
        "names": {"plural": plural, "kind": kind} | (names or {}),
        "versions": versions or [one],
    }
    return _object("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{plural}.{group}", {}, spec=spec)


_PORT = {
    "type": "object",
    "required": ["port", "protocol"],
    "properties": {
        "port": {"type": "integer", "minimum": 1},
        "protocol": {"type": "string", "default": "TCP"},
        "note": {"type": "string"},
    },
}

WIDGET_SCHEMA: Manifest = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
                "color": {"type": "string", "enum": ["red", "green", "blue"]},
                "title": {"type": "string", "maxLength": 12, "minLength": 2, "pattern": "^[a-z]+$"},
                "replicas": {"type": "integer"},
                "ratio": {"type": "number"},
                "on": {"type": "boolean"},
                "limit": {"x-kubernetes-int-or-string": True},
                "maybe": {"type": "string", "nullable": True},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "words": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
                "ports": {
                    "type": "array",
                    "items": _PORT,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                },
                "pairs": {"type": "object", "additionalProperties": {"type": "string"}},
                "frozen": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "nested": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "level": {"type": "integer", "default": 3}},
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
                "phase": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["type"],
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                },
            },
        },
    },
}


def widgets_crd(group: str, **changes: Any) -> Manifest:
    """A CRD `Widget` that has one field of every kind the structural schema knows, status and scale included."""
    return crd(
        "Widget",
        group=group,
        schema=WIDGET_SCHEMA,
        names={"shortNames": ["wd"], "categories": ["contract"]},
        **{
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "how big"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            **changes,
        },
    )


def widget(group: str, name: str = "w", spec: Manifest | None = None, **meta: Any) -> Manifest:
    """A Widget of `widgets_crd(group)`."""
    return _object(f"{group}/v1", "Widget", name, meta, spec=spec)
