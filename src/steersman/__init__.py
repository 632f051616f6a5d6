"""Steersman: a Kubernetes controller runtime for Python.

    import steersman as sm

These are the names an operator needs; each package has more. They are loaded on first use, so that importing this
package costs next to nothing and a tool that only reads a kubeconfig never loads the runtime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
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
    from steersman.errors import ConfigError, DriverError, PlanError, SteersmanError
    from steersman.kube.client import Client
    from steersman.kube.definitions import ColumnSpec, ScaleSpec
    from steersman.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
    from steersman.kube.kubeconfig import load_config
    from steersman.kube.objects import (
        ObjectMeta,
        OwnerReference,
        PartialObjectMetadata,
        Resource,
        Struct,
        owner_reference,
    )
    from steersman.kube.patches import PatchType
    from steersman.kube.quantities import Quantity
    from steersman.kube.resources import Kind, ObjectRef
    from steersman.kube.selectors import Selector
    from steersman.kube.types import (
        ConfigMap,
        CronJob,
        DaemonSet,
        Deployment,
        Job,
        Namespace,
        Node,
        Pod,
        Secret,
        Service,
        ServiceAccount,
        StatefulSet,
    )
    from steersman.runtime.admission import Admission, Denied, Hook, mutate, validate
    from steersman.runtime.conditions import Condition, condition, find_condition, with_conditions
    from steersman.runtime.context import Context
    from steersman.runtime.controller import Controller, controller
    from steersman.runtime.elector import KubeLease, LeaderElector
    from steersman.runtime.manager import Manager
    from steersman.runtime.predicates import (
        Predicate,
        annotation,
        created,
        deleted,
        deletion_started,
        generation,
        label,
        labels,
        spec,
        status,
    )
    from steersman.runtime.queue import Debounce
    from steersman.runtime.result import Result, TerminalError, done, requeue
    from steersman.runtime.webhooks import WebhookServer

__all__ = [
    "Admission",
    "AlreadyExists",
    "Annotated",
    "Atomic",
    "Client",
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
    "Forbidden",
    "Ge",
    "Gt",
    "Hook",
    "Invalid",
    "Job",
    "Kind",
    "KubeError",
    "KubeLease",
    "Le",
    "LeaderElector",
    "ListMap",
    "ListSet",
    "Lt",
    "Manager",
    "MaxLength",
    "MinLength",
    "MultipleOf",
    "Namespace",
    "Node",
    "NotFound",
    "ObjectMeta",
    "ObjectRef",
    "OwnerReference",
    "PartialObjectMetadata",
    "PatchType",
    "Pattern",
    "PlanError",
    "Pod",
    "Predicate",
    "PreserveUnknown",
    "Quantity",
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
    "WebhookServer",
    "annotation",
    "condition",
    "controller",
    "crd_manifest",
    "created",
    "deleted",
    "deletion_started",
    "done",
    "find_condition",
    "generation",
    "label",
    "labels",
    "load_config",
    "mutate",
    "owner_reference",
    "requeue",
    "spec",
    "status",
    "validate",
    "with_conditions",
]

_MODULES = {
    "steersman.crd.manifest": ("crd_manifest",),
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
        "Invalid",
        "KubeError",
        "NotFound",
    ),
    "steersman.kube.kubeconfig": ("load_config",),
    "steersman.kube.objects": (
        "ObjectMeta",
        "OwnerReference",
        "PartialObjectMetadata",
        "Resource",
        "Struct",
        "owner_reference",
    ),
    "steersman.kube.patches": ("PatchType",),
    "steersman.kube.quantities": ("Quantity",),
    "steersman.kube.resources": (
        "Kind",
        "ObjectRef",
    ),
    "steersman.kube.selectors": ("Selector",),
    "steersman.kube.types": (
        "ConfigMap",
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "Namespace",
        "Node",
        "Pod",
        "Secret",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    ),
    "steersman.runtime.admission": (
        "Admission",
        "Denied",
        "Hook",
        "mutate",
        "validate",
    ),
    "steersman.runtime.conditions": (
        "Condition",
        "condition",
        "find_condition",
        "with_conditions",
    ),
    "steersman.runtime.context": ("Context",),
    "steersman.runtime.controller": (
        "Controller",
        "controller",
    ),
    "steersman.runtime.elector": (
        "KubeLease",
        "LeaderElector",
    ),
    "steersman.runtime.manager": ("Manager",),
    "steersman.runtime.predicates": (
        "Predicate",
        "annotation",
        "created",
        "deleted",
        "deletion_started",
        "generation",
        "label",
        "labels",
        "spec",
        "status",
    ),
    "steersman.runtime.queue": ("Debounce",),
    "steersman.runtime.result": (
        "Result",
        "TerminalError",
        "done",
        "requeue",
    ),
    "steersman.runtime.webhooks": ("WebhookServer",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
