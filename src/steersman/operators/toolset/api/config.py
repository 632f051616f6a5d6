"""The section `toolset:` of the configuration, and the names on objects.

Durations are strings such as `30s`. `TargetSettings` is the validated form of the section; everything inside the
operator takes `TargetSettings` only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.durations import parse_duration
from steersman.kube.api.selectors import Selector
from steersman.kube.api.validation import dns_label_errors, dns_subdomain_errors, label_key_errors, quoted
from steersman.operators.toolset.discovery.detectors import BUILT_IN, CustomDetector, ServiceDetector, check_detector

PREFIX: Final = "kubernaut.io/"
OVERRIDES_KEY: Final = "overrides.yaml"
HOLMES_KEY: Final = "custom_toolset.yaml"
INDEX_KEY: Final = "index.yaml"
KUBERNAUT_SUFFIX: Final = "-toolset.yaml"
BACKUP_SUFFIX: Final = "-overrides-backup"
DIALECTS: Final = ("kubernaut", "holmesgpt")
LONGEST_NAME: Final = 253
API_LIMIT: Final = 1_048_576  # bytes of values that an API server takes in one ConfigMap
MOST_PARTS: Final = 100
VARIABLES: Final = ("NAMESPACE", "SERVICE_NAME", "SERVICE_PORT", "CLUSTER_DOMAIN", "PROTOCOL")  # in `extra`
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_ENV: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ExtraKeys(StrEnum):
    """What to do with keys in the ConfigMap that are not desired."""

    PRUNE_MANAGED = "prune-managed"  # remove ours, keep others
    PRUNE_ALL = "prune-all"  # remove all, except overrides.yaml
    KEEP = "keep"


class HealthConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How services are probed."""

    enabled: bool = True  # probe a service before it is listed
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

    enabled: bool = True  # discover services of the type
    labels: str = ""  # a label selector that Services of the type must match
    annotations: dict[str, str] = {}  # that Services of the type must have
    namespaces: list[str] = []  # where Services of the type are discovered; none: everywhere
    extra: dict[str, Any] = {}  # further fields of the rendered config, such as `index`


