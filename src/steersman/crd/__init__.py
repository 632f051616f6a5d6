"""Custom kinds from Python types: one declaration for the decoder, the schema and the documentation.

`crd_manifest(WebApp)` is the CustomResourceDefinition of a `Resource` class; the markers in this package say what a
type cannot. `drift(live, wanted)` tells whether a cluster's definition still is what the code expects.
"""

from steersman.crd.compatibility import incompatible_changes
from steersman.crd.conversion import ConversionError
from steersman.crd.diff import drift
from steersman.crd.findings import DefinitionFinding, undescribed
from steersman.crd.manifest import crd_manifest, crd_name
from steersman.crd.markers import (
    Atomic,
    Column,
    Description,
    EmbeddedResource,
    Format,
    Ge,
    Gt,
    Immutable,
    Le,
    ListMap,
    ListSet,
    Lt,
    MaxLength,
    MinLength,
    MultipleOf,
    Pattern,
    PreserveUnknown,
    Schema,
    Selectable,
    XValidation,
)
from steersman.crd.schema import SchemaError, columns_of, schema_of
from steersman.kube.api.crd_options import PrinterColumn, ScaleSubresource

__all__ = [
    "Atomic",
    "Column",
    "ConversionError",
    "DefinitionFinding",
    "Description",
    "EmbeddedResource",
    "Format",
    "Ge",
    "Gt",
    "Immutable",
    "Le",
    "ListMap",
    "ListSet",
    "Lt",
    "MaxLength",
    "MinLength",
    "MultipleOf",
    "Pattern",
    "PreserveUnknown",
    "PrinterColumn",
    "ScaleSubresource",
    "Schema",
    "SchemaError",
    "Selectable",
    "XValidation",
    "columns_of",
    "crd_manifest",
    "crd_name",
    "drift",
    "incompatible_changes",
    "schema_of",
    "undescribed",
]
