"""The children and dependencies as caches hold them: no more of each object than is needed. Pure data.

Of a Secret only a digest is kept, salted with its uid; values are dropped when the object leaves the decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import field
from msgspec.structs import replace

from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import PartialObjectMetadata, Resource, Struct
from steersman.operators.hourglass.api.types import GROUP, NAME, PERFORMER, pod_name
from steersman.operators.hourglass.children.executor_children import keys_digest

if TYPE_CHECKING:
    from collections.abc import Iterable


class Selects(Struct):
    """Which pods a Service selects."""

    selector: dict[str, str] | None = None


class PerformerService(Resource, version="v1", kind="Service"):
    """A Service: its owner and its selector."""

    spec: Selects = field(default_factory=Selects)


class KeySecret(Resource, version="v1", kind="Secret"):
    """A Secret: its owner, and a digest of its data."""

    data: dict[str, bytes | None] = field(default_factory=dict)
    digest: str = ""

    def __repr__(self) -> str:
        return f"KeySecret({str(self.ref)!r})"


def without_values(secret: KeySecret) -> KeySecret:
    """Replace the data of a Secret by a digest."""
    parts = [(name, value or b"") for name, value in secret.data.items()]
    return replace(secret, data={}, digest=keys_digest(parts, secret.metadata.uid))


class ConfigMapMeta(PartialObjectMetadata, version="v1", kind="ConfigMap"):
    """The metadata of a ConfigMap."""


class BudgetMeta(PartialObjectMetadata, group="policy", version="v1", kind="PodDisruptionBudget"):
    """The metadata of a disruption budget."""


class PolicyMeta(
    PartialObjectMetadata, group="networking.k8s.io", version="v1", kind="NetworkPolicy", plural="networkpolicies"
):
    """The metadata of a network policy."""


class AccountMeta(PartialObjectMetadata, version="v1", kind="ServiceAccount"):
    """The metadata of a service account."""


class RoleMeta(PartialObjectMetadata, group="rbac.authorization.k8s.io", version="v1", kind="Role"):
    """The metadata of a role."""


class RoleBindingMeta(PartialObjectMetadata, group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding"):
    """The metadata of a role binding."""


class QuotaMeta(PartialObjectMetadata, version="v1", kind="ResourceQuota"):
    """The metadata of a quota."""


class LimitRangeMeta(PartialObjectMetadata, version="v1", kind="LimitRange"):
    """The metadata of a limit range."""


class RuntimeClassMeta(
    PartialObjectMetadata,
    group="node.k8s.io",
    version="v1",
    kind="RuntimeClass",
    plural="runtimeclasses",
    namespaced=False,
):
    """The metadata of a runtime class."""


class PriorityClassMeta(
    PartialObjectMetadata,
    group="scheduling.k8s.io",
    version="v1",
    kind="PriorityClass",
    plural="priorityclasses",
    namespaced=False,
):
    """The metadata of a priority class."""


# A change of these may let a rejected pod in.
ADMITTING_HERE = (AccountMeta, QuotaMeta, LimitRangeMeta)
ADMITTING_ANYWHERE = (RuntimeClassMeta, PriorityClassMeta)


def performers_of(obj: Any) -> Iterable[NamespacedName]:
    """The performers that an object belongs to, or whose name it has taken."""
    return _keys(obj, "Performer", PERFORMER, obj.name.removeprefix(pod_name("")))


def executors_of(obj: Any) -> Iterable[NamespacedName]:
    """The executors that an object belongs to, or whose name it has taken."""
    return _keys(
        obj, "HourglassExecutor", NAME, obj.name, obj.name.removesuffix("-config"), obj.name.removesuffix("-keys")
    )


def _keys(obj: Any, kind: str, label: str, *names: str) -> Iterable[NamespacedName]:
    references = obj.metadata.owner_references or ()
    owners = [owner.name for owner in references if owner.kind == kind and GROUP in owner.api_version]
    labelled = [obj.labels[label]] if label in obj.labels else []
    return [NamespacedName(name, obj.namespace) for name in dict.fromkeys([*owners, *labelled, *names]) if name]
