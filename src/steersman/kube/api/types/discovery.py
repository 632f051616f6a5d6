"""EndpointSlices: the addresses behind a service. Pure data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steersman.kube.api.objects import Resource, Struct
from steersman.kube.api.types.core import ObjectReference

__all__ = ["Endpoint", "EndpointConditions", "EndpointSlice", "EndpointSlicePort"]


class EndpointConditions(Struct):
    """Whether an endpoint takes traffic; unknown counts as ready."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Struct):
    """One backend of a service."""

    addresses: Sequence[str] | None = ()
    conditions: EndpointConditions | None = None
    hostname: str | None = None
    node_name: str | None = None
    zone: str | None = None
    target_ref: ObjectReference | None = None
    hints: dict[str, Any] | None = None
    deprecated_topology: dict[str, str] | None = None


class EndpointSlicePort(Struct):
    """One port that all endpoints of a slice have."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None
    app_protocol: str | None = None


class EndpointSlice(Resource, group="discovery.k8s.io", version="v1"):
    """A part of the addresses behind a service. A slice without any is sent with nulls."""

    address_type: str = ""
    endpoints: Sequence[Endpoint] | None = ()
    ports: Sequence[EndpointSlicePort] | None = ()
