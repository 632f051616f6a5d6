"""Custom kinds from Python types: one declaration for the decoder, the schema and the documentation.

`crd_manifest(WebApp)` is the CustomResourceDefinition of a `Resource` class; the markers in this package say what a
type cannot. `drift(live, wanted)` tells whether a cluster's definition still is what the code expects.
"""

from steersman.crd.drift import drift
from steersman.crd.manifest import crd_manifest, crd_name
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
from steersman.crd.schema import SchemaError, columns_of, schema_of
from steersman.kube.definitions import ColumnSpec, ScaleSpec

__all__ = [
    "Atomic",
    "Column",
    "ColumnSpec",
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
    "ScaleSpec",
    "Schema",
    "SchemaError",
    "columns_of",
    "crd_manifest",
    "crd_name",
    "drift",
    "schema_of",
]
