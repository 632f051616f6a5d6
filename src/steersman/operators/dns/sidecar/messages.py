"""Request and response bodies of the sidecar, for both sides, with the fields of the original. Pure data.

Absent fields mean what they mean to the original. `steersman` is our extension: all settings of a zone, with keys and
ports, which the other fields cannot express. Where it is present it replaces the others; the original ignores it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

PREFIX: Final = "/api/v1"
U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
U16 = Annotated[int, Meta(ge=0, le=65535)]
Ttl = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Text = Annotated[str, Meta(max_length=65535)]
Name = Annotated[str, Meta(max_length=1100)]  # 255 bytes, however escaped
Names = Annotated[list[Name], Meta(max_length=4096)]


class Body(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A JSON object; unknown fields are ignored, defaults are left out."""


class WholeSettings(Body):
    """All settings of a zone. Servers are `ADDRESS:PORT key NAME`; lists have entries of access lists."""

    primaries: Names | None = None
    also_notify: Names | None = None
    allow_transfer: Names | None = None
    allow_update: Names | None = None
    dnssec_policy: Name | None = None
    inline_signing: bool | None = None
    max_records_per_type: U32 | None = None
    added: bool | None = None  # only in responses: whether the zone was added through this interface


class SoaRecord(Body, omit_defaults=False):
    """The SOA record; the default serial is the first of today."""

    primary_ns: Name
    admin_email: Name
    serial: U32 | None = None
    refresh: Ttl = 3600
    retry: Ttl = 600
    expire: Ttl = 604_800
    negative_ttl: Ttl = 86_400


class DnsRecord(Body):
    """One record, its value as in a zone file."""

    name: Name
    type: Annotated[str, Meta(max_length=16)]
    value: Text
    ttl: Ttl | None = None
    priority: U16 | None = None


class ZoneConfig(Body):
    """A zone: its data and its settings."""

    ttl: Ttl
    soa: SoaRecord | None = None
    name_servers: Names | None = None
    name_server_ips: dict[Name, Name] | None = None
    records: list[DnsRecord] | None = None
    also_notify: Names | None = None
    allow_transfer: Names | None = None
    primaries: Names | None = None
    dnssec_policy: Name | None = None
    inline_signing: bool | None = None
    steersman: WholeSettings | None = None


class CreateZone(Body):
    """POST zones."""

    zone_name: Name
    zone_type: Literal["primary", "secondary"]
    zone_config: ZoneConfig
    update_key_name: Name | None = None


class ModifyZone(Body):
    """PATCH zones/{name}. The original supports the first three, and addresses without ports only."""

    also_notify: Names | None = None
    allow_transfer: Names | None = None
    allow_update: Names | None = None
    primaries: Names | None = None
    dnssec_policy: Name | None = None
    inline_signing: bool | None = None
    steersman: WholeSettings | None = None


class AddRecord(Body):
    """POST zones/{name}/records."""

    name: Name
    type: Annotated[str, Meta(max_length=16)]
    value: Text
    ttl: Ttl = 3600
    priority: U16 | None = None


class RemoveRecord(Body):
    """DELETE zones/{name}/records; without a value all values of that type."""

    name: Name
    type: Annotated[str, Meta(max_length=16)]
    value: Text | None = None


class ReplaceRecord(Body):
    """PUT zones/{name}/records."""

    name: Name
    type: Annotated[str, Meta(max_length=16)]
    current_value: Text
    new_value: Text
    ttl: Ttl = 3600
    priority: U16 | None = None


class Done(Body):
    """Success. `applied` says that the sidecar supports `steersman`; the original never sets it."""

    success: bool
    message: str
    details: str | dict[str, object] | None = None
    applied: bool = False


class ErrorBody(Body):
    """An error."""

    error: str = ""
    details: str | None = None


class ZoneInfo(Body):
    """GET zones/{name}."""

    name: str
    zone_type: str
    serial: int | None = None
    file_path: str | None = None
    steersman: WholeSettings | None = None


class ZoneList(msgspec.Struct, frozen=True):
    """GET zones."""

    zones: list[str]
    count: int


class ServerStatus(Body):
    """GET server/status."""

    status: str


class Health(Body):
    """GET health: the sidecar itself."""

    status: str
    version: str


class Ready(msgspec.Struct, frozen=True):
    """GET ready: the sidecar and its named."""

    ready: bool
    checks: list[str]
