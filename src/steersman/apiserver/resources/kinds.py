"""What the server serves: one value per resource and version.

`ResourceInfo` is everything the rest of the server may ask about a resource without reading an object: its names,
scope, verbs and subresources, where it is stored, which changes raise `metadata.generation`, which fields a field
selector may name, and how strict updates are. A custom resource has the same value, made by `registry` from its
definition. For built-in resources, names, scope, verbs and subresources come from the recorded discovery of a real
server (tools/extract_openapi.py); what discovery does not say is in `TRAITS`.

Invariant: values are immutable and their order is the order of discovery. What the fields of a kind mean is not here:
the type is `info.schema`, its rules are in `validation`, its printed columns in `printing`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from enum import StrEnum
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver.resources.conversion_webhook import WebhookConversion
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steersman.apiserver.crd.compiled_schema import Structural
    from steersman.apiserver.resources.schema import Schema

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
    "approval": Subresource(verbs=OBJECT_VERBS),
    "binding": Subresource(verbs=("create",), kind=BINDING),
    "ephemeralcontainers": Subresource(verbs=OBJECT_VERBS),
    "eviction": Subresource(verbs=("create",), kind=EVICTION),
    "finalize": Subresource(verbs=("update",)),
    "resize": Subresource(verbs=OBJECT_VERBS),
    "scale": Subresource(verbs=OBJECT_VERBS, kind=SCALE),
    "status": Subresource(verbs=OBJECT_VERBS),
    "token": Subresource(verbs=("create",), kind=TOKEN),
}


class CustomType(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a custom resource that comes from one version of its definition."""

    definition: str  # name of the CustomResourceDefinition
    openapi: dict[str, Any]  # openAPIV3Schema as stored
    storage_openapi: dict[str, Any]  # that of the version in which objects are stored
    preserve_unknown: bool = False  # spec.preserveUnknownFields of an old definition
    conversion: WebhookConversion | None = None  # None: versions differ in name only


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
    first_generation: int = 1  # of a new object; 0 is not written
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
        from steersman.apiserver.resources.schema import builtin_schema, custom_schema

        if self.custom is None:
            return builtin_schema(self.kind)
        return custom_schema(self.custom.openapi, status=self.status, preserve_unknown=self.custom.preserve_unknown)

    @cached_property
    def structural(self) -> Structural:
        """The compiled schema of a custom resource: validation, pruning, defaulting."""
        from steersman.apiserver.crd.compiled_schema import Structural

        assert self.custom is not None
        return Structural.compile(self.custom.openapi, preserve=self.custom.preserve_unknown)

    @cached_property
    def storage_structural(self) -> Structural:
        """The same for the version in which objects are stored."""
        from steersman.apiserver.crd.compiled_schema import Structural

        assert self.custom is not None
        return Structural.compile(self.custom.storage_openapi, preserve=self.custom.preserve_unknown)

    @property
    def converts(self) -> bool:
        """Whether a webhook converts its objects."""
        return self.custom is not None and self.custom.conversion is not None

    def subresource(self, name: str) -> Subresource:
        """What subresource `name` of this resource answers to."""
        return SUBRESOURCES[name]

    def next_generation(self, old: dict[str, Any] | None, new: dict[str, Any]) -> int | None:
        """`metadata.generation` for `new` when it is stored over `old`; None when the kind keeps none."""
        if self.generation is None:
            return None
        if old is None:
            return self.first_generation or None
        current: int = old["metadata"].get("generation", 0)
        if "*" in self.generation:
            ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if self.status else set())
            changed = any(old.get(key) != new.get(key) for key in (old.keys() | new.keys()) - ignored)
        else:
            changed = any(_at(old, path) != _at(new, path) for path in self.generation)
        return (current + 1 if changed else current) or None


def _at(obj: dict[str, Any], path: str) -> Any:
    value: Any = obj
    for part in path.split("."):
        value = (value or {}).get(part)
    return value or None  # nothing and empty are the same here


