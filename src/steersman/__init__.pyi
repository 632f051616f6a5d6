from typing import Annotated as Annotated

from msgspec import field as field

from steersman.cache.static import StaticCache as StaticCache
from steersman.clock import SYSTEM_CLOCK as SYSTEM_CLOCK
from steersman.clock import Clock as Clock
from steersman.crd.conversion import ConversionError as ConversionError
from steersman.crd.manifest import crd_manifest as crd_manifest
from steersman.crd.markers import (
    Atomic as Atomic,
)
from steersman.crd.markers import (
    Column as Column,
)
from steersman.crd.markers import (
    Description as Description,
)
from steersman.crd.markers import (
    EmbeddedResource as EmbeddedResource,
)
from steersman.crd.markers import (
    Format as Format,
)
from steersman.crd.markers import (
    Ge as Ge,
)
from steersman.crd.markers import (
    Gt as Gt,
)
from steersman.crd.markers import (
    Immutable as Immutable,
)
from steersman.crd.markers import (
    Le as Le,
)
from steersman.crd.markers import (
    ListMap as ListMap,
)
from steersman.crd.markers import (
    ListSet as ListSet,
)
from steersman.crd.markers import (
    Lt as Lt,
)
from steersman.crd.markers import (
    MaxLength as MaxLength,
)
from steersman.crd.markers import (
    MinLength as MinLength,
)
from steersman.crd.markers import (
    MultipleOf as MultipleOf,
)
from steersman.crd.markers import (
    Pattern as Pattern,
)
from steersman.crd.markers import (
    PreserveUnknown as PreserveUnknown,
)
from steersman.crd.markers import (
    Schema as Schema,
)
from steersman.crd.markers import (
    Selectable as Selectable,
)
from steersman.crd.markers import (
    XValidation as XValidation,
)
from steersman.errors import (
    ConfigError as ConfigError,
)
from steersman.errors import (
    DriverError as DriverError,
)
from steersman.errors import (
    FormatError as FormatError,
)
from steersman.errors import (
    PlanError as PlanError,
)
from steersman.errors import (
    SteersmanError as SteersmanError,
)
from steersman.kube.api.crd_options import PrinterColumn as PrinterColumn
from steersman.kube.api.crd_options import ScaleSubresource as ScaleSubresource
from steersman.kube.api.errors import (
    AlreadyExists as AlreadyExists,
)
from steersman.kube.api.errors import (
    Conflict as Conflict,
)
from steersman.kube.api.errors import (
    Forbidden as Forbidden,
)
from steersman.kube.api.errors import (
    Invalid as Invalid,
)
from steersman.kube.api.errors import (
    KubeError as KubeError,
)
from steersman.kube.api.errors import (
    NotFound as NotFound,
)
from steersman.kube.api.errors import (
    ResourceExpired as ResourceExpired,
)
from steersman.kube.api.errors import (
    TooManyRequests as TooManyRequests,
)
from steersman.kube.api.errors import (
    Unavailable as Unavailable,
)
from steersman.kube.api.field_presence import replace as replace
from steersman.kube.api.gvk import Kind as Kind
from steersman.kube.api.gvk import NamespacedName as NamespacedName
from steersman.kube.api.objects import (
    ObjectMeta as ObjectMeta,
)
from steersman.kube.api.objects import (
    OwnerReference as OwnerReference,
)
from steersman.kube.api.objects import (
    PartialObjectMetadata as PartialObjectMetadata,
)
from steersman.kube.api.objects import (
    Resource as Resource,
)
from steersman.kube.api.objects import (
    Struct as Struct,
)
from steersman.kube.api.patches import PatchType as PatchType
from steersman.kube.api.quantities import Quantity as Quantity
from steersman.kube.api.selectors import Selector as Selector
from steersman.kube.api.types.apps import (
    DaemonSet as DaemonSet,
)
from steersman.kube.api.types.apps import (
    Deployment as Deployment,
)
from steersman.kube.api.types.apps import (
    ReplicaSet as ReplicaSet,
)
from steersman.kube.api.types.apps import (
    StatefulSet as StatefulSet,
)
from steersman.kube.api.types.batch import CronJob as CronJob
from steersman.kube.api.types.batch import Job as Job
from steersman.kube.api.types.core import (
    ConfigMap as ConfigMap,
)
from steersman.kube.api.types.core import (
    Event as Event,
)
from steersman.kube.api.types.core import (
    Namespace as Namespace,
)
from steersman.kube.api.types.core import (
    Node as Node,
)
from steersman.kube.api.types.core import (
    PersistentVolumeClaim as PersistentVolumeClaim,
)
from steersman.kube.api.types.core import (
    Secret as Secret,
)
from steersman.kube.api.types.core import (
    Service as Service,
)
from steersman.kube.api.types.core import (
    ServiceAccount as ServiceAccount,
)
from steersman.kube.api.types.networking import NetworkPolicy as NetworkPolicy
from steersman.kube.api.types.pods import Pod as Pod
from steersman.kube.client.client import Client as Client
from steersman.kube.client.pod_streams import (
    ExecResult as ExecResult,
)
from steersman.kube.client.pod_streams import (
    ExecStream as ExecStream,
)
from steersman.kube.client.pod_streams import (
    LogOptions as LogOptions,
)
from steersman.kube.client.pod_streams import (
    PortForward as PortForward,
)
from steersman.kube.config.kubeconfig import load_config as load_config
from steersman.kube.transport.server_warnings import ServerWarning as ServerWarning
from steersman.kube.transport.server_warnings import collect_warnings as collect_warnings
from steersman.kube.transport.transport import TransportOptions as TransportOptions
from steersman.runtime.controller.builder import (
    Controller as Controller,
)
from steersman.runtime.controller.builder import (
    Options as Options,
)
from steersman.runtime.controller.builder import (
    controller as controller,
)
from steersman.runtime.controller.channel import Channel as Channel
from steersman.runtime.controller.field_handlers import FieldChange as FieldChange
from steersman.runtime.controller.predicates import (
    Predicate as Predicate,
)
from steersman.runtime.controller.predicates import (
    always as always,
)
from steersman.runtime.controller.predicates import (
    annotation as annotation,
)
from steersman.runtime.controller.predicates import (
    changed as changed,
)
from steersman.runtime.controller.predicates import (
    created as created,
)
from steersman.runtime.controller.predicates import (
    deleted as deleted,
)
from steersman.runtime.controller.predicates import (
    deletion_started as deletion_started,
)
from steersman.runtime.controller.predicates import (
    finalizers as finalizers,
)
from steersman.runtime.controller.predicates import (
    generation as generation,
)
from steersman.runtime.controller.predicates import (
    label as label,
)
from steersman.runtime.controller.predicates import (
    labels as labels,
)
from steersman.runtime.controller.predicates import (
    owners as owners,
)
from steersman.runtime.controller.predicates import (
    resource_version as resource_version,
)
from steersman.runtime.controller.predicates import (
    selected as selected,
)
from steersman.runtime.controller.predicates import (
    spec as spec,
)
from steersman.runtime.controller.predicates import (
    status as status,
)
from steersman.runtime.controller.result import (
    REJECTED as REJECTED,
)
from steersman.runtime.controller.result import (
    Result as Result,
)
from steersman.runtime.controller.result import (
    TerminalError as TerminalError,
)
from steersman.runtime.controller.result import (
    done as done,
)
from steersman.runtime.controller.result import (
    requeue as requeue,
)
from steersman.runtime.controller.result import (
    slow_retry as slow_retry,
)
from steersman.runtime.controller.stuck_keys import Limits as Limits
from steersman.runtime.http.server import HttpServer as HttpServer
from steersman.runtime.http.server import ServerLimits as ServerLimits
from steersman.runtime.leaderelection.elector import (
    LeaderElector as LeaderElector,
)
from steersman.runtime.leaderelection.elector import (
    LeadershipLost as LeadershipLost,
)
from steersman.runtime.leaderelection.elector import (
    LeaseLock as LeaseLock,
)
from steersman.runtime.leaderelection.rules import LeaseTimings as LeaseTimings
from steersman.runtime.manager.manager import Manager as Manager
from steersman.runtime.manager.operator_bundle import (
    OperatorBundle as OperatorBundle,
)
from steersman.runtime.manager.operator_bundle import (
    Row as Row,
)
from steersman.runtime.manager.operator_bundle import (
    RowProblem as RowProblem,
)
from steersman.runtime.manager.operator_bundle import (
    RowState as RowState,
)
from steersman.runtime.manager.operator_bundle import (
    Table as Table,
)
from steersman.runtime.manager.operator_bundle import (
    cached_objects as cached_objects,
)
from steersman.runtime.manager.operator_bundle import (
    condition_state as condition_state,
)
from steersman.runtime.manager.run import run as run
from steersman.runtime.manager.run import serve as serve
from steersman.runtime.rbac import rule as rule
from steersman.runtime.reconcile.blocking_context import BlockingContext as BlockingContext
from steersman.runtime.reconcile.conditions import (
    Condition as Condition,
)
from steersman.runtime.reconcile.conditions import (
    find_condition as find_condition,
)
from steersman.runtime.reconcile.conditions import (
    is_news as is_news,
)
from steersman.runtime.reconcile.conditions import (
    new_condition as new_condition,
)
from steersman.runtime.reconcile.conditions import (
    set_conditions as set_conditions,
)
from steersman.runtime.reconcile.conditions import (
    without_conditions as without_conditions,
)
from steersman.runtime.reconcile.context import Context as Context
from steersman.runtime.reconcile.daemon_context import DaemonContext as DaemonContext
from steersman.runtime.reconcile.event_recorder import ReportedIssues as ReportedIssues
from steersman.runtime.reconcile.finalizers import has_finalizer as has_finalizer
from steersman.runtime.reconcile.finalizers import is_terminating as is_terminating
from steersman.runtime.reconcile.ownership import NotOwned as NotOwned
from steersman.runtime.sharding.member import KubeShards as KubeShards
from steersman.runtime.webhook.admission import (
    AdmissionRequest as AdmissionRequest,
)
from steersman.runtime.webhook.admission import (
    Denied as Denied,
)
from steersman.runtime.webhook.admission import (
    Webhook as Webhook,
)
from steersman.runtime.webhook.admission import (
    default as default,
)
from steersman.runtime.webhook.admission import (
    mutate as mutate,
)
from steersman.runtime.webhook.admission import (
    validate as validate,
)
from steersman.runtime.webhook.certificate_source import (
    ManagedCertificates as ManagedCertificates,
)
from steersman.runtime.webhook.certificate_source import (
    MountedCertificates as MountedCertificates,
)
from steersman.runtime.webhook.conversion import (
    ConversionWebhook as ConversionWebhook,
)
from steersman.runtime.webhook.server import (
    WebhookServer as WebhookServer,
)
from steersman.runtime.webhook.server import (
    webhook_configurations as webhook_configurations,
)
from steersman.runtime.workqueue.queue import Debounce as Debounce
from steersman.runtime.workqueue.rate_limiters import ExponentialBackoff as ExponentialBackoff
from steersman.text import some_of as some_of

__all__: list[str]
