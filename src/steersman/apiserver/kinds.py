"""What the server serves: one value per resource and version, and the one table of the built-in kinds.

`ResourceInfo` is everything the rest of the server may ask about a resource without looking at an object: its names,
scope, verbs and subresources, where it is stored, which changes raise `metadata.generation`, which fields a field
selector may name, and how strict updates are. A custom resource has the same value, made by `registry.py` from its
definition. Adding a built-in kind is one line in `BUILTINS`.

Invariant: values are immutable and their order is the order of discovery. What a kind's fields mean is not here: the
type is `info.schema`, its rules are in `rules.py`, its printed columns in `table.py`.
"""

from __future__ import annotations

import base64
import hashlib
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.kube.resources import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.apiserver.schema import Schema
    from steersman.apiserver.structural import Structural

__all__ = [
    "BINDING",
    "BUILTINS",
    "CRUD",
    "EVICTION",
    "SCALE",
    "TOKEN",
    "Column",
    "CustomType",
    "NameRule",
    "ResourceInfo",
    "ScalePaths",
    "Subresource",
]

CRUD = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
OBJECT_VERBS = ("get", "patch", "update")


class NameRule(StrEnum):
    """Which names the objects of a kind may have."""

    SUBDOMAIN = "subdomain"  # RFC 1123 subdomain: almost everything
    LABEL = "label"  # RFC 1123 label: namespaces, services, stateful sets
    SEGMENT = "segment"  # anything that fits in one path segment: roles and their bindings


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One printed column of a custom resource."""

    name: str
    type: str
    path: str  # JSONPath, with the leading dot
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where a resource keeps what its scale subresource shows; JSONPaths with the leading dot."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ""  # of a string in serialised selector form; "" when the resource has none


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """What a subresource answers to. Without a kind of its own it speaks the kind of its resource."""

    verbs: tuple[str, ...]
    kind: Kind | None = None


SCALE = Kind(group="autoscaling", version="v1", kind="Scale", plural="scale")
EVICTION = Kind(group="policy", version="v1", kind="Eviction", plural="eviction")
TOKEN = Kind(group="authentication.k8s.io", version="v1", kind="TokenRequest", plural="token")
BINDING = Kind(version="v1", kind="Binding", plural="binding")

SUBRESOURCES: Mapping[str, Subresource] = {
    "binding": Subresource(verbs=("create",), kind=BINDING),
    "eviction": Subresource(verbs=("create",), kind=EVICTION),
    "finalize": Subresource(verbs=("update",)),
    "scale": Subresource(verbs=OBJECT_VERBS, kind=SCALE),
    "status": Subresource(verbs=OBJECT_VERBS),
    "token": Subresource(verbs=("create",), kind=TOKEN),
}


class CustomType(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a custom resource that comes from one version of its definition."""

    definition: str  # name of the CustomResourceDefinition
    openapi: dict[str, Any]  # openAPIV3Schema as stored
    preserve_unknown: bool = False  # spec.preserveUnknownFields of an old definition


