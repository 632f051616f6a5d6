"""The objects of others as this operator sees them: no more of each than it needs. Pure data.

Of a Secret only a digest is kept, salted with its uid; the values are gone when the object leaves the decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import field
from msgspec.structs import replace

from steersman.kube.objects import PartialObjectMetadata, Resource, Struct
from steersman.kube.resources import ObjectRef
from steersman.operators.hourglass.executor import keys_digest
from steersman.operators.hourglass.types import GROUP, NAME, PERFORMER, pod_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ADMITTING_ANYWHERE", "ADMITTING_HERE", "KeySecret", "ServiceView", "executor_keys", "performer_keys"]


class Selects(Struct):
    """Which pods a Service serves."""

    selector: dict[str, str] | None = None


class ServiceView(Resource, version="v1", kind="Service"):
    """A Service: whose it is, and whom it serves."""

    spec: Selects = field(default_factory=Selects)


class KeySecret(Resource, version="v1", kind="Secret"):
    """A Secret: whose it is, and a digest of what it holds."""

    data: dict[str, bytes | None] = field(default_factory=dict)
    digest: str = ""

    def __repr__(self) -> str:
        return f"KeySecret({str(self.ref)!r})"


def without_values(secret: KeySecret) -> KeySecret:
    """What is kept of a Secret."""
    parts = [(name, value or b"") for name, value in secret.data.items()]
    return replace(secret, data={}, digest=keys_digest(parts, secret.metadata.uid))


class ConfigMapMeta(PartialObjectMetadata, version="v1", kind="ConfigMap"):
    """A ConfigMap: whose it is."""


class BudgetMeta(PartialObjectMetadata, group="policy", version="v1", kind="PodDisruptionBudget"):
    """A disruption budget: whose it is."""


class PolicyMeta(
    PartialObjectMetadata, group="networking.k8s.io", version="v1", kind="NetworkPolicy", plural="networkpolicies"
):
    """A network policy: whose it is."""


class AccountMeta(PartialObjectMetadata, version="v1", kind="ServiceAccount"):
    """A service account: that it is there."""


class RoleMeta(PartialObjectMetadata, group="rbac.authorization.k8s.io", version="v1", kind="Role"):
    """A role: that it is there."""


class RoleBindingMeta(PartialObjectMetadata, group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding"):
    """A role binding: that it is there."""


class QuotaMeta(PartialObjectMetadata, version="v1", kind="ResourceQuota"):
    """A quota: that it changed."""


class LimitRangeMeta(PartialObjectMetadata, version="v1", kind="LimitRange"):
    """Limits: that they changed."""


class RuntimeClassMeta(
    PartialObjectMetadata,
    group="node.k8s.io",
    version="v1",
    kind="RuntimeClass",
    plural="runtimeclasses",
    namespaced=False,
):
    """A runtime class: that it is there."""


class PriorityClassMeta(
    PartialObjectMetadata,
    group="scheduling.k8s.io",
    version="v1",
    kind="PriorityClass",
    plural="priorityclasses",
    namespaced=False,
):
    """A priority class: that it is there."""


# What a refused pod may be waiting for.
ADMITTING_HERE = (AccountMeta, QuotaMeta, LimitRangeMeta)
ADMITTING_ANYWHERE = (RuntimeClassMeta, PriorityClassMeta)


def performer_keys(obj: Any) -> Iterable[ObjectRef]:
    """The performers that an object belongs to, or whose name it has taken."""
    return _keys(obj, "Performer", PERFORMER, obj.name.removeprefix(pod_name("")))


def executor_keys(obj: Any) -> Iterable[ObjectRef]:
    """The executors that an object belongs to, or whose name it has taken."""
    return _keys(
        obj, "HourglassExecutor", NAME, obj.name, obj.name.removesuffix("-config"), obj.name.removesuffix("-keys")
    )


def _keys(obj: Any, kind: str, label: str, *names: str) -> Iterable[ObjectRef]:
    owners = [one.name for one in obj.metadata.owner_references or () if one.kind == kind and GROUP in one.api_version]
    labelled = [obj.labels[label]] if label in obj.labels else []
    return [ObjectRef(name, obj.namespace) for name in dict.fromkeys([*owners, *labelled, *names]) if name]
