"""What people write: the section `toolset:` of the configuration, and the names on objects.

Durations are strings such as `30s`. `Settings` is what the section means: checked, with types that cannot hold
nonsense; everything inside the operator takes `Settings` only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.durations import parse_duration
from steersman.kube.names import dns_subdomain_errors, label_key_errors
from steersman.kube.selectors import Selector
from steersman.operators.toolset.detectors import BUILT_IN, Detector, check_detector

__all__ = [
    "BACKUP_SUFFIX",
    "DIALECTS",
    "HOLMES_KEY",
    "INDEX_KEY",
    "KUBERNAUT_SUFFIX",
    "OVERRIDES_KEY",
    "PREFIX",
    "ApiConfig",
    "Credential",
    "CustomDetector",
    "DetectionConfig",
    "ExtraKeys",
    "HealthConfig",
    "HealthSettings",
    "NotifyConfig",
    "Settings",
    "ToolsetSection",
    "TypeConfig",
    "target_name_errors",
]

PREFIX: Final = "kubernaut.io/"
OVERRIDES_KEY: Final = "overrides.yaml"
HOLMES_KEY: Final = "custom_toolset.yaml"
INDEX_KEY: Final = "index.yaml"
KUBERNAUT_SUFFIX: Final = "-toolset.yaml"
BACKUP_SUFFIX: Final = "-overrides-backup"
DIALECTS: Final = ("kubernaut", "holmesgpt")
LONGEST_NAME: Final = 253
API_LIMIT: Final = 1_048_576  # bytes of values that an API server takes in one ConfigMap
VARIABLES: Final = ("NAMESPACE", "SERVICE_NAME", "SERVICE_PORT", "CLUSTER_DOMAIN", "PROTOCOL")  # in `extra`
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_ENV: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ExtraKeys(StrEnum):
    """What becomes of keys in the ConfigMap that nobody wants."""

    PRUNE_MANAGED = "prune-managed"  # ours go, others stay
    PRUNE_ALL = "prune-all"  # all go, except overrides.yaml
    KEEP = "keep"


class HealthConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How services are probed."""

    enabled: bool = True
    timeout: str = "5s"  # of one request
    interval: str = "30s"  # between two probes of a service
    attempts: int = 3  # requests of one probe, a second apart, until one succeeds
    failures: int = 3  # probes in a row that must fail before a service is removed
    empty_after: str = "60s"  # without a ready endpoint, before a service is removed


class DetectionConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How sure a match must be."""

    strict: bool = True  # a match by name or port alone must also pass the identity check


class TypeConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One type of service."""

    enabled: bool = True
    labels: str = ""  # a label selector that Services of the type must match
    annotations: dict[str, str] = {}  # that Services of the type must have
    namespaces: list[str] = []  # where Services of the type are looked for; none: everywhere
    extra: dict[str, Any] = {}  # further fields of the rendered config, such as `index`


