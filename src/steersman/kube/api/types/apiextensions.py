"""CustomResourceDefinitions: kinds that users add. Pure data. Schemas stay plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import field

from steersman.kube.api.objects import Resource, Struct
from steersman.kube.api.types.meta import BaseCondition

__all__ = [
    "CustomResourceColumn",
    "CustomResourceDefinition",
    "CustomResourceDefinitionCondition",
    "CustomResourceDefinitionNames",
    "CustomResourceDefinitionSpec",
    "CustomResourceDefinitionStatus",
    "CustomResourceDefinitionVersion",
]


class CustomResourceDefinitionNames(Struct):
    """What a kind is called."""

    kind: str = ""
    plural: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()


class CustomResourceColumn(Struct):
    """One column of `kubectl get`."""

    name: str
    type: str
    json_path: str = field(name="jsonPath")
    description: str = ""
    format: str = ""
    priority: int = 0


class CustomResourceDefinitionVersion(Struct):
    """One version of a kind."""

    name: str
    served: bool = False
    storage: bool = False
    deprecated: bool = False
    deprecation_warning: str | None = None
    schema: dict[str, Any] | None = None
    subresources: dict[str, Any] | None = None
    additional_printer_columns: Sequence[CustomResourceColumn] = ()
    selectable_fields: Sequence[dict[str, Any]] = ()


class CustomResourceDefinitionSpec(Struct):
    """What a kind is."""

    group: str = ""
    scope: str = ""  # Namespaced or Cluster
    names: CustomResourceDefinitionNames = field(default_factory=CustomResourceDefinitionNames)
    versions: Sequence[CustomResourceDefinitionVersion] | None = ()
    conversion: dict[str, Any] | None = None
    preserve_unknown_fields: bool = False


class CustomResourceDefinitionCondition(BaseCondition):
    """One aspect of a definition's state: NamesAccepted, Established, Terminating, NonStructuralSchema."""

    observed_generation: int = 0


class CustomResourceDefinitionStatus(Struct):
    """Whether a kind is served. All of it is null until a server has processed the definition."""

    conditions: Sequence[CustomResourceDefinitionCondition] | None = ()
    accepted_names: CustomResourceDefinitionNames | None = None
    stored_versions: Sequence[str] | None = ()
    observed_generation: int = 0


class CustomResourceDefinition(Resource, group="apiextensions.k8s.io", version="v1", namespaced=False):
    """Makes a server serve a kind."""

    spec: CustomResourceDefinitionSpec = field(default_factory=CustomResourceDefinitionSpec)
    status: CustomResourceDefinitionStatus = field(default_factory=CustomResourceDefinitionStatus)