class ResourceInfo(msgspec.Struct, frozen=True, kw_only=True, dict=True, eq=False):
    """One resource in one version. Compared by identity: a changed definition gives a new value."""

    kind: Kind
    list_kind: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = CRUD
    subresources: tuple[str, ...] = ()  # in the order of discovery
    storage: Kind  # the version objects are kept in; resources that share it share their objects
    name_rule: NameRule = NameRule.SUBDOMAIN
    generation: tuple[str, ...] | None = None  # paths whose change raises it; () keeps it at 1; None has none
    selectable: tuple[str, ...] = ()  # fields that field selectors may name besides those of metadata
    create_on_update: bool = False  # PUT of a name that does not exist creates it
    unconditional_update: bool = True  # PUT without resourceVersion replaces whatever is there
    virtual: bool = False  # answered on the spot, never stored
    deprecation: str | None = None  # warning to send with every answer
    columns: tuple[Column, ...] = ()  # of a custom resource; built-in ones are in `table.py`
    scale: ScalePaths | None = None
    custom: CustomType | None = None

    @property
    def status(self) -> bool:
        """Whether `status` has an endpoint of its own, so that the main one leaves it alone."""
        return "status" in self.subresources

    @cached_property
    def storage_hash(self) -> str:
        """`storageVersionHash` of discovery; empty when nothing is stored."""
        if self.virtual:
            return ""
        stored = f"{self.storage.group}/{self.storage.version}/{self.storage.kind}"
        return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()

    @cached_property
    def schema(self) -> Schema:
        """The type, for server-side apply and patches. Loaded on first use."""
        from steersman.apiserver.schema import builtin_schema, custom_schema

        if self.custom is None:
            return builtin_schema(self.kind)
        return custom_schema(self.custom.openapi, status=self.status, preserve_unknown=self.custom.preserve_unknown)

    @cached_property
    def structural(self) -> Structural:
        """The compiled schema of a custom resource: validation, pruning, defaulting."""
        from steersman.apiserver.structural import Structural

        assert self.custom is not None
        return Structural.compile(self.custom.openapi, preserve=self.custom.preserve_unknown)

    def subresource(self, name: str) -> Subresource:
        """What subresource `name` of this resource answers to."""
        return SUBRESOURCES[name]

    def next_generation(self, old: dict[str, Any] | None, new: dict[str, Any]) -> int | None:
        """`metadata.generation` for `new` when it is stored over `old`; None when the kind keeps none."""
        if self.generation is None:
            return None
        if old is None:
            return 1
        current: int = old["metadata"].get("generation", 0)
        if "*" in self.generation:
            ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if self.status else set())
            changed = any(old.get(key) != new.get(key) for key in (old.keys() | new.keys()) - ignored)
        else:
            changed = any(_at(old, path) != _at(new, path) for path in self.generation)
        return current + 1 if changed else current


def _at(obj: dict[str, Any], path: str) -> Any:
    value: Any = obj
    for part in path.split("."):
        value = (value or {}).get(part)
    return value or None  # nothing and empty are the same here


def _builtin(
    group_version: str,
    kind: str,
    plural: str,
    short: str = "",
    *,
    cluster: bool = False,
    singular: str | None = None,
    subresources: str = "",
    categories: str = "",
    storage: str | None = None,
    **options: Any,
) -> ResourceInfo:
    """A row of the table. Names are space separated; `storage` is the group/version objects are kept in."""
    group, _, version = group_version.rpartition("/")
    stored_group, _, stored_version = (storage or group_version).rpartition("/")
    subs = tuple(subresources.split())
    return ResourceInfo(
        kind=Kind(group=group, version=version, kind=kind, plural=plural, namespaced=not cluster),
        list_kind=f"{kind}List",
        singular=kind.lower() if singular is None else singular,
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        subresources=subs,
        storage=Kind(group=stored_group, version=stored_version, kind=kind, plural=plural, namespaced=not cluster),
        scale=ScalePaths() if "scale" in subs else None,
        **options,
    )


_SPEC = ("spec",)
_REVIEW: dict[str, Any] = {"verbs": ("create",), "virtual": True}
_EVENT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_RBAC: dict[str, Any] = {"name_rule": NameRule.SEGMENT, "create_on_update": True}
_STRICT: dict[str, Any] = {"unconditional_update": False}
_NAMESPACE_VERBS = tuple(verb for verb in CRUD if verb != "deletecollection")
_ENDPOINTS = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"

