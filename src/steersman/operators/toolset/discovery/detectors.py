"""Detectors: one declarative entry per type of service, and the validation of entries that users write.

An entry matches by label (certain), by a part of the name, or by a port alone (guesses, which must also pass the
identity check). An entry with `ignored` matches services that resemble another type and are something else.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.selectors import Selector


class CustomDetector(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A detector as users write it; one of a known type replaces the built-in one."""

    type: str
    priority: int = 30
    labels: tuple[str, ...] = ()  # label selectors, any of which identifies it
    names: tuple[str, ...] = ()  # parts of a Service's name
    port_names: tuple[str, ...] = ()  # of the port to use, in order
    ports: tuple[int, ...] = ()  # numbers of the port to use, in order
    health_path: str = "/"
    identity_path: str = ""  # its answer identifies the service; empty: there is none
    identity_fields: tuple[str, ...] = ()  # fields of the JSON there (`a.b`), any of which is proof; none: any JSON is
    renders_as: str = ""  # a type whose toolset fits; empty: its own


class ServiceDetector(CustomDetector, frozen=True, kw_only=True):
    """One type of service."""

    port_required: bool = False  # a match by label or name needs one of these ports as well
    path: str = ""  # what follows host and port in the URL
    ignored: bool = False  # matches what resembles another type and is not

    @property
    def renderer(self) -> str:
        """The type whose toolset is rendered."""
        return self.renders_as or self.type


def _named(*values: str, key: str = "app.kubernetes.io/name") -> tuple[str, ...]:
    return tuple(f"{key}={value}" for value in values)


def _either(*values: str) -> tuple[str, ...]:
    return (*_named(*values), *_named(*values, key="app"))


_BUILD_INFO: Final = "/api/v1/status/buildinfo"

# In order: the first entry that matches best wins, so what is more special comes first.
BUILT_IN: Final[tuple[ServiceDetector, ...]] = (
    ServiceDetector(
        type="opentelemetry-collector",
        ignored=True,  # offers metrics about itself on ports that look like a Prometheus, and answers no query
        labels=(
            *_either("opentelemetry-collector", "otel-collector"),
            "app.kubernetes.io/component=opentelemetry-collector",
        ),
        names=("otel-collector", "opentelemetry-collector"),
    ),
    ServiceDetector(
        type="alertmanager",
        priority=65,
        labels=_either("alertmanager", "kube-prometheus-stack-alertmanager"),
        names=("alertmanager",),
        port_names=("http-web", "web", "http"),
        ports=(9093,),
        health_path="/-/healthy",
        identity_path="/api/v2/status",
        identity_fields=("versionInfo", "cluster"),
    ),
    ServiceDetector(
        type="thanos",
        priority=80,
        labels=(
            *_either("thanos-query", "thanos-querier", "thanos-query-frontend"),
            "app.kubernetes.io/name=thanos,app.kubernetes.io/component in (query, query-frontend)",
        ),
        names=("thanos-query",),
        port_names=("http", "web"),
        ports=(10902,),
        health_path="/-/healthy",
        identity_path=_BUILD_INFO,
        identity_fields=("data.version",),
        renders_as="prometheus",
    ),
    ServiceDetector(
        type="victoriametrics",
        priority=80,
        labels=(*_either("vmsingle", "victoria-metrics-single"),),
        names=("vmsingle", "victoria-metrics-single"),
        port_names=("http",),
        ports=(8428, 8429),
        health_path="/health",
        identity_path=_BUILD_INFO,
        identity_fields=("data.version",),
        renders_as="prometheus",
    ),
    ServiceDetector(
        type="victoriametrics-cluster",
        priority=80,
        labels=_either("vmselect"),
        names=("vmselect",),
        port_names=("http",),
        ports=(8481,),
        path="/select/0/prometheus",
        health_path="/health",
        identity_path=f"/select/0/prometheus{_BUILD_INFO}",
        identity_fields=("data.version",),
        renders_as="prometheus",
    ),
    ServiceDetector(
        type="victorialogs",
        priority=45,
        labels=_either("victoria-logs-single", "vlsingle", "vlogs"),
        names=("victoria-logs", "victorialogs", "vlsingle"),
        port_names=("http",),
        ports=(9428,),
        health_path="/health",
    ),
    ServiceDetector(
        type="prometheus",
        priority=80,
        labels=(
            *_either("prometheus"),
            *_named(
                "kube-prometheus-stack-prometheus",
                "prometheus-server",
                "prometheus-operator-prometheus",
                "rancher-monitoring-prometheus",
                "prometheus-prometheus",
                key="app",
            ),
        ),
        names=("prometheus",),
        port_names=("web", "http-web"),
        ports=(9090,),
        health_path="/-/healthy",
        identity_path=_BUILD_INFO,
        identity_fields=("data.version",),
    ),
    ServiceDetector(
        type="grafana",
        priority=70,
        labels=_either("grafana"),
        names=("grafana",),
        port_names=("service", "http", "http-web"),
        ports=(3000,),
        health_path="/api/health",
        identity_path="/api/health",
        identity_fields=("database",),
    ),
    ServiceDetector(
        type="jaeger",
        priority=60,
        labels=_either("jaeger", "jaeger-query"),
        names=("jaeger",),
        port_names=("query", "http-query", "ui"),
        ports=(16686,),
        port_required=True,
        health_path="/",
        identity_path="/api/services",
        identity_fields=("data",),
    ),
    ServiceDetector(
        type="loki",
        priority=55,
        labels=_either("loki"),
        names=("loki",),
        port_names=("http-metrics", "http"),
        ports=(3100, 80),
        health_path="/ready",
        identity_path="/loki/api/v1/status/buildinfo",
        identity_fields=("version",),
    ),
    ServiceDetector(
        type="tempo",
        priority=55,
        labels=_either("tempo"),
        names=("tempo",),
        port_names=("http", "tempo-prom-metrics"),
        ports=(3200,),
        health_path="/ready",
        identity_path="/api/status/buildinfo",
        identity_fields=("version",),
    ),
    ServiceDetector(
        type="opensearch",
        priority=50,
        labels=_either("opensearch"),
        names=("opensearch",),
        port_names=("http", "https", "api"),
        ports=(9200,),
        health_path="/_cluster/health",
        identity_path="/",
        identity_fields=("version.distribution",),
        renders_as="elasticsearch",
    ),
    ServiceDetector(
        type="elasticsearch",
        priority=50,
        labels=(*_either("elasticsearch"), "common.k8s.elastic.co/type=elasticsearch"),
        names=("elasticsearch",),
        port_names=("http", "https", "api"),
        ports=(9200,),
        health_path="/_cluster/health",
        identity_path="/",
        identity_fields=("tagline", "version.distribution"),
    ),
    ServiceDetector(
        type="pyroscope",
        priority=40,
        labels=_either("pyroscope"),
        names=("pyroscope",),
        port_names=("http2", "http", "http-metrics"),
        ports=(4040,),
        health_path="/ready",
        identity_path="/api/v1/status/buildinfo",
        identity_fields=("data.version", "version"),
    ),
    ServiceDetector(type="mcp", priority=30),  # by annotation only
)

