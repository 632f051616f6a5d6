"""Where a cluster is and who we are there, as plain data.

Material that can be inline or in a file is `bytes` or a `Path`; a file is read when it is needed and again when it
changes. Secret fields are left out of every repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["AuthInfo", "Config", "ExecConfig", "OIDCProvider"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecConfig:
    """A program that prints credentials (client.authentication.k8s.io)."""

    api_version: str
    command: (
        str  # resolved against the kubeconfig's folder when it is a relative path; a bare name is looked up in PATH
    )
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"
    cluster_extension: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OIDCProvider:
    """An OpenID Connect issuer and the tokens it gave us."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    ca: Path | bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthInfo:
    """How to prove who we are. Nothing set means anonymous."""

    name: str = ""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    client_certificate: Path | bytes | None = field(default=None, repr=False)
    client_key: Path | bytes | None = field(default=None, repr=False)
    exec_plugin: ExecConfig | None = None
    oidc: OIDCProvider | None = None
    impersonate: tuple[tuple[str, str], ...] = ()  # Impersonate-* headers, groups repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One cluster as seen by one user."""

    server: str  # scheme://host[:port][/prefix], no trailing slash
    ca: Path | bytes | None = field(default=None, repr=False)  # None: the certificates the system trusts
    auth: AuthInfo = field(default_factory=AuthInfo)
    proxy_url: str | None = field(default=None, repr=False)  # may hold a password
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    disable_compression: bool = False
    namespace: str = "default"
    context: str = ""
    cluster: str = ""
    source: str = "code"  # what errors name: the kubeconfig file, "in-cluster", or "code"