STORED_IN = {"autoscaling/v1": "autoscaling/v2", "events.k8s.io/v1": "v1"}  # versions that are kept in another one
_SPEC: dict[str, Any] = {"generation": ("spec",)}
_STRICT: dict[str, Any] = {"unconditional_update": False}
_PUT_CREATES: dict[str, Any] = {"create_on_update": True}
_RBAC: dict[str, Any] = {"name_rule": NameRule.SEGMENT, **_PUT_CREATES}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_COMPONENTS = "v1 ComponentStatus is deprecated in v1.19+"
_ENDPOINTS = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
# What discovery does not say about a resource: fields of its ResourceInfo.
TRAITS: Mapping[str, dict[str, Any]] = {
    "apiservices.apiregistration.k8s.io": {"virtual": True, "verbs": ("get", "list"), "subresources": ()},
    "certificatesigningrequests.certificates.k8s.io": {
        "name_rule": NameRule.SEGMENT,
        "selectable": ("spec.signerName",),
    },
    "componentstatuses": {"virtual": True, "deprecation": _COMPONENTS},
    "cronjobs.batch": _SPEC,
    "csidrivers.storage.k8s.io": {"first_generation": 0, **_SPEC, **_STRICT},
    "csinodes.storage.k8s.io": _STRICT,
    "csistoragecapacities.storage.k8s.io": _STRICT,
    "customresourcedefinitions.apiextensions.k8s.io": _SPEC | _STRICT,
    "daemonsets.apps": _SPEC,
    "deployments.apps": {"generation": ("spec", "metadata.annotations")},
    "deviceclasses.resource.k8s.io": _SPEC,
    "endpoints": {"deprecation": _ENDPOINTS, **_PUT_CREATES},
    "endpointslices.discovery.k8s.io": {"generation": ("endpoints", "ports", "addressType", "metadata.labels")},
    "events": {
        "selectable": (
            *(f"involvedObject.{field}" for field in _REFERENCE),
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        **_PUT_CREATES,
    },
    "events.events.k8s.io": {
        "selectable": (*(f"regarding.{field}" for field in _REFERENCE), "reason", "reportingController", "type"),
        **_PUT_CREATES,
    },
    "flowschemas.flowcontrol.apiserver.k8s.io": _SPEC,
    "ingressclasses.networking.k8s.io": _SPEC,
    "ingresses.networking.k8s.io": _SPEC,
    "ipaddresses.networking.k8s.io": {"name_rule": NameRule.SEGMENT},
    "jobs.batch": {"selectable": ("status.successful",), **_SPEC},
    "leases.coordination.k8s.io": _PUT_CREATES | _STRICT,
    "limitranges": _PUT_CREATES,
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _SPEC | _STRICT,
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _SPEC | _STRICT,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": {"generation": ("webhooks",), **_STRICT},
    "namespaces": {"name_rule": NameRule.LABEL, "selectable": ("status.phase",)},
    "networkpolicies.networking.k8s.io": _SPEC,
    "nodes": {"selectable": ("spec.unschedulable",)},
    "poddisruptionbudgets.policy": _SPEC | _STRICT,
    "pods": {
        "selectable": (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ),
        **_SPEC,
    },
    "podtemplates": {"generation": ("template",)},
    "priorityclasses.scheduling.k8s.io": {"generation": ()},
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": _SPEC,
    "replicasets.apps": _SPEC,
    "replicationcontrollers": {"selectable": ("status.replicas",), **_SPEC},
    "resourceslices.resource.k8s.io": {"selectable": ("spec.nodeName", "spec.driver"), **_SPEC},
    "runtimeclasses.node.k8s.io": _PUT_CREATES | _STRICT,
    "secrets": {"selectable": ("type",)},
    "services": {"name_rule": NameRule.LABEL, "selectable": ("spec.clusterIP", "spec.type"), **_PUT_CREATES},
    "statefulsets.apps": {"name_rule": NameRule.LABEL, **_SPEC},
    "validatingadmissionpolicies.admissionregistration.k8s.io": _SPEC | _STRICT,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _SPEC | _STRICT,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": {"generation": ("webhooks",), **_STRICT},
    "volumeattachments.storage.k8s.io": _STRICT,
    **{
        f"{plural}.rbac.authorization.k8s.io": _RBAC
        for plural in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
    },
}


def _builtin(group: str, version: str, listed: dict[str, Any]) -> ResourceInfo:
    """A resource as discovery lists it, with its traits."""
    name, plural = listed["responseKind"]["kind"], listed["resource"]
    kind = Kind(group=group, version=version, kind=name, plural=plural, namespaced=listed["scope"] == "Namespaced")
    stored_group, _, stored_version = STORED_IN.get(kind.api_version, kind.api_version).rpartition("/")
    subs = tuple(sub["subresource"] for sub in listed.get("subresources", ()) if sub["subresource"] in SUBRESOURCES)
    verbs = tuple(listed["verbs"])
    options: dict[str, Any] = {
        "verbs": verbs,
        "subresources": subs,
        "scale": ScalePaths() if "scale" in subs else None,
        "virtual": verbs == ("create",),
    }
    return ResourceInfo(
        kind=kind,
        list_kind=f"{name}List",
        singular=listed["singularResource"],
        short_names=tuple(listed.get("shortNames", ())),
        categories=tuple(listed.get("categories", ())),
        storage=Kind(group=stored_group, version=stored_version, kind=name, plural=plural, namespaced=kind.namespaced),
        **options | TRAITS.get(kind.qualified, {}),
    )


def _recorded() -> tuple[ResourceInfo, ...]:
    path = files("steersman.apiserver") / "data" / "discovery.json.gz"
    document = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    return tuple(
        _builtin(group["metadata"].get("name", ""), version["version"], listed)
        for group in document["items"]
        for version in group["versions"]
        for listed in version["resources"]
    )


BUILTINS: tuple[ResourceInfo, ...] = _recorded()