# Companions of the types above, found by name or component: each was a real false positive of matching parts of names.
EXCLUDED_SUFFIXES: Final = (
    *("alertmanager", "operator", "node-exporter", "kube-state-metrics", "pushgateway", "exporter", "adapter"),
    *("webhook", "collector", "agent", "canary", "memberlist", "transport", "image-renderer", "alloy"),
)
# Parts of a distributed system that answer no queries.
_INNER_PARTS: Final = (
    *(
        "distributor",
        "ingester",
        "compactor",
        "write",
        "backend",
        "ruler",
        "index-gateway",
        "query-scheduler",
        "storegateway",
    ),
    *("store-gateway", "bucketweb", "receive", "sidecar", "chunks-cache", "results-cache", "metrics", "kubelet"),
)
EXCLUDED_COMPONENTS: Final = frozenset((*EXCLUDED_SUFFIXES, *_INNER_PARTS))

_TYPE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@lru_cache(maxsize=512)
def selector_of(text: str) -> Selector:
    """Parse a selector; each text is parsed once."""
    return Selector.parse(text)


def check_detector(detector: ServiceDetector, field: str) -> None:
    """Validate a user's entry; ConfigError names the field."""
    if not _TYPE.fullmatch(detector.type) or detector.type == "kubernetes":
        raise ConfigError("must be a short name of a-z, 0-9 and -", field=f"{field}.type")
    for text in detector.labels:
        try:
            if selector_of(text).empty:
                raise ConfigError("must not be empty: it would select everything", field=f"{field}.labels")
        except FormatError as error:
            raise ConfigError(str(error), field=f"{field}.labels") from None
    if not (detector.labels or detector.names or detector.ports):
        raise ConfigError("needs labels, names or ports to match by", field=field)
    if any(not 0 < port < 65536 for port in detector.ports):
        raise ConfigError("are numbers from 1 to 65535", field=f"{field}.ports")
    for name, path in (("healthPath", detector.health_path), ("identityPath", detector.identity_path)):
        if path and not path.startswith("/"):
            raise ConfigError("must begin with /", field=f"{field}.{name}")
    known = {known.renderer for known in BUILT_IN if not known.ignored}
    if detector.renders_as and detector.renders_as not in known:
        raise ConfigError(
            f"is not a type with a toolset (known: {', '.join(sorted(known))})", field=f"{field}.rendersAs"
        )
