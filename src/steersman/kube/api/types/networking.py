"""Who may talk to whom. Pure data."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from steersman.kube.api.objects import LabelSelector, Resource, Struct
from steersman.kube.api.types.meta import IntOrString

__all__ = [
    "IPBlock",
    "NetworkPolicy",
    "NetworkPolicyEgressRule",
    "NetworkPolicyIngressRule",
    "NetworkPolicyPeer",
    "NetworkPolicyPort",
    "NetworkPolicySpec",
]


class IPBlock(Struct):
    """A range of addresses with holes."""

    cidr: str
    except_: Sequence[str] = field(default=(), name="except")


class NetworkPolicyPeer(Struct):
    """The other side: pods, namespaces or addresses. An empty selector means all of them."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IPBlock | None = None


class NetworkPolicyPort(Struct):
    """A port or a range of ports."""

    protocol: str | None = None
    port: IntOrString | None = None
    end_port: int | None = None


class NetworkPolicyIngressRule(Struct):
    """What may come in. An empty rule lets everything in."""

    from_: Sequence[NetworkPolicyPeer] = field(default=(), name="from")
    ports: Sequence[NetworkPolicyPort] = ()


class NetworkPolicyEgressRule(Struct):
    """What may go out. An empty rule lets everything out."""

    to: Sequence[NetworkPolicyPeer] = ()
    ports: Sequence[NetworkPolicyPort] = ()


class NetworkPolicySpec(Struct):
    """The pods that are meant, and what they may do."""

    pod_selector: LabelSelector | None = None
    ingress: Sequence[NetworkPolicyIngressRule] = ()
    egress: Sequence[NetworkPolicyEgressRule] = ()
    policy_types: Sequence[str] = ()


class NetworkPolicy(Resource, group="networking.k8s.io", version="v1", plural="networkpolicies"):
    """Isolates pods."""

    spec: NetworkPolicySpec = field(default_factory=NetworkPolicySpec)
