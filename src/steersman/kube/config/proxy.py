"""Which proxy a server is reached through, when its kubeconfig does not say: HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

The rules are those of Go's net/http, so that kubectl and we take the same way.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_proxy", "proxy_from_environment"]


def check_proxy(url: str) -> str | None:
    """What is wrong with a proxy's URL; None when it can be used."""
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and (parts.port or True)
    except ValueError:
        return "is not a URL (expected http://HOST:PORT)"
    if parts.scheme == "socks5":
        return "SOCKS proxies are not supported: use an HTTP proxy (http://HOST:PORT)"
    if parts.scheme not in {"http", "https"} or not known:
        return "is not the URL of a proxy (expected http://HOST:PORT)"
    return None


def proxy_from_environment(server: str, env: Mapping[str, str]) -> str | None:
    """The proxy for `server`, or None for a direct connection."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = env.get(name.upper()) or env.get(name)
    if not proxy or _bypassed(parts.hostname or "", parts.port, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    return None if check_proxy(proxy) else proxy


def _bypassed(host: str, port: int | None, no_proxy: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, port, address) for entry in no_proxy.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int | None, address: IPv4Address | IPv6Address | None) -> bool:
    if entry == "*":
        return True
    if address is not None:
        if "/" in entry:
            try:
                return address in ip_network(entry, strict=False)
            except ValueError:
                return False
        bare, _, wanted = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
        return _address(bare) == address and (not wanted or wanted == str(port))
    name, _, wanted = entry.partition(":")
    if wanted and wanted != str(port):
        return False
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
