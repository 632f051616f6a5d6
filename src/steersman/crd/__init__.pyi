from steersman.crd.compatibility import incompatible_changes as incompatible_changes
from steersman.crd.conversion import ConversionError as ConversionError
from steersman.crd.diff import drift as drift
from steersman.crd.findings import DefinitionFinding as DefinitionFinding
from steersman.crd.findings import undescribed as undescribed
from steersman.crd.manifest import crd_manifest as crd_manifest
from steersman.crd.manifest import crd_name as crd_name
from steersman.crd.markers import *
from steersman.crd.schema import SchemaError as SchemaError
from steersman.crd.schema import columns_of as columns_of
from steersman.crd.schema import schema_of as schema_of
from steersman.kube.api.crd_options import PrinterColumn as PrinterColumn
from steersman.kube.api.crd_options import ScaleSubresource as ScaleSubresource

__all__: list[str]
