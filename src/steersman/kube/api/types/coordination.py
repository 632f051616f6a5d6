"""Leases: who leads. Pure data."""

from __future__ import annotations

from msgspec import field

from steersman.kube.api.objects import Resource, Struct

__all__ = ["Lease", "LeaseSpec"]


class LeaseSpec(Struct):
    """Who holds a lease, since when and for how long. Times have six decimals."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    preferred_holder: str | None = None
    strategy: str | None = None


class Lease(Resource, group="coordination.k8s.io", version="v1"):
    """A claim that ends unless it is renewed."""

    spec: LeaseSpec = field(default_factory=LeaseSpec)