class Credential(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where the consumer finds the credential of a type: the name of its environment variable, never a value."""

    env: str


class CustomDetector(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A detector of the user's own; a name that is known already takes the place of the built-in one."""

    type: str
    priority: int = 30
    labels: list[str] = []  # label selectors, any of which identifies it
    names: list[str] = []  # parts of Service names
    port_names: list[str] = []
    ports: list[int] = []
    health_path: str = "/"
    identity_path: str = ""
    identity_fields: list[str] = []  # fields of the JSON there, any of which proves it; none: any JSON does
    renders_as: str = ""  # a known type whose toolset fits


class NotifyConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Who is told when the rendered toolsets changed."""

    mode: Literal["off", "reload", "template"] = "off"
    url: str = ""  # mode reload: what to POST to, e.g. http://holmes.ai/api/admin/reload/toolsets
    deployment: str = ""  # mode template: NAMESPACE/NAME whose pod template carries the hash
    delay: str = "90s"  # for the kubelet to refresh the mounted files


class ApiConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The REST API."""

    enabled: bool = True
    authenticate: bool = True  # bearer tokens by TokenReview and SubjectAccessReview
    writes: bool = False  # POST /discover and /toolsets/generate


class ToolsetSection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section `toolset:` of the configuration file."""

    namespace: str = "kubernaut-system"
    name: str = "kubernaut-toolset-config"
    namespaces: list[str] = []  # where Services are looked for; none or "*": everywhere
    exclude_namespaces: list[str] = []
    dialects: tuple[Literal["kubernaut", "holmesgpt"], ...] = ("kubernaut", "holmesgpt")
    holmes_profile: str = "0.45"
    health_check: HealthConfig = HealthConfig()
    detection: DetectionConfig = DetectionConfig()
    types: dict[str, TypeConfig] = {}
    detectors: list[CustomDetector] = []
    extra_keys: ExtraKeys = ExtraKeys.PRUNE_MANAGED
    trusted_namespaces: list[str] = []
    allowed_endpoints: list[str] = []  # hosts, or host:port
    credentials: dict[str, Credential] = {}
    endpoint_style: Literal["fqdn", "short"] = "fqdn"
    cluster_domain: str = ""  # empty: $CLUSTER_DOMAIN, or cluster.local
    kubernetes_namespaces: list[str] = []  # of the kubernetes toolset; none: all
    baseline: tuple[str, ...] = ("kubernetes/core", "kubernetes/logs")  # HolmesGPT toolsets that are always on
    max_bytes: int = 900_000
    annotation_prefix: str = PREFIX
    discovery_interval: str = "5m"  # between two looks at everything when all is well
    allow_recreate: bool = False  # delete and create again what somebody made immutable
    notify: NotifyConfig = NotifyConfig()
    api: ApiConfig = ApiConfig()

    def settings(self) -> Settings:
        """What the section means; ConfigError names the field that makes no sense."""
        return _settings(self)


class HealthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How services are probed; seconds."""

    enabled: bool = True
    timeout: float = 5.0
    interval: float = 30.0
    attempts: int = 3
    failures: int = 3
    empty_after: float = 60.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What one target is kept by. Times in seconds."""

    namespace: str
    name: str
    namespaces: frozenset[str] | None = None  # None: all
    exclude_namespaces: frozenset[str] = frozenset()
    dialects: tuple[str, ...] = DIALECTS
    profile: tuple[int, ...] = (0, 45)
    health: HealthSettings = HealthSettings()
    strict: bool = True
    types: Mapping[str, TypeConfig] = {}
    detectors: tuple[Detector, ...] = BUILT_IN
    extra_keys: ExtraKeys = ExtraKeys.PRUNE_MANAGED
    trusted_namespaces: frozenset[str] = frozenset()
    allowed_endpoints: frozenset[str] = frozenset()
    credentials: Mapping[str, str] = {}  # type -> environment variable
    endpoint_style: str = "fqdn"
    cluster_domain: str = "cluster.local"
    kubernetes_namespaces: tuple[str, ...] = ("*",)
    baseline: tuple[str, ...] = ("kubernetes/core", "kubernetes/logs")
    max_bytes: int = 900_000
    prefix: str = PREFIX
    discovery_interval: float = 300.0
    allow_recreate: bool = False
    preserve_overrides: bool = True  # restore overrides and other people's keys after a deletion
    notify: NotifyConfig = NotifyConfig()
    notify_delay: float = 90.0

    def trusts(self, namespace: str) -> bool:
        """Whether Services there may have credentials and name endpoints elsewhere."""
        return namespace in self.trusted_namespaces

    def watches(self, namespace: str) -> bool:
        """Whether Services there are looked at."""
        inside = self.namespaces is None or namespace in self.namespaces
        return inside and namespace not in self.exclude_namespaces

    def detector(self, type_name: str) -> Detector | None:
        """The detector of a type."""
        return next((one for one in self.detectors if one.type == type_name), None)


def target_name_errors(name: str) -> list[str]:
    """Why a ConfigMap cannot be called that; the names of its copy and its parts must fit as well."""
    longest = LONGEST_NAME - len(BACKUP_SUFFIX)
    if len(name) > longest:
        return [f"must be no more than {longest} characters, because the names of its copy and parts are longer"]
    return dns_subdomain_errors(name)


def _settings(section: ToolsetSection) -> Settings:
    if section.name and (complaints := target_name_errors(section.name)):
        raise ConfigError(complaints[0], field="toolset.name")
    for name, row in section.types.items():
        _selector(row.labels, f"toolset.types.{name}.labels")
        for variable in _VARIABLE.findall(msgspec.json.encode(row.extra).decode()):
            if variable not in VARIABLES:
                message = f"${{{variable}}} is not known (known: {', '.join(VARIABLES)})"
                raise ConfigError(message, field=f"toolset.types.{name}.extra")
    if complaints := label_key_errors(f"{section.annotation_prefix}x"):
        raise ConfigError("; ".join(complaints), field="toolset.annotationPrefix")
    if not 1 <= section.max_bytes <= API_LIMIT:
        raise ConfigError(f"must be between 1 and {API_LIMIT}", field="toolset.maxBytes")
    health = section.health_check
    if min(health.attempts, health.failures) < 1:
        raise ConfigError("attempts and failures must be at least 1", field="toolset.healthCheck")
    namespaces = frozenset(section.namespaces)
    return Settings(
        namespace=section.namespace,
        name=section.name,
        namespaces=None if not namespaces or "*" in namespaces else namespaces,
        exclude_namespaces=frozenset(section.exclude_namespaces),
        dialects=tuple(dict.fromkeys(section.dialects)) or DIALECTS,
        profile=_version(section.holmes_profile),
        health=HealthSettings(
            enabled=health.enabled,
            timeout=_seconds(health.timeout, "healthCheck.timeout", least=0.1),
            interval=_seconds(health.interval, "healthCheck.interval", least=1.0),
            attempts=health.attempts,
            failures=health.failures,
            empty_after=_seconds(health.empty_after, "healthCheck.emptyAfter", least=0.0),
        ),
        strict=section.detection.strict,
        types=section.types,
        detectors=_detectors(section.detectors),
        extra_keys=section.extra_keys,
        trusted_namespaces=frozenset(section.trusted_namespaces),
        allowed_endpoints=frozenset(section.allowed_endpoints),
        credentials={name: _env(one.env, name) for name, one in section.credentials.items()},
        endpoint_style=section.endpoint_style,
        cluster_domain=section.cluster_domain or os.environ.get("CLUSTER_DOMAIN") or "cluster.local",
        kubernetes_namespaces=tuple(section.kubernetes_namespaces) or ("*",),
        baseline=tuple(dict.fromkeys(section.baseline)),
        max_bytes=section.max_bytes,
        prefix=section.annotation_prefix,
        discovery_interval=_seconds(section.discovery_interval, "discoveryInterval", least=1.0),
        allow_recreate=section.allow_recreate,
        notify=_notify(section.notify),
        notify_delay=_seconds(section.notify.delay, "notify.delay", least=0.0),
    )


def _seconds(text: str, field: str, *, least: float) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except FormatError as error:
        raise ConfigError(str(error), field=f"toolset.{field}") from None
    if seconds < least:
        raise ConfigError(f"must be at least {least:g}s", field=f"toolset.{field}")
    return seconds


def _selector(text: str, field: str) -> Selector:
    try:
        return Selector.parse(text)
    except FormatError as error:
        raise ConfigError(str(error), field=field) from None


def _version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(\.\d+){1,2}", text):
        raise ConfigError(f'"{text}" is not a version of HolmesGPT (try 0.45)', field="toolset.holmesProfile")
    return tuple(map(int, text.split(".")))


def _env(name: str, owner: str) -> str:
    if not _ENV.fullmatch(name):
        raise ConfigError("is not the name of an environment variable", field=f"toolset.credentials.{owner}.env")
    return name


def _notify(notify: NotifyConfig) -> NotifyConfig:
    if notify.mode == "reload" and not notify.url.startswith(("http://", "https://")):
        raise ConfigError("mode reload needs a URL to call", field="toolset.notify.url")
    if notify.mode == "template" and notify.deployment.count("/") != 1:
        raise ConfigError("mode template needs NAMESPACE/NAME of a Deployment", field="toolset.notify.deployment")
    return notify


def _detectors(custom: list[CustomDetector]) -> tuple[Detector, ...]:
    made: dict[str, Detector] = {}
    for number, row in enumerate(custom):
        field = f"toolset.detectors[{number}]"
        detector = Detector(
            type=row.type,
            priority=row.priority,
            labels=tuple(row.labels),
            names=tuple(row.names),
            port_names=tuple(row.port_names),
            ports=tuple(row.ports),
            health_path=row.health_path,
            identity_path=row.identity_path,
            identity_fields=tuple(row.identity_fields),
            renders_as=row.renders_as,
        )
        check_detector(detector, field)
        made[row.type] = detector
    return (*made.values(), *(one for one in BUILT_IN if one.type not in made))
