"""Steersman: a Kubernetes controller runtime for Python.

    import steersman as sm

Everything an operator needs is here. Names are loaded on first use, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Annotated

    from msgspec import field

    from steersman.clock import SYSTEM_CLOCK, Clock
    from steersman.crd.manifest import crd_manifest
    from steersman.crd.markers import (
        Atomic,
        Column,
        Doc,
        Ge,
        Gt,
        Le,
        ListMap,
        ListSet,
        Lt,
        MaxLength,
        MinLength,
        MultipleOf,
        Pattern,
        PreserveUnknown,
        Rule,
        Schema,
    )
    from steersman.errors import ConfigError, DriverError, FormatError, PlanError, SteersmanError
    from steersman.kube.client import Client
    from steersman.kube.definitions import ColumnSpec, ScaleSpec
    from steersman.kube.errors import (
        AlreadyExists,
        Conflict,
        Forbidden,
        Gone,
        Invalid,
        KubeError,
        NotFound,
        TooManyRequests,
        Unavailable,
    )
    from steersman.kube.kubeconfig import load_config
    from steersman.kube.objects import ObjectMeta, OwnerReference, PartialObjectMetadata, Resource, Struct
    from steersman.kube.patches import PatchType
    from steersman.kube.quantities import Quantity
    from steersman.kube.resources import Kind, ObjectRef
    from steersman.kube.selectors import Selector
    from steersman.kube.transport import TransportOptions
    from steersman.kube.types.apps import DaemonSet, Deployment, ReplicaSet, StatefulSet
    from steersman.kube.types.batch import CronJob, Job
    from steersman.kube.types.core import (
        ConfigMap,
        Event,
        Namespace,
        Node,
        PersistentVolumeClaim,
        Secret,
        Service,
        ServiceAccount,
    )
    from steersman.kube.types.networking import NetworkPolicy
    from steersman.kube.types.pods import Pod
    from steersman.runtime.admission import Admission, Denied, Hook, mutate, validate
    from steersman.runtime.channel import Channel
    from steersman.runtime.conditions import Condition, condition, find_condition, with_conditions, without_conditions
    from steersman.runtime.context import Context
    from steersman.runtime.controller import Controller, Options, controller
    from steersman.runtime.election import Timing
    from steersman.runtime.elector import KubeLease, LeaderElector, LeadershipLost
    from steersman.runtime.finalizers import has_finalizer, is_terminating
    from steersman.runtime.manager import Manager
    from steersman.runtime.predicates import (
        Predicate,
        always,
        annotation,
        created,
        deleted,
        deletion_started,
        finalizers,
        generation,
        label,
        labels,
        owners,
        resource_version,
        selected,
        spec,
        status,
    )
    from steersman.runtime.program import run, serve
    from steersman.runtime.queue import Debounce
    from steersman.runtime.ratelimit import Backoff
    from steersman.runtime.result import Result, TerminalError, done, requeue
    from steersman.runtime.servingcerts import ManagedCertificates, MountedCertificates
    from steersman.runtime.sharding import KubeShards
    from steersman.runtime.threads import BlockingContext
    from steersman.runtime.troubles import Limits
    from steersman.runtime.webhooks import WebhookServer, webhook_configurations

__all__ = [
    "SYSTEM_CLOCK",
    "Admission",
    "AlreadyExists",
    "Annotated",
    "Atomic",
    "Backoff",
    "BlockingContext",
    "Channel",
    "Client",
    "Clock",
    "Column",
    "ColumnSpec",
    "Condition",
    "ConfigError",
    "ConfigMap",
    "Conflict",
    "Context",
    "Controller",
    "CronJob",
    "DaemonSet",
    "Debounce",
    "Denied",
    "Deployment",
    "Doc",
    "DriverError",
    "Event",
    "Forbidden",
    "FormatError",
    "Ge",
    "Gone",
    "Gt",
    "Hook",
    "Invalid",
    "Job",
    "Kind",
    "KubeError",
    "KubeLease",
    "KubeShards",
    "Le",
    "LeaderElector",
    "LeadershipLost",
    "Limits",
    "ListMap",
    "ListSet",
    "Lt",
    "ManagedCertificates",
    "Manager",
    "MaxLength",
    "MinLength",
    "MountedCertificates",
    "MultipleOf",
    "Namespace",
    "NetworkPolicy",
    "Node",
    "NotFound",
    "ObjectMeta",
    "ObjectRef",
    "Options",
    "OwnerReference",
    "PartialObjectMetadata",
    "PatchType",
    "Pattern",
    "PersistentVolumeClaim",
    "PlanError",
    "Pod",
    "Predicate",
    "PreserveUnknown",
    "Quantity",
    "ReplicaSet",
    "Resource",
    "Result",
    "Rule",
    "ScaleSpec",
    "Schema",
    "Secret",
    "Selector",
    "Service",
    "ServiceAccount",
    "StatefulSet",
    "SteersmanError",
    "Struct",
    "TerminalError",
    "Timing",
    "TooManyRequests",
    "TransportOptions",
    "Unavailable",
    "WebhookServer",
    "always",
    "annotation",
    "condition",
    "controller",
    "crd_manifest",
    "created",
    "deleted",
    "deletion_started",
    "done",
    "field",
    "finalizers",
    "find_condition",
    "generation",
    "has_finalizer",
    "is_terminating",
    "label",
    "labels",
    "load_config",
    "mutate",
    "owners",
    "requeue",
    "resource_version",
    "run",
    "selected",
    "serve",
    "spec",
    "status",
    "validate",
    "webhook_configurations",
    "with_conditions",
    "without_conditions",
]

_HOME = {
    "steersman.kube.transport": ("TransportOptions",),
    "steersman.runtime.servingcerts": (
        "ManagedCertificates",
        "MountedCertificates",
    ),
    "steersman.runtime.troubles": ("Limits",),
    "steersman.runtime.sharding": ("KubeShards",),
    "steersman.runtime.channel": ("Channel",),
    "steersman.runtime.webhooks": (
        "WebhookServer",
        "webhook_configurations",
    ),
    "steersman.crd.manifest": ("crd_manifest",),
    "steersman.kube.quantities": ("Quantity",),
    "steersman.runtime.admission": (
        "Admission",
        "Denied",
        "Hook",
        "mutate",
        "validate",
    ),
    "typing": ("Annotated",),
    "msgspec": ("field",),
    "steersman.clock": (
        "Clock",
        "SYSTEM_CLOCK",
    ),
    "steersman.crd.markers": (
        "Atomic",
        "Column",
        "Doc",
        "Ge",
        "Gt",
        "Le",
        "ListMap",
        "ListSet",
        "Lt",
        "MaxLength",
        "MinLength",
        "MultipleOf",
        "Pattern",
        "PreserveUnknown",
        "Rule",
        "Schema",
    ),
    "steersman.errors": (
        "ConfigError",
        "DriverError",
        "FormatError",
        "PlanError",
        "SteersmanError",
    ),
    "steersman.kube.client": ("Client",),
    "steersman.kube.definitions": (
        "ColumnSpec",
        "ScaleSpec",
    ),
    "steersman.kube.errors": (
        "AlreadyExists",
        "Conflict",
        "Forbidden",
        "Gone",
        "Invalid",
        "KubeError",
        "NotFound",
        "TooManyRequests",
        "Unavailable",
    ),
    "steersman.kube.kubeconfig": ("load_config",),
    "steersman.kube.objects": (
        "ObjectMeta",
        "OwnerReference",
        "PartialObjectMetadata",
        "Resource",
        "Struct",
    ),
    "steersman.kube.patches": ("PatchType",),
    "steersman.kube.resources": (
        "Kind",
        "ObjectRef",
    ),
    "steersman.kube.selectors": ("Selector",),
    "steersman.kube.types.apps": (
        "DaemonSet",
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
    ),
    "steersman.kube.types.batch": (
        "CronJob",
        "Job",
    ),
    "steersman.kube.types.core": (
        "ConfigMap",
        "Event",
        "Namespace",
        "Node",
        "PersistentVolumeClaim",
        "Secret",
        "Service",
        "ServiceAccount",
    ),
    "steersman.kube.types.networking": ("NetworkPolicy",),
    "steersman.kube.types.pods": ("Pod",),
    "steersman.runtime.conditions": (
        "Condition",
        "condition",
        "find_condition",
        "with_conditions",
        "without_conditions",
    ),
    "steersman.runtime.context": ("Context",),
    "steersman.runtime.controller": (
        "Controller",
        "Options",
        "controller",
    ),
    "steersman.runtime.election": ("Timing",),
    "steersman.runtime.elector": (
        "KubeLease",
        "LeaderElector",
        "LeadershipLost",
    ),
    "steersman.runtime.finalizers": (
        "has_finalizer",
        "is_terminating",
    ),
    "steersman.runtime.manager": ("Manager",),
    "steersman.runtime.predicates": (
        "Predicate",
        "always",
        "annotation",
        "created",
        "deleted",
        "deletion_started",
        "finalizers",
        "generation",
        "label",
        "labels",
        "owners",
        "resource_version",
        "selected",
        "spec",
        "status",
    ),
    "steersman.runtime.program": (
        "run",
        "serve",
    ),
    "steersman.runtime.queue": ("Debounce",),
    "steersman.runtime.ratelimit": ("Backoff",),
    "steersman.runtime.result": (
        "Result",
        "TerminalError",
        "done",
        "requeue",
    ),
    "steersman.runtime.threads": ("BlockingContext",),
}
_MODULES = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
