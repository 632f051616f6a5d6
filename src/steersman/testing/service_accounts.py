"""Service accounts with exactly the rights that a test gives them, on the embedded server and on a real one.

    async with client_as(server, "reader", rule("configmaps", "get", "list"), namespace="shop") as client:
        ...  # every other request of this client is forbidden

Rights are rules of a Role, made by `steersman.runtime.rbac.rule` or written as in a manifest. They are granted in the
namespace of the account, or everywhere. Needs a server that evaluates RBAC: those of the pytest fixtures do.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from steersman.errors import SteersmanError
from steersman.kube.api.types.rbac import PolicyRule
from steersman.testing.raw_api import RawApi, ssl_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from steersman.kube.client.client import Client
    from steersman.testing.raw_api import ApiServer

__all__ = ["IdentityError", "Rule", "client_as", "grant_rules", "make_service_account"]

Rule: TypeAlias = "Mapping[str, Sequence[str]]"
"""One rule of a Role, as in its manifest."""

_RBAC = "rbac.authorization.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"


class IdentityError(SteersmanError):
    """The API server did not accept a user, an account or its rights."""


@asynccontextmanager
async def client_as(
    server: ApiServer,
    name: str,
    *rules: PolicyRule | Rule,
    namespace: str,
    everywhere: bool = False,  # the rules hold in all namespaces and at the cluster scope
) -> AsyncIterator[Client]:
    """A client of the service account `name`, made if it does not exist, with these rights besides those it has."""
    from steersman.kube.client.client import Client
    from steersman.kube.config.config import AuthInfo, Config
    from steersman.runtime.rbac import rule_manifest

    wanted = [rule_manifest(rule) if isinstance(rule, PolicyRule) else rule for rule in rules]
    trust = ssl_context(server.ca_pem)
    async with RawApi(server.url, token=server.token, ssl_context=trust, user_agent="steersman-testing") as api:
        token = await make_service_account(api, name, wanted, namespace=namespace, everywhere=everywhere)
    async with RawApi(server.url, token=token, ssl_context=trust, user_agent="steersman-testing") as own:
        await _wait_for_rules(own, wanted, namespace)
    config = Config(server=server.url, ca=server.ca_pem.encode(), auth=AuthInfo(token=token), namespace=namespace)
    async with Client.connect(config) as client:
        yield client


async def make_service_account(
    api: RawApi, name: str, rules: Sequence[Rule], *, namespace: str, everywhere: bool = False
) -> str:
    """A token of the service account `name`, which has these rights now."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await _create(api, accounts, {"metadata": {"name": name}}, may_exist=True)
    if rules:
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        await grant_rules(api, f"{namespace}-{name}", subject, rules, None if everywhere else namespace)
    answer = await _create(api, f"{accounts}/{name}/token", {"spec": {"expirationSeconds": 24 * 3600}})
    token: str = answer["status"]["token"]
    return token


async def grant_rules(
    api: RawApi, name: str, subject: Mapping[str, str], rules: Sequence[Rule], namespace: str | None
) -> None:
    """Give `subject` these rules in one namespace or everywhere; the names of role and binding begin with `name`."""
    kind = "Role" if namespace else "ClusterRole"
    path = f"/apis/{_RBAC}/v1" + (f"/namespaces/{namespace}" if namespace else "")
    metadata = {"generateName": f"{name}-"}
    role = await _create(api, f"{path}/{kind.lower()}s", {"metadata": metadata, "rules": list(rules)})
    reference = {"apiGroup": _RBAC, "kind": kind, "name": role["metadata"]["name"]}
    binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
    await _create(api, f"{path}/{kind.lower()}bindings", binding)


async def _wait_for_rules(api: RawApi, rules: Sequence[Rule], namespace: str) -> None:
    """A real server learns of new roles through a watch of its own, a moment after they were made."""
    from steersman.testing.waiting import eventually

    async def known() -> bool:
        review = await api.post(_REVIEWS, {"spec": {"namespace": namespace}})
        status = review.body["status"]
        held = [*(status.get("resourceRules") or ()), *(status.get("nonResourceRules") or ())]
        return all({key: list(values) for key, values in rule.items() if values} in held for rule in rules)

    if rules:
        await eventually(known, "the rights of the service account are in force")


async def _create(api: RawApi, path: str, body: Mapping[str, Any], *, may_exist: bool = False) -> dict[str, Any]:
    answer = await api.post(path, body)
    if answer.status not in ({200, 201, 409} if may_exist else {200, 201}):
        raise IdentityError(f"POST {path}: {answer.status}: {answer.body.get('message', '')}")
    created: dict[str, Any] = answer.body
    return created
