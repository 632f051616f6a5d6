"""URLs of services: built from a Service, or set by annotations and then validated. Pure.

Annotations of a Service reach an agent that expands templates and holds credentials. So a value with a template, a
control character, user information or a fragment is rejected as a whole; nothing is sanitized.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from steersman.errors import FormatError

if TYPE_CHECKING:
    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.operators.toolset.api.crd import ServiceSummary, ServiceSummaryPort

_TEMPLATE: Final = re.compile(r"\{\{|\}\}|\{%|%\}|\$\{|\$\(|`")
_LONGEST: Final = 2048
_HTTPS_PORTS: Final = (443, 8443)
# Addresses at which clouds hand out credentials, beyond the link-local ones.
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "fd00:ec2::254")))
_METADATA_HOSTS: Final = frozenset({"metadata", "metadata.google.internal", "instance-data", "metadata.goog"})


def check_text(value: str, *, longest: int = _LONGEST) -> str:
    """The value itself; FormatError when an agent could expand it into something else."""
    if len(value) > longest:
        raise FormatError(f"is longer than {longest} characters")
    if _TEMPLATE.search(value):
        raise FormatError("holds a template; templates are rejected, because an agent would expand them")
    if any(not char.isprintable() for char in value):
        raise FormatError("holds control characters")
    return value


def check_url(value: str) -> str:
    """An http(s) URL without user information, query and fragment."""
    check_text(value)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise FormatError("is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FormatError("is not a URL of http or https")
    if "@" in parts.netloc:
        raise FormatError("holds user information; put credentials into the consumer's environment")
    if parts.fragment or parts.query or value.endswith(("#", "?")):
        raise FormatError("holds a fragment or a query")
    if " " in value or "\\" in value or port == 0:
        raise FormatError("is not a URL")
    return value.rstrip("/")


def url_host(url: str) -> tuple[str, int]:
    """Host and port of a valid URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def forbidden_address(address: str, *, loopback: bool) -> str | None:
    """Why an address or host name is forbidden; None when it is allowed."""
    try:
        found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        name = address.rstrip(".").lower()
        if name in _METADATA_HOSTS:
            return "is a metadata service"
        return "is this machine" if not loopback and (name == "localhost" or name.endswith(".localhost")) else None
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_link_local or found in _METADATA:
        return "is link-local or a metadata service"
    if found.is_multicast or found.is_unspecified or found.is_reserved:
        return "is not an address of a service"
    return "is this machine" if found.is_loopback and not loopback else None


def choose_port(service: ServiceSummary, names: tuple[str, ...], numbers: tuple[int, ...]) -> ServiceSummaryPort | None:
    """The port to use: by name, then by number, then the first."""
    ports = [port for port in service.spec.ports if port.protocol in ("", "TCP")]
    for name in names:
        for port in ports:
            if port.name == name:
                return port
    for number in numbers:
        for port in ports:
            if port.port == number:
                return port
    return ports[0] if ports else None


def scheme_of(port: ServiceSummaryPort) -> str:
    """The scheme of a port, by its appProtocol, name and number."""
    spoken = (port.app_protocol or "").lower().rpartition("/")[2]
    secure = spoken == "https" or port.name == "https" or port.name.startswith("https-") or port.port in _HTTPS_PORTS
    return "https" if secure and spoken != "http" else "http"


def service_url(service: ServiceSummary, port: int, scheme: str, path: str, settings: TargetSettings) -> str:
    """The URL of a Service's port inside the cluster."""
    host = f"{service.name}.{service.namespace}"
    if settings.endpoint_style == "fqdn":
        host = f"{host}.svc.{settings.cluster_domain}"
    return f"{scheme}://{host}:{port}{path.rstrip('/')}"
