from steersman.kube.api.durations import (
    format_duration as format_duration,
)
from steersman.kube.api.durations import (
    format_go_duration as format_go_duration,
)
from steersman.kube.api.durations import (
    parse_duration as parse_duration,
)
from steersman.kube.api.durations import (
    parse_go_duration as parse_go_duration,
)
from steersman.kube.api.errors import (
    AlreadyExists as AlreadyExists,
)
from steersman.kube.api.errors import (
    BadRequest as BadRequest,
)
from steersman.kube.api.errors import (
    BadResponse as BadResponse,
)
from steersman.kube.api.errors import (
    Cause as Cause,
)
from steersman.kube.api.errors import (
    Conflict as Conflict,
)
from steersman.kube.api.errors import (
    ConnectionFailed as ConnectionFailed,
)
from steersman.kube.api.errors import (
    CredentialsFailed as CredentialsFailed,
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
    MethodNotAllowed as MethodNotAllowed,
)
from steersman.kube.api.errors import (
    NotFound as NotFound,
)
from steersman.kube.api.errors import (
    RequestInfo as RequestInfo,
)
from steersman.kube.api.errors import (
    RequestTimeout as RequestTimeout,
)
from steersman.kube.api.errors import (
    ResourceExpired as ResourceExpired,
)
from steersman.kube.api.errors import (
    ResponseTooLarge as ResponseTooLarge,
)
from steersman.kube.api.errors import (
    ServerError as ServerError,
)
from steersman.kube.api.errors import (
    Timeout as Timeout,
)
from steersman.kube.api.errors import (
    TooLarge as TooLarge,
)
from steersman.kube.api.errors import (
    TooManyRequests as TooManyRequests,
)
from steersman.kube.api.errors import (
    Unauthorized as Unauthorized,
)
from steersman.kube.api.errors import (
    Unavailable as Unavailable,
)
from steersman.kube.api.errors import (
    UnsupportedMediaType as UnsupportedMediaType,
)
from steersman.kube.api.errors import (
    error_for_status as error_for_status,
)
from steersman.kube.api.gvk import Kind as Kind
from steersman.kube.api.gvk import NamespacedName as NamespacedName
from steersman.kube.api.objects import (
    LabelSelector as LabelSelector,
)
from steersman.kube.api.objects import (
    LabelSelectorRequirement as LabelSelectorRequirement,
)
from steersman.kube.api.objects import (
    ManagedFieldsEntry as ManagedFieldsEntry,
)
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
from steersman.kube.api.objects import (
    decode as decode,
)
from steersman.kube.api.objects import (
    encode as encode,
)
from steersman.kube.api.objects import (
    owner_reference as owner_reference,
)
from steersman.kube.api.objects import (
    to_wire as to_wire,
)
from steersman.kube.api.patches import (
    PatchError as PatchError,
)
from steersman.kube.api.patches import (
    PatchType as PatchType,
)
from steersman.kube.api.patches import (
    apply_json_patch as apply_json_patch,
)
from steersman.kube.api.patches import (
    apply_merge_patch as apply_merge_patch,
)
from steersman.kube.api.patches import (
    json_patch as json_patch,
)
from steersman.kube.api.patches import (
    merge_patch as merge_patch,
)
from steersman.kube.api.quantities import Notation as Notation
from steersman.kube.api.quantities import Quantity as Quantity
from steersman.kube.api.rbac_hint import MissingRule as MissingRule
from steersman.kube.api.selectors import (
    FieldRequirement as FieldRequirement,
)
from steersman.kube.api.selectors import (
    FieldSelector as FieldSelector,
)
from steersman.kube.api.selectors import (
    Requirement as Requirement,
)
from steersman.kube.api.selectors import (
    Selector as Selector,
)
from steersman.kube.api.selectors import (
    SelectorOperator as SelectorOperator,
)
from steersman.kube.api.times import (
    format_micro_time as format_micro_time,
)
from steersman.kube.api.times import (
    format_time as format_time,
)
from steersman.kube.api.times import (
    parse_time as parse_time,
)
from steersman.kube.api.validation import (
    dns1035_label_errors as dns1035_label_errors,
)
from steersman.kube.api.validation import (
    dns_label_errors as dns_label_errors,
)
from steersman.kube.api.validation import (
    dns_subdomain_errors as dns_subdomain_errors,
)
from steersman.kube.api.validation import (
    label_key_errors as label_key_errors,
)
from steersman.kube.api.validation import (
    label_value_errors as label_value_errors,
)
from steersman.kube.client.client import Client as Client
from steersman.kube.client.codec import (
    DecodeFailure as DecodeFailure,
)
from steersman.kube.client.codec import (
    ListPage as ListPage,
)
from steersman.kube.client.codec import (
    ObjectList as ObjectList,
)
from steersman.kube.client.codec import (
    WatchEvent as WatchEvent,
)
from steersman.kube.client.discovery import APIResource as APIResource
from steersman.kube.client.discovery import ServerVersion as ServerVersion
from steersman.kube.client.reader import Reader as Reader
from steersman.kube.client.reader import Target as Target
from steersman.kube.client.subresources import IssuedToken as IssuedToken
from steersman.kube.client.subresources import Review as Review
from steersman.kube.client.subresources import Scale as Scale
from steersman.kube.config.config import (
    AuthInfo as AuthInfo,
)
from steersman.kube.config.config import (
    Config as Config,
)
from steersman.kube.config.config import (
    ExecConfig as ExecConfig,
)
from steersman.kube.config.config import (
    OIDCProvider as OIDCProvider,
)
from steersman.kube.config.kubeconfig import load_config as load_config
from steersman.kube.transport.retry import RetryPolicy as RetryPolicy
from steersman.kube.transport.transport import Transport as Transport
from steersman.kube.transport.transport import TransportOptions as TransportOptions

__all__: list[str]
