"""API group, annotations, labels, finalizers and configuration of the dns operator. Pure data.

The group is the one of the original, so that its objects work unchanged; this is the only place that names it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.durations import parse_duration
from steersman.kube.api.validation import dns_label_errors, quoted

GROUP: Final = "bindy.firestoned.io"
VERSION: Final = "v1beta1"

# Annotations that people write.
ALLOW_NAMESPACES: Final = f"{GROUP}/allow-zone-namespaces"  # on instances: NS,… | *
SERVED_BY: Final = "steersman.dev/dns-served-by"  # on zones: namespaces whose instances may serve it: NS,… | *
KEY_LABEL: Final = "steersman.dev/dns-key"  # on Secrets, "true": all of their fields are read, whatever their names
RECONCILE_TRIGGER: Final = f"{GROUP}/reconcile-trigger"
DRIFT: Final = "steersman.dev/dns-drift"  # on zones: repair | report | off
ADOPT: Final = "steersman.dev/dns-adopt"  # on a zone: unmanaged records on its servers may be removed
DRIFT_IGNORE: Final = "steersman.dev/dns-drift-ignore"  # on zones: patterns of names, separated by commas
# On zones and instances: namespaces whose zones may lie above or below that zone, or zones of others there: NS,… | *
OVERLAP_NAMESPACES: Final = "steersman.dev/dns-overlap-namespaces"
PTR_NAMESPACES: Final = "steersman.dev/dns-ptr-namespaces"  # on reverse zones: NS,… | *

# What we write.
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"  # on children of an instance: its name
INDEX: Final = f"{GROUP}/instance-index"
LABEL_MANAGED_BY: Final = f"{GROUP}/managed-by"
LABEL_CLUSTER: Final = f"{GROUP}/cluster"
LABEL_ROLE: Final = f"{GROUP}/role"
READINESS_GATE: Final = f"{GROUP}/zones-synced"


BIND9_IMAGE: Final = "internetsystemsconsortium/bind9"
ALLOWED_IMAGES: Final = (BIND9_IMAGE,)


def finalizer_of(kind: str) -> str:
    """The finalizer of a kind, as the original names it.

    >>> finalizer_of("DNSZone"), finalizer_of("ClusterBind9Provider")
    ('bindy.firestoned.io/dnszone-finalizer', 'bindy.firestoned.io/bind9cluster-finalizer')
    """
    name = "bind9cluster" if kind == "ClusterBind9Provider" else kind.lower()
    return f"{GROUP}/{name}-finalizer"


class DriftPolicy(StrEnum):
    """What to do about records that were added or removed on a server by others."""

    REPAIR = "repair"
    REPORT = "report"
    OFF = "off"


class DnsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the operator, read and checked."""

    drift: DriftPolicy = DriftPolicy.REPAIR
    drift_period: timedelta = timedelta(seconds=300)  # how often an unchanged zone is compared with its servers
    deletion_grace: timedelta = timedelta(minutes=10)  # how long an unreachable server holds a deleted zone back
    fixed_backoff: bool = False  # 60 s after every error, as the original
    not_ready: timedelta = timedelta(seconds=30)  # how soon to reconcile again what is not ready
    request_timeout: timedelta = timedelta(seconds=5)  # of one exchange with a server
    server_namespaces: frozenset[str] = frozenset({"*"})  # whose instances may serve zones of other namespaces
    server_pause: timedelta = timedelta(seconds=30)  # how long no request is sent to a server that keeps failing
    bindcar_token_file: str = ""  # a token of ours for sidecars; read again when it changes
    bindcar_token_namespaces: frozenset[str] = frozenset()  # whose sidecars are shown it
    trusted_namespaces: frozenset[str] = frozenset()  # whose instances may use anything (see `allowlist`)
    allowed_images: tuple[str, ...] = ALLOWED_IMAGES  # that others may run; NAME, or a prefix such as NAME/*


_IMAGE_NAME: Final = re.compile(
    r"([\w.-]+(:\d+)?/)?([\w.-]+/)*([\w.-]+|\*(?<=/\*))", re.ASCII
)  # the port is a registry's


class DnsConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section `dns:` of the configuration file, as it is written."""

    drift: Literal["repair", "report", "off"] = "repair"  # what happens to data that differs from the zone
    drift_period: str = "300s"  # how often an unchanged zone is compared with its servers
    deletion_grace: str = "10m"  # how long a server that does not answer delays a deletion
    error_backoff: Literal["exponential", "fixed60"] = "exponential"  # fixed60: 60 s after every error, as Bindy
    not_ready_period: str = "30s"  # how soon what is not ready is reconciled again
    request_timeout: str = "5s"  # of one exchange with a server
    bindcar_token_file: str = ""  # a token of the operator for sidecars whose Secret has none
    bindcar_token_namespaces: tuple[str, ...] = ()  # whose sidecars are shown that token, besides our own namespace
    trusted_namespaces: tuple[str, ...] = ()  # whose instances may mount, run and open anything, besides our own
    allowed_images: tuple[str, ...] = ALLOWED_IMAGES  # that instances of others may run: NAME or NAME/*, without tags
    server_namespaces: tuple[str, ...] = ("*",)  # whose instances may serve zones of others; "*": of all, as Bindy

    def options(self) -> DnsOptions:
        """What was written, checked; ConfigError names the field that is wrong."""
        return DnsOptions(
            drift=DriftPolicy(self.drift),
            drift_period=_duration(self.drift_period, "driftPeriod"),
            deletion_grace=_duration(self.deletion_grace, "deletionGrace", zero=True),
            fixed_backoff=self.error_backoff == "fixed60",
            not_ready=_duration(self.not_ready_period, "notReadyPeriod"),
            request_timeout=_duration(self.request_timeout, "requestTimeout"),
            bindcar_token_file=self.bindcar_token_file,
            bindcar_token_namespaces=_namespaces(self.bindcar_token_namespaces, "bindcarTokenNamespaces"),
            server_namespaces=_namespaces(self.server_namespaces, "serverNamespaces"),
            trusted_namespaces=_namespaces(self.trusted_namespaces, "trustedNamespaces"),
            allowed_images=_images(self.allowed_images),
        )


def _namespaces(names: tuple[str, ...], field: str) -> frozenset[str]:
    for place, name in enumerate(names):
        if name != "*" and dns_label_errors(name):
            raise ConfigError(
                f"{quoted(name)} is not a namespace (try dns, or * for all)", field=f"dns.{field}[{place}]"
            )
    return frozenset(names)


def _images(names: tuple[str, ...]) -> tuple[str, ...]:
    """Entries that can match: images are compared by their names, so one with a tag would allow nothing."""
    for place, name in enumerate(names):
        if name != "*" and not _IMAGE_NAME.fullmatch(name):
            way_out = "leave out tag and digest, end with /* for all images below"
            raise ConfigError(
                f"{quoted(name)} is not the name of an image ({way_out})", field=f"dns.allowedImages[{place}]"
            )
    return names


def _duration(text: str, field: str, *, zero: bool = False) -> timedelta:
    try:
        found = parse_duration(text)
    except FormatError as error:
        raise ConfigError(str(error), field=f"dns.{field}") from None
    if not (found or zero):
        raise ConfigError("must be longer than 0 (try 5m)", field=f"dns.{field}")
    return found
