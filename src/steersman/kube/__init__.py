"""The wire: what an API server speaks, as values and as a client. Knows no policy.

This is the public surface; `steersman.kube.types` holds the built-in kinds. Names are loaded on first use, so that
importing pure data costs nothing of the client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.kube.durations import format_duration, format_go_duration, parse_duration, parse_go_duration
    from steersman.kube.errors import (
        AlreadyExists,
        BadRequest,
        BadResponse,
        Cause,
        Conflict,
        ConnectionFailed,
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
    from steersman.kube.resources import Kind, ObjectRef
    from steersman.kube.selectors import FieldRequirement, FieldSelector, Operator, Requirement, Selector
    from steersman.kube.times import format_micro_time, format_time, parse_time

__all__ = [
    "AlreadyExists",
    "BadRequest",
    "BadResponse",
    "Cause",
    "Conflict",
    "ConnectionFailed",
    "FieldRequirement",
    "FieldSelector",
    "Forbidden",
    "Gone",
    "Invalid",
    "Kind",
    "KubeError",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ManagedFieldsEntry",
    "MethodNotAllowed",
    "NotFound",
    "Notation",
    "ObjectMeta",
    "ObjectRef",
    "Operator",
    "OwnerReference",
    "PartialObjectMetadata",
    "PatchError",
    "PatchType",
    "Quantity",
    "RequestInfo",
    "RequestTimeout",
    "Requirement",
    "Resource",
    "Selector",
    "ServerError",
    "Struct",
    "Timeout",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnsupportedMediaType",
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
    "merge_patch",
    "owner_reference",
    "parse_duration",
    "parse_go_duration",
    "parse_time",
    "to_wire",
]

_MODULES = {
    "durations": (
        "format_duration",
        "format_go_duration",
        "parse_duration",
        "parse_go_duration",
    ),
    "errors": (
        "AlreadyExists",
        "BadRequest",
        "BadResponse",
        "Cause",
        "Conflict",
        "ConnectionFailed",
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
    "resources": (
        "Kind",
        "ObjectRef",
    ),
    "selectors": (
        "FieldRequirement",
        "FieldSelector",
        "Operator",
        "Requirement",
        "Selector",
    ),
    "times": (
        "format_micro_time",
        "format_time",
        "parse_time",
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
