"""Finding the cluster: kubeconfig files as kubectl reads them, or the pod we run in.

    an explicit path  >  the files in $KUBECONFIG, merged  >  ~/.kube/config  >  in-cluster

Merging: for each cluster, user and context the first file that has it wins as a whole; current-context is the first
one set. Files in the list that do not exist are skipped. Relative paths mean: relative to the file that holds them.
Everything wrong is a ConfigError with file, line, field and the way out, and no value from the file in its text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from steersman.errors import ConfigError
from steersman.kube.config.config import AuthInfo, Config, ExecConfig, OIDCProvider
from steersman.kube.config.proxy import check_proxy, proxy_from_environment
from steersman.kube.config.yaml_document import YamlDocument

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Config", "load_config"]

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class _Wire(msgspec.Struct, rename="kebab"):
    """Parts of a kubeconfig."""


class _Extension(_Wire):
    name: str
    extension: Any = None


class _Cluster(_Wire):
    server: str = ""
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: bytes | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[_Extension] | None = None


class _EnvVar(_Wire):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: Literal["Never", "IfAvailable", "Always"] | None = None


class _AuthProvider(_Wire):
    name: str
    config: dict[str, str] | None = None


class _User(_Wire):
    client_certificate: str | None = None
    client_certificate_data: bytes | None = None
    client_key: str | None = None
    client_key_data: bytes | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    as_user: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    auth_provider: _AuthProvider | None = None
    exec: _Exec | None = None


class _Context(_Wire):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(_Wire):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(_Wire):
    name: str
    user: _User | None = None


class _NamedContext(_Wire):
    name: str
    context: _Context | None = None


class _Kubeconfig(_Wire):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class _Entry(NamedTuple):
    """A cluster, user or context, and where it stands."""

    value: Any
    document: YamlDocument
    steps: list[str | int]

    def error(self, message: str, field: str = "") -> ConfigError:
        return self.document.error(message, [*self.steps, *([field] if field else [])])

    def path(self, value: str) -> Path:
        return self.document.path.parent / value


class _Merged:
    """Several kubeconfig files as one."""

    def __init__(self) -> None:
        self.current_context: str | None = None
        self.clusters: dict[str, _Entry] = {}
        self.users: dict[str, _Entry] = {}
        self.contexts: dict[str, _Entry] = {}

    def add(self, document: YamlDocument) -> None:
        if document.value is None:
            return  # an empty file says nothing
        if not isinstance(document.value, dict):
            raise document.error("is not a kubeconfig: expected a mapping with clusters, users and contexts", [])
        found = document.convert(_Kubeconfig)
        self.current_context = self.current_context or found.current_context
        self._add(document, "clusters", self.clusters, [(item.name, item.cluster) for item in found.clusters or ()])
        self._add(document, "users", self.users, [(item.name, item.user) for item in found.users or ()])
        self._add(document, "contexts", self.contexts, [(item.name, item.context) for item in found.contexts or ()])

    @staticmethod
    def _add(document: YamlDocument, section: str, into: dict[str, _Entry], items: list[tuple[str, Any]]) -> None:
        names: set[str] = set()
        for index, (name, value) in enumerate(items):
            if name in names:
                raise document.error(
                    f"the name {name!r} is there twice: rename or remove one", [section, index, "name"]
                )
            names.add(name)
            into.setdefault(name, _Entry(value, document, [section, index, section[:-1]]))


def load_config(
    path: str | Path | None = None, context: str | None = None, *, env: Mapping[str, str] = os.environ
) -> Config:
    """The cluster to talk to. `context` chooses another than the current one."""
    if path is not None:
        files, required = [Path(path)], True
    elif env.get("KUBECONFIG"):
        files, required = [Path(name) for name in dict.fromkeys(env["KUBECONFIG"].split(os.pathsep)) if name], False
    else:
        home = env.get("HOME") or str(Path.home())
        files, required = [Path(home, ".kube", "config")], False
    merged, missing = _Merged(), []
    for file in files:
        try:
            merged.add(YamlDocument.read(file.absolute(), hint="; correct it or take it out of $KUBECONFIG"))
        except FileNotFoundError:
            missing.append(str(file))
    if missing and required:
        raise ConfigError("this kubeconfig does not exist: check --kubeconfig", where=missing[0])
    if not (merged.clusters or merged.contexts or merged.users):
        found = None if context else _in_cluster(env)
        if found is None:
            tried = ", ".join(map(str, files))
            raise ConfigError(f"no cluster is configured (tried {tried}): set KUBECONFIG or pass --kubeconfig")
        return found
    return _resolve(merged, context, ", ".join(str(file) for file in files if str(file) not in missing), env)


def _resolve(merged: _Merged, context: str | None, source: str, env: Mapping[str, str]) -> Config:
    name = context or merged.current_context
    known = ", ".join(sorted(merged.contexts)) or "none"
    if not name:
        raise ConfigError(f"no context is chosen: set current-context or pass --context (known: {known})", where=source)
    chosen = merged.contexts.get(name)
    if chosen is None or chosen.value is None:
        raise ConfigError(f"unknown context {name!r} (known: {known})", where=source)
    cluster = merged.clusters.get(chosen.value.cluster)
    if cluster is None or cluster.value is None:
        known = ", ".join(sorted(merged.clusters)) or "none"
        raise chosen.error(f"unknown cluster {chosen.value.cluster!r} (known: {known})", "cluster")
    user = AuthInfo()
    if chosen.value.user:
        entry = merged.users.get(chosen.value.user)
        if entry is None:
            known = ", ".join(sorted(merged.users)) or "none"
            raise chosen.error(f"unknown user {chosen.value.user!r} (known: {known})", "user")
        if entry.value is not None:
            user = _user(chosen.value.user, entry, _extension(cluster.value))
    return _cluster(chosen.value, cluster, user, name, env)


def _cluster(chosen: _Context, entry: _Entry, user: AuthInfo, context: str, env: Mapping[str, str]) -> Config:
    found: _Cluster = entry.value
    server = _server(entry, secure=bool(found.certificate_authority or found.certificate_authority_data))
    ca: Path | bytes | None = found.certificate_authority_data or None
    if ca is None and found.certificate_authority:
        ca = entry.path(found.certificate_authority)
    insecure = bool(found.insecure_skip_tls_verify)
    if insecure and ca is not None:
        raise entry.error("excludes certificate-authority: remove one of the two", "insecure-skip-tls-verify")
    if found.proxy_url:
        problem = check_proxy(found.proxy_url)
        if problem:
            raise entry.error(problem, "proxy-url")
    return Config(
        server=server,
        ca=ca,
        auth=user,
        proxy_url=found.proxy_url or proxy_from_environment(server, env),
        tls_server_name=found.tls_server_name or None,
        insecure_skip_tls_verify=insecure,
        disable_compression=bool(found.disable_compression),
        namespace=chosen.namespace or "default",
        context=context,
        cluster=chosen.cluster,
        source=str(entry.document.path),
    )


def _server(entry: _Entry, *, secure: bool) -> str:
    server: str = entry.value.server.strip()
    if not server:
        raise entry.error("is empty: set it to the address of the API server, https://HOST:PORT", "server")
    if "://" not in server:
        server = f"{'https' if secure else 'http'}://{server}"  # as kubectl does
    match = re.fullmatch(r"(https?)://([^/?#@\s]+)(/[^?#\s]*)?", server)
    if match is None:
        raise entry.error("is not the address of an API server (expected https://HOST:PORT, without a user)", "server")
    return server.rstrip("/")


def _user(name: str, entry: _Entry, cluster_extension: Any) -> AuthInfo:
    found: _User = entry.value
    if found.username and (found.token or found.token_file):
        raise entry.error("excludes token: remove one of the two", "username")
    certificate = found.client_certificate_data or _optional_path(entry, found.client_certificate)
    key = found.client_key_data or _optional_path(entry, found.client_key)
    if (certificate is None) != (key is None):
        there, lacks = (
            ("client-key", "client-certificate") if certificate is None else ("client-certificate", "client-key")
        )
        raise entry.error(f"{there} needs {lacks}: add it, as a path or as {lacks}-data")
    return AuthInfo(
        name=name,
        token=found.token or None,
        token_file=_optional_path(entry, found.token_file),
        username=found.username or None,
        password=found.password or None,
        client_certificate=certificate,
        client_key=key,
        exec_plugin=_exec(entry, found.exec, cluster_extension) if found.exec else None,
        oidc=_oidc(entry, found.auth_provider) if found.auth_provider else None,
        impersonate=_impersonation(entry, found),
    )


def _exec(entry: _Entry, found: _Exec, cluster_extension: Any) -> ExecConfig:
    entry = entry._replace(steps=[*entry.steps, "exec"])
    if not found.command:
        raise entry.error("is empty: name the program", "command")
    if found.api_version not in _EXEC_VERSIONS:
        raise entry.error(f"must be one of {', '.join(_EXEC_VERSIONS)}", "apiVersion")
    if found.interactive_mode is None and found.api_version == _EXEC_VERSIONS[0]:
        raise entry.error("is required: Never, IfAvailable or Always", "interactiveMode")
    command = found.command
    if "/" in command and not command.startswith("/"):
        command = str(entry.path(command))
    return ExecConfig(
        api_version=found.api_version,
        command=command,
        args=tuple(found.args or ()),
        env=tuple((variable.name, variable.value) for variable in found.env or ()),
        install_hint=_ESCAPES.sub("", found.install_hint or "").strip(),
        provide_cluster_info=bool(found.provide_cluster_info),
        interactive_mode=found.interactive_mode or "IfAvailable",
        cluster_extension=cluster_extension,
    )


def _oidc(entry: _Entry, found: _AuthProvider) -> OIDCProvider:
    entry = entry._replace(steps=[*entry.steps, "auth-provider"])
    if found.name != "oidc":
        raise entry.error(f"the auth provider {found.name!r} no longer exists: use an exec plugin", "name")
    entry = entry._replace(steps=[*entry.steps, "config"])
    config = found.config or {}
    for required in ("idp-issuer-url", "client-id"):
        if not config.get(required):
            raise entry.error(f"{required} is missing: add it")
    ca: Path | bytes | None = _optional_path(entry, config.get("idp-certificate-authority"))
    if config.get("idp-certificate-authority-data"):
        try:
            ca = msgspec.convert(config["idp-certificate-authority-data"], bytes)
        except msgspec.ValidationError:
            raise entry.error("is not base64", "idp-certificate-authority-data") from None
    return OIDCProvider(
        issuer=config["idp-issuer-url"],
        client_id=config["client-id"],
        client_secret=config.get("client-secret", ""),
        id_token=config.get("id-token", ""),
        refresh_token=config.get("refresh-token", ""),
        ca=ca,
    )


def _impersonation(entry: _Entry, found: _User) -> tuple[tuple[str, str], ...]:
    if not found.as_user:
        if found.as_uid or found.as_groups or found.as_user_extra:
            raise entry.error("is needed by as-uid, as-groups and as-user-extra: add it", "as")
        return ()
    headers = [("Impersonate-User", found.as_user)]
    if found.as_uid:
        headers.append(("Impersonate-Uid", found.as_uid))
    headers += [("Impersonate-Group", group) for group in found.as_groups or ()]
    headers += [
        (f"Impersonate-Extra-{key}", value) for key, values in (found.as_user_extra or {}).items() for value in values
    ]
    return tuple(headers)


def _extension(cluster: _Cluster) -> Any:
    return next((item.extension for item in cluster.extensions or () if item.name == _EXEC_EXTENSION), None)


def _optional_path(entry: _Entry, value: str | None) -> Path | None:
    return entry.path(value) if value else None


def _in_cluster(env: Mapping[str, str]) -> Config | None:
    """The cluster this pod runs in; None outside a pod."""
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
    token = _SERVICE_ACCOUNT / "token"
    if not host or not port or not token.is_file():
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = _SERVICE_ACCOUNT / "namespace"
    return Config(
        server=server,
        ca=_SERVICE_ACCOUNT / "ca.crt",
        auth=AuthInfo(name="service account", token_file=token),
        proxy_url=proxy_from_environment(server, env),
        namespace=env.get("POD_NAMESPACE") or (namespace.read_text().strip() if namespace.is_file() else "default"),
        context="in-cluster",
        cluster="in-cluster",
        source="in-cluster",
    )