# fmt: off
BUILTINS: tuple[ResourceInfo, ...] = (
    _builtin("v1", "Binding", "bindings", **_REVIEW),
    _builtin("v1", "ConfigMap", "configmaps", "cm"),
    _builtin("v1", "Endpoints", "endpoints", "ep", create_on_update=True, deprecation=_ENDPOINTS),
    _builtin("v1", "Event", "events", "ev", create_on_update=True,
             selectable=(*(f"involvedObject.{field}" for field in _EVENT_FIELDS),
                         "reason", "reportingComponent", "source", "type")),
    _builtin("v1", "LimitRange", "limitranges", "limits", create_on_update=True),
    _builtin("v1", "Namespace", "namespaces", "ns", cluster=True, subresources="finalize status",
             verbs=_NAMESPACE_VERBS, name_rule=NameRule.LABEL, selectable=("status.phase",)),
    _builtin("v1", "Node", "nodes", "no", cluster=True, subresources="status", selectable=("spec.unschedulable",)),
    _builtin("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", subresources="status"),
    _builtin("v1", "PersistentVolume", "persistentvolumes", "pv", cluster=True, subresources="status"),
    _builtin("v1", "Pod", "pods", "po", categories="all", subresources="binding eviction status", generation=_SPEC,
             selectable=("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
                         "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
                         "status.nominatedNodeName")),
    _builtin("v1", "PodTemplate", "podtemplates", generation=("template",)),
    _builtin("v1", "ReplicationController", "replicationcontrollers", "rc", categories="all",
             subresources="scale status", generation=_SPEC, selectable=("status.replicas",)),
    _builtin("v1", "ResourceQuota", "resourcequotas", "quota", subresources="status"),
    _builtin("v1", "Secret", "secrets", selectable=("type",)),
    _builtin("v1", "ServiceAccount", "serviceaccounts", "sa", subresources="token"),
    _builtin("v1", "Service", "services", "svc", categories="all", subresources="status", name_rule=NameRule.LABEL,
             create_on_update=True, selectable=("spec.clusterIP", "spec.type")),
    _builtin("apiregistration.k8s.io/v1", "APIService", "apiservices", cluster=True, categories="api-extensions",
             verbs=("get", "list"), virtual=True),
    _builtin("apps/v1", "ControllerRevision", "controllerrevisions"),
    _builtin("apps/v1", "DaemonSet", "daemonsets", "ds", categories="all", subresources="status", generation=_SPEC),
    _builtin("apps/v1", "Deployment", "deployments", "deploy", categories="all", subresources="scale status",
             generation=("spec", "metadata.annotations")),
    _builtin("apps/v1", "ReplicaSet", "replicasets", "rs", categories="all", subresources="scale status",
             generation=_SPEC),
    _builtin("apps/v1", "StatefulSet", "statefulsets", "sts", categories="all", subresources="scale status",
             generation=_SPEC, name_rule=NameRule.LABEL),
    _builtin("events.k8s.io/v1", "Event", "events", "ev", storage="v1", create_on_update=True,
             selectable=(*(f"regarding.{field}" for field in _EVENT_FIELDS),
                         "reason", "reportingController", "type")),
    _builtin("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", cluster=True, **_REVIEW),
    _builtin("authentication.k8s.io/v1", "TokenReview", "tokenreviews", cluster=True, **_REVIEW),
    _builtin("authorization.k8s.io/v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", **_REVIEW),
    _builtin("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", cluster=True, **_REVIEW),
    _builtin("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", cluster=True, **_REVIEW),
    _builtin("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", cluster=True, **_REVIEW),
    _builtin("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", categories="all",
             subresources="status"),
    _builtin("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", categories="all",
             subresources="status", storage="autoscaling/v2"),
    _builtin("batch/v1", "CronJob", "cronjobs", "cj", categories="all", subresources="status", generation=_SPEC),
    _builtin("batch/v1", "Job", "jobs", categories="all", subresources="status", generation=_SPEC,
             selectable=("status.successful",)),
    _builtin("networking.k8s.io/v1", "IngressClass", "ingressclasses", cluster=True, generation=_SPEC),
    _builtin("networking.k8s.io/v1", "Ingress", "ingresses", "ing", subresources="status", generation=_SPEC),
    _builtin("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "netpol", generation=_SPEC),
    _builtin("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", subresources="status",
             generation=_SPEC, **_STRICT),
    _builtin("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", cluster=True, **_RBAC),
    _builtin("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", cluster=True, **_RBAC),
    _builtin("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", **_RBAC),
    _builtin("rbac.authorization.k8s.io/v1", "Role", "roles", **_RBAC),
    _builtin("storage.k8s.io/v1", "StorageClass", "storageclasses", "sc", cluster=True),
    _builtin("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
             cluster=True, categories="api-extensions", generation=("webhooks",), **_STRICT),
    _builtin("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
             cluster=True, categories="api-extensions", generation=("webhooks",), **_STRICT),
    _builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", "crd crds",
             cluster=True, categories="api-extensions", subresources="status", generation=_SPEC, **_STRICT),
    _builtin("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", cluster=True, generation=()),
    _builtin("coordination.k8s.io/v1", "Lease", "leases", create_on_update=True, **_STRICT),
    _builtin("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", cluster=True, create_on_update=True, **_STRICT),
    _builtin("discovery.k8s.io/v1", "EndpointSlice", "endpointslices",
             generation=("endpoints", "ports", "addressType", "metadata.labels")),
)
# fmt: on
