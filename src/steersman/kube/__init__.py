"""The wire: what an API server speaks, as values and as a client. Knows no policy.

This is the public surface; `steersman.kube.types` holds the built-in kinds. Names are loaded on first use, so that
importing pure data costs nothing of the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.kube.access import PolicyRule
    from steersman.kube.client import Client
    from steersman.kube.clusterconfig import ClusterConfig, ExecPlugin, OIDCProvider, User
    from steersman.kube.codec import Listing, Page, Undecodable, WatchEvent
    from steersman.kube.discovery import ServedKind, ServerVersion
    from steersman.kube.durations import format_duration, format_go_duration, parse_duration, parse_go_duration
    from steersman.kube.errors import (
        AlreadyExists,
        AnswerTooLarge,
        BadRequest,
        BadResponse,
        Cause,
        Conflict,
        ConnectionFailed,
        CredentialsFailed,
        Forbidden,
        Gone,
        Invalid,
        KubeError,
        MethodNotAllowed,
        NotFound,
        RequestInfo,
        RequestTimeout,
        ServerError,
        Timeout,
        TooLarge,
        TooManyRequests,
        Unauthorized,
        Unavailable,
        UnsupportedMediaType,
        error_for_status,
    )
    from steersman.kube.kubeconfig import load_config
    from steersman.kube.names import (
        dns1035_label_errors,
        dns_label_errors,
        dns_subdomain_errors,
        label_key_errors,
        label_value_errors,
    )
    from steersman.kube.objects import (
        LabelSelector,
        LabelSelectorRequirement,
        ManagedFieldsEntry,
        ObjectMeta,
        OwnerReference,
        PartialObjectMetadata,
        Resource,
        Struct,
        decode,
        encode,
        owner_reference,
        to_wire,
    )
    from steersman.kube.patches import (
        PatchError,
        PatchType,
        apply_json_patch,
        apply_merge_patch,
        json_patch,
        merge_patch,
    )
    from steersman.kube.quantities import Notation, Quantity
    from steersman.kube.reader import Reader, Target
    from steersman.kube.resources import Kind, ObjectRef
    from steersman.kube.retries import RetryPolicy
    from steersman.kube.selectors import FieldRequirement, FieldSelector, Operator, Requirement, Selector
    from steersman.kube.subresources import IssuedToken, Review, Scale
    from steersman.kube.times import format_micro_time, format_time, parse_time
    from steersman.kube.transport import Transport, TransportOptions

__all__ = [
    "AlreadyExists",
    "AnswerTooLarge",
    "BadRequest",
    "BadResponse",
    "Cause",
    "Client",
    "ClusterConfig",
    "Conflict",
    "ConnectionFailed",
    "CredentialsFailed",
    "ExecPlugin",
    "FieldRequirement",
    "FieldSelector",
    "Forbidden",
    "Gone",
    "Invalid",
    "IssuedToken",
    "Kind",
    "KubeError",
    "LabelSelector",
    "LabelSelectorRequirement",
    "Listing",
    "ManagedFieldsEntry",
    "MethodNotAllowed",
    "NotFound",
    "Notation",
    "OIDCProvider",
    "ObjectMeta",
    "ObjectRef",
    "Operator",
    "OwnerReference",
    "Page",
    "PartialObjectMetadata",
    "PatchError",
    "PatchType",
    "PolicyRule",
    "Quantity",
    "Reader",
    "RequestInfo",
    "RequestTimeout",
    "Requirement",
    "Resource",
    "RetryPolicy",
    "Review",
    "Scale",
    "Selector",
    "ServedKind",
    "ServerError",
    "ServerVersion",
    "Struct",
    "Target",
    "Timeout",
    "TooLarge",
    "TooManyRequests",
    "Transport",
    "TransportOptions",
    "Unauthorized",
    "Unavailable",
    "Undecodable",
    "UnsupportedMediaType",
    "User",
    "WatchEvent",
    "apply_json_patch",
    "apply_merge_patch",
    "decode",
    "dns1035_label_errors",
    "dns_label_errors",
    "dns_subdomain_errors",
    "encode",
    "error_for_status",
    "format_duration",
    "format_go_duration",
    "format_micro_time",
    "format_time",
    "json_patch",
    "label_key_errors",
    "label_value_errors",
    "load_config",
    "merge_patch",
    "owner_reference",
    "parse_duration",
    "parse_go_duration",
    "parse_time",
    "to_wire",
]

_MODULES = {
    "access": ("PolicyRule",),
    "client": ("Client",),
    "clusterconfig": (
        "ClusterConfig",
        "ExecPlugin",
        "OIDCProvider",
        "User",
    ),
    "codec": (
        "Listing",
        "Page",
        "Undecodable",
        "WatchEvent",
    ),
    "discovery": (
        "ServedKind",
        "ServerVersion",
    ),
    "durations": (
        "format_duration",
        "format_go_duration",
        "parse_duration",
        "parse_go_duration",
    ),
    "errors": (
        "AlreadyExists",
        "AnswerTooLarge",
        "BadRequest",
        "BadResponse",
        "Cause",
        "Conflict",
        "ConnectionFailed",
        "CredentialsFailed",
        "Forbidden",
        "Gone",
        "Invalid",
        "KubeError",
        "MethodNotAllowed",
        "NotFound",
        "RequestInfo",
        "RequestTimeout",
        "ServerError",
        "Timeout",
        "TooLarge",
        "TooManyRequests",
        "Unauthorized",
        "Unavailable",
        "UnsupportedMediaType",
        "error_for_status",
    ),
    "kubeconfig": ("load_config",),
    "names": (
        "dns1035_label_errors",
        "dns_label_errors",
        "dns_subdomain_errors",
        "label_key_errors",
        "label_value_errors",
    ),
    "objects": (
        "LabelSelector",
        "LabelSelectorRequirement",
        "ManagedFieldsEntry",
        "ObjectMeta",
        "OwnerReference",
        "PartialObjectMetadata",
        "Resource",
        "Struct",
        "decode",
        "encode",
        "owner_reference",
        "to_wire",
    ),
    "patches": (
        "PatchError",
        "PatchType",
        "apply_json_patch",
        "apply_merge_patch",
        "json_patch",
        "merge_patch",
    ),
    "quantities": (
        "Notation",
        "Quantity",
    ),
    "reader": (
        "Reader",
        "Target",
    ),
    "resources": (
        "Kind",
        "ObjectRef",
    ),
    "retries": ("RetryPolicy",),
    "selectors": (
        "FieldRequirement",
        "FieldSelector",
        "Operator",
        "Requirement",
        "Selector",
    ),
    "subresources": (
        "IssuedToken",
        "Review",
        "Scale",
    ),
    "times": (
        "format_micro_time",
        "format_time",
        "parse_time",
    ),
    "transport": (
        "Transport",
        "TransportOptions",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