class Credential(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where the consumer finds the credential of a type: the name of its environment variable, never a value."""

    env: str  # the variable that holds the credential


class ConsumerNotifyConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How the consumer is notified when the rendered toolsets changed."""

    mode: Literal["off", "reload", "template"] = "off"
    url: str = ""  # mode reload: what to POST to, e.g. http://holmes.ai/api/admin/reload/toolsets
    deployment: str = ""  # mode template: NAMESPACE/NAME whose pod template carries the hash
    delay: str = "90s"  # for the kubelet to refresh the mounted files


class ApiConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The REST API."""

    enabled: bool = True  # serve it
    authenticate: bool = True  # bearer tokens by TokenReview and SubjectAccessReview
    writes: bool = False  # POST /discover and /toolsets/generate


class ToolsetSection(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section `toolset:` of the configuration file."""

    namespace: str = "kubernaut-system"  # of the ConfigMap
    name: str = "kubernaut-toolset-config"  # of the ConfigMap; empty: only ToolsetConfigs
    namespaces: list[str] = []  # where Services are discovered; none or "*": everywhere
    exclude_namespaces: list[str] = []  # where no Services are discovered
    dialects: tuple[Literal["kubernaut", "holmesgpt"], ...] = ("kubernaut", "holmesgpt")  # which files are written
    holmes_profile: str = "0.45"  # the version of HolmesGPT that reads custom_toolset.yaml
    health_check: HealthConfig = HealthConfig()
    detection: DetectionConfig = DetectionConfig()
    types: dict[str, TypeConfig] = {}  # settings of a type, by its name
    detectors: list[CustomDetector] = []  # types of your own
    extra_keys: ExtraKeys = ExtraKeys.PRUNE_MANAGED  # keep, prune-managed or prune-all: which are deleted
    trusted_namespaces: list[str] = []  # whose Services may name other addresses and get credentials
    allowed_endpoints: list[str] = []  # hosts, or host:port
    credentials: dict[str, Credential] = {}  # by type; only the name of a variable is written
    endpoint_style: Literal["fqdn", "short"] = "fqdn"  # how addresses are written
    cluster_domain: str = ""  # empty: $CLUSTER_DOMAIN, or cluster.local
    kubernetes_namespaces: list[str] = []  # of the kubernetes toolset; none: all
    baseline: tuple[str, ...] = ("kubernetes/core", "kubernetes/logs")  # HolmesGPT toolsets that are always on
    max_bytes: int = 900_000  # a larger ConfigMap is split
    max_parts: int = 8  # ConfigMaps that a large one is split into; rights are on their names
    config_maps: list[str] = []  # further ConfigMaps that ToolsetConfigs name, to have rights on; "*": on all
    annotation_prefix: str = PREFIX  # of the annotations on Services
    discovery_interval: str = "5m"  # between two passes when nothing is wrong
    allow_recreate: bool = False  # delete and create again a ConfigMap that was made immutable
    notify: ConsumerNotifyConfig = ConsumerNotifyConfig()
    api: ApiConfig = ApiConfig()

    def settings(self) -> TargetSettings:
        """The validated settings; ConfigError names the invalid field."""
        return _settings(self)


class HealthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How services are probed; seconds."""

    enabled: bool = True
    timeout: float = 5.0
    interval: float = 30.0
    attempts: int = 3
    failures: int = 3
    empty_after: float = 60.0


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one target. Times in seconds."""

    namespace: str
    name: str
    namespaces: frozenset[str] | None = None  # None: all
    exclude_namespaces: frozenset[str] = frozenset()
    dialects: tuple[str, ...] = DIALECTS
    profile: tuple[int, ...] = (0, 45)
    health: HealthSettings = HealthSettings()
    strict: bool = True
    types: Mapping[str, TypeConfig] = {}
    detectors: tuple[ServiceDetector, ...] = BUILT_IN
    extra_keys: ExtraKeys = ExtraKeys.PRUNE_MANAGED
    trusted_namespaces: frozenset[str] = frozenset()
    allowed_endpoints: frozenset[str] = frozenset()
    credentials: Mapping[str, str] = {}  # type -> environment variable
    endpoint_style: str = "fqdn"
    cluster_domain: str = "cluster.local"
    kubernetes_namespaces: tuple[str, ...] = ("*",)
    baseline: tuple[str, ...] = ("kubernetes/core", "kubernetes/logs")
    max_bytes: int = 900_000
    max_parts: int = 8
    prefix: str = PREFIX
    discovery_interval: float = 300.0
    allow_recreate: bool = False
    preserve_overrides: bool = True  # restore overrides and keys of other owners after a deletion
    notify: ConsumerNotifyConfig = ConsumerNotifyConfig()
    notify_delay: float = 90.0

    def trusts(self, namespace: str) -> bool:
        """Whether Services there may have credentials and name endpoints elsewhere."""
        return namespace in self.trusted_namespaces

    def watches(self, namespace: str) -> bool:
        """Whether Services there are discovered."""
        inside = self.namespaces is None or namespace in self.namespaces
        return inside and namespace not in self.exclude_namespaces

    def detector(self, type_name: str) -> ServiceDetector | None:
        """The detector of a type."""
        return next((detector for detector in self.detectors if detector.type == type_name), None)


def target_name_errors(name: str) -> list[str]:
    """Why a name is not valid for a target; the names of its backup and its parts must be valid as well."""
    longest = LONGEST_NAME - len(BACKUP_SUFFIX)
    if len(name) > longest:
        return [f"must be no more than {longest} characters, because the names of its backup and parts are longer"]
    if name.endswith(BACKUP_SUFFIX):
        return [f"must not end with {BACKUP_SUFFIX}: that is the name of a backup, which marks a ConfigMap as ours"]
    return dns_subdomain_errors(name)


def _check_names(section: ToolsetSection) -> None:
    for place, name in enumerate(section.config_maps):
        if name != "*" and (complaints := target_name_errors(name)):
            message = f"{quoted(name)} is not the name of a ConfigMap (try tools, or * for all): {complaints[0]}"
            raise ConfigError(message, field=f"toolset.configMaps[{place}]")
    for place, name in enumerate(section.trusted_namespaces):
        if dns_label_errors(name):
            message = f"{quoted(name)} is not a namespace (name each of them)"
            raise ConfigError(message, field=f"toolset.trustedNamespaces[{place}]")


def _settings(section: ToolsetSection) -> TargetSettings:
    if section.name and (complaints := target_name_errors(section.name)):
        raise ConfigError(complaints[0], field="toolset.name")
    for name, row in section.types.items():
        _selector(row.labels, f"toolset.types.{name}.labels")
        for variable in _VARIABLE.findall(msgspec.json.encode(row.extra).decode()):
            if variable not in VARIABLES:
                message = f"${{{variable}}} is unknown (known: {', '.join(VARIABLES)})"
                raise ConfigError(message, field=f"toolset.types.{name}.extra")
    if complaints := label_key_errors(f"{section.annotation_prefix}x"):
        raise ConfigError("; ".join(complaints), field="toolset.annotationPrefix")
    if not 1 <= section.max_bytes <= API_LIMIT:
        raise ConfigError(f"must be between 1 and {API_LIMIT}", field="toolset.maxBytes")
    if not 1 <= section.max_parts <= MOST_PARTS:
        raise ConfigError(f"must be between 1 and {MOST_PARTS}", field="toolset.maxParts")
    _check_names(section)
    health = section.health_check
    if min(health.attempts, health.failures) < 1:
        raise ConfigError("attempts and failures must be at least 1", field="toolset.healthCheck")
    namespaces = frozenset(section.namespaces)
    return TargetSettings(
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
        credentials={name: _env(credential.env, name) for name, credential in section.credentials.items()},
        endpoint_style=section.endpoint_style,
        cluster_domain=section.cluster_domain or os.environ.get("CLUSTER_DOMAIN") or "cluster.local",
        kubernetes_namespaces=tuple(section.kubernetes_namespaces) or ("*",),
        baseline=tuple(dict.fromkeys(section.baseline)),
        max_bytes=section.max_bytes,
        max_parts=section.max_parts,
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


def _notify(notify: ConsumerNotifyConfig) -> ConsumerNotifyConfig:
    if notify.mode == "reload" and not notify.url.startswith(("http://", "https://")):
        raise ConfigError("mode reload needs a URL to call", field="toolset.notify.url")
    if notify.mode == "template" and notify.deployment.count("/") != 1:
        raise ConfigError("mode template needs NAMESPACE/NAME of a Deployment", field="toolset.notify.deployment")
    return notify


def _detectors(custom: list[CustomDetector]) -> tuple[ServiceDetector, ...]:
    made: dict[str, ServiceDetector] = {}
    for number, row in enumerate(custom):
        field = f"toolset.detectors[{number}]"
        detector = ServiceDetector(**msgspec.structs.asdict(row))
        check_detector(detector, field)
        made[row.type] = detector
    return (*made.values(), *(detector for detector in BUILT_IN if detector.type not in made))
