"""The words of the dns operator: its group, annotations, finalizers and configuration. Pure data.

The group is the original's, so that its objects are understood as they are; it is named here and nowhere else.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.durations import parse_duration

__all__ = [
    "ADOPT",
    "ALLOW_NAMESPACES",
    "CATALOG",
    "DRIFT",
    "DRIFT_IGNORE",
    "GROUP",
    "INDEX",
    "KEY_LABEL",
    "LABEL_CLUSTER",
    "LABEL_MANAGED_BY",
    "LABEL_ROLE",
    "PTR_NAMESPACES",
    "READINESS_GATE",
    "RECONCILE_TRIGGER",
    "SERVED_BY",
    "VERSION",
    "DnsConfig",
    "Drift",
    "Options",
    "finalizer_of",
]

GROUP: Final = "bindy.firestoned.io"
VERSION: Final = "v1beta1"

# Annotations that people write.
ALLOW_NAMESPACES: Final = f"{GROUP}/allow-zone-namespaces"  # on instances: NS,… | *
SERVED_BY: Final = "steersman.dev/dns-served-by"  # on zones: namespaces whose instances may serve it: NS,… | *
KEY_LABEL: Final = "steersman.dev/dns-key"  # on Secrets, "true": all of their fields are read, whatever their names
RECONCILE_TRIGGER: Final = f"{GROUP}/reconcile-trigger"
DRIFT: Final = "steersman.dev/dns-drift"  # on zones: repair | report | off
ADOPT: Final = "steersman.dev/dns-adopt"  # on a zone: what servers have and no resource speaks for may go
DRIFT_IGNORE: Final = "steersman.dev/dns-drift-ignore"  # on zones: patterns of names, separated by commas
PTR_NAMESPACES: Final = "steersman.dev/dns-ptr-namespaces"  # on reverse zones: NS,… | *

# What we write.
INDEX: Final = f"{GROUP}/instance-index"
LABEL_MANAGED_BY: Final = f"{GROUP}/managed-by"
LABEL_CLUSTER: Final = f"{GROUP}/cluster"
LABEL_ROLE: Final = f"{GROUP}/role"
READINESS_GATE: Final = f"{GROUP}/zones-synced"
CATALOG: Final = "steersman.dev/dns-catalog"  # on pods: the catalog zone in their configuration


def finalizer_of(kind: str) -> str:
    """The finalizer of a kind, as the original names it.

    >>> finalizer_of("DNSZone"), finalizer_of("ClusterBind9Provider")
    ('bindy.firestoned.io/dnszone-finalizer', 'bindy.firestoned.io/bind9cluster-finalizer')
    """
    name = "bind9cluster" if kind == "ClusterBind9Provider" else kind.lower()
    return f"{GROUP}/{name}-finalizer"


class Drift(StrEnum):
    """What to do about data that nobody asked for, and about data that vanished."""

    REPAIR = "repair"
    REPORT = "report"
    OFF = "off"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the operator, read and checked."""

    drift: Drift = Drift.REPAIR
    drift_period: timedelta = timedelta(seconds=300)  # how often a quiet zone is looked at
    deletion_grace: timedelta = timedelta(minutes=10)  # how long an unreachable server holds a deleted zone back
    fixed_backoff: bool = False  # 60 s after every error, as the original
    not_ready: timedelta = timedelta(seconds=30)  # how soon to look again at what is not ready
    request_timeout: timedelta = timedelta(seconds=5)  # of one exchange with a server
    server_namespaces: frozenset[str] = frozenset({"*"})  # whose instances may serve zones of other namespaces
    server_pause: timedelta = timedelta(seconds=30)  # how long nobody asks a server that keeps failing
    bindcar_token_file: str = ""  # a token of ours for sidecars; read again when it changes


class DnsConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section `dns:` of the configuration file, as it is written."""

    drift: Literal["repair", "report", "off"] = "repair"
    drift_period: str = "300s"
    deletion_grace: str = "10m"
    error_backoff: Literal["exponential", "fixed60"] = "exponential"
    not_ready_period: str = "30s"
    request_timeout: str = "5s"
    bindcar_token_file: str = ""
    server_namespaces: tuple[str, ...] = ("*",)  # whose instances may serve zones of others; "*": of all, as Bindy

    def options(self) -> Options:
        """What was written, checked; ConfigError names the field that is wrong."""
        return Options(
            drift=Drift(self.drift),
            drift_period=_duration(self.drift_period, "driftPeriod"),
            deletion_grace=_duration(self.deletion_grace, "deletionGrace", zero=True),
            fixed_backoff=self.error_backoff == "fixed60",
            not_ready=_duration(self.not_ready_period, "notReadyPeriod"),
            request_timeout=_duration(self.request_timeout, "requestTimeout"),
            bindcar_token_file=self.bindcar_token_file,
            server_namespaces=frozenset(self.server_namespaces),
        )


def _duration(text: str, field: str, *, zero: bool = False) -> timedelta:
    try:
        found = parse_duration(text)
    except FormatError as error:
        raise ConfigError(str(error), field=f"dns.{field}") from None
    if not (found or zero):
        raise ConfigError("must be longer than 0 (try 5m)", field=f"dns.{field}")
    return found
