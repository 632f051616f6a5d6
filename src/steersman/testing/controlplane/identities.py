"""Who may do what on a control plane under test: users and service accounts with the rights a test gives them.

Rights are the rules of a Role (`{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}`), granted in one
namespace, or everywhere when none is named. Every identity comes as a kubeconfig file.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import yaml

from steersman.testing.service_accounts import Rule, grant_rules, make_service_account

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from steersman.certificates import Authority
    from steersman.testing.raw_api import RawApi
    from steersman.testing.controlplane.run_folder import RunFolder

__all__ = ["Identities", "Rule", "kubeconfig"]

_RBAC = "rbac.authorization.k8s.io"


def kubeconfig(url: str, ca_pem: str, *, name: str, user: Mapping[str, str], namespace: str = "default") -> str:
    """A kubeconfig with one cluster, one user and one context, as YAML."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(ca_pem.encode()).decode()}
    context = {"cluster": "steersman", "user": name, "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "steersman", "cluster": cluster}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": "steersman", "context": context}],
        "current-context": "steersman",
    }
    return yaml.safe_dump(document, sort_keys=False)


class Identities:
    """Makes identities for one server."""

    def __init__(self, url: str, authority: Authority, folder: RunFolder) -> None:
        self._url = url
        self._authority = authority
        self._folder = folder

    def certificate(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """The kubeconfig of a user known by a client certificate; its rights are those of its groups."""
        signed = self._authority.client(user, groups)
        credentials = {
            "client-certificate-data": base64.b64encode(signed.certificate).decode(),
            "client-key-data": base64.b64encode(signed.key).decode(),
        }
        return self._write(user, credentials, "default")

    async def user(self, api: RawApi, name: str, rules: Sequence[Rule], *, namespace: str | None = None) -> Path:
        """The kubeconfig of a user with exactly these rights."""
        subject = {"apiGroup": _RBAC, "kind": "User", "name": name}
        await grant_rules(api, name, subject, rules, namespace)
        return self.certificate(name)

    async def service_account(
        self, api: RawApi, name: str, rules: Sequence[Rule], *, namespace: str, everywhere: bool = False
    ) -> Path:
        """The kubeconfig of a service account in `namespace`, with rights there or `everywhere`."""
        token = await make_service_account(api, name, rules, namespace=namespace, everywhere=everywhere)
        return self._write(f"{namespace}-{name}", {"token": token}, namespace)

    def _write(self, name: str, credentials: Mapping[str, str], namespace: str) -> Path:
        content = kubeconfig(self._url, self._authority.pem.decode(), name=name, user=credentials, namespace=namespace)
        return self._folder.write(f"kubeconfigs/{name.replace(':', '-')}.yaml", content)
