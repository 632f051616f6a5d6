"""ValidatingAdmissionPolicies of tests: small specs, and a way to know when a server acts on them.

    policies = PolicyInstaller(api, ns)
    await policies.install("limit", validations("object.data.size() < 3"), actions=["Deny"])
    await policies.ready()
    ...
    await policies.remove()

A real API server takes up policies and bindings about a second after they are stored, in the order of their writes.
`ready` therefore writes one more policy, a sentinel, and returns once a server refuses what only the sentinel denies.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from steersman.testing import eventually
from tests.support.manifests import configmap

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Manifest, Space

__all__ = ["REGISTRATION", "PolicyInstaller", "policy_rule", "validations"]

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
_BINDINGS = f"{REGISTRATION}/validatingadmissionpolicybindings"
_numbers = itertools.count(1)


def policy_rule(*resources: str, group: str = "", version: str = "v1", **fields: Any) -> Manifest:
    """A resource rule for all operations."""
    operations = fields.pop("operations", ["*"])
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": operations,
        **fields,
    }


def validations(*expressions: str | Manifest, **spec: Any) -> Manifest:
    """The spec of a policy for ConfigMaps with these validations."""
    match = {"resourceRules": [policy_rule("configmaps")]}
    made = [{"expression": item} if isinstance(item, str) else item for item in expressions]
    return {"matchConstraints": match, "validations": made, **spec}


class PolicyInstaller:
    """Writes policies for one namespace, and removes them."""

    def __init__(self, api: RawApi, ns: Space) -> None:
        self._api = api
        self._ns = ns
        self._paths: list[str] = []

    async def install(self, name: str, spec: Manifest, *bindings: Manifest) -> str:
        """A policy and its bindings (one that denies when none are given); its name on the server."""
        full = f"{name}-{os.getpid()}-{next(_numbers)}"
        here = {"matchLabels": {"kubernetes.io/metadata.name": str(self._ns)}}
        match = {"namespaceSelector": here, **spec.get("matchConstraints", {})}
        await self._create(_POLICIES, full, {**spec, "matchConstraints": match})
        for number, binding in enumerate(bindings or ({},)):
            defaults = {"policyName": full, "validationActions": ["Deny"]}
            await self._create(_BINDINGS, f"{full}-b{number}", defaults | binding)
        return full

    async def _create(self, path: str, name: str, spec: Manifest) -> None:
        made = await self._api.post(path, {"metadata": {"name": name}, "spec": spec})
        assert made.status == 201, made.body
        self._paths.append(f"{path}/{name}")

    async def ready(self) -> None:
        """Wait until the server acts on everything that is installed."""
        probe = f"probe-{next(_numbers)}"
        match = {"resourceRules": [policy_rule("configmaps", resourceNames=[probe])]}
        await self.install("sentinel", validations("false", matchConstraints=match))

        async def acts() -> bool:
            answer = await self._api.post(self._ns.core("configmaps"), configmap(probe), dryRun="All")
            return bool(answer.status == 422)

        await eventually(acts)

    async def remove(self) -> None:
        """Delete everything that is installed."""
        while self._paths:
            await self._api.delete(self._paths.pop())

    async def create(self, manifest: Manifest, resource: str = "configmaps", **query: Any) -> RawResponse:
        """Create an object of the core group in the namespace."""
        return await self._api.post(self._ns.core(resource), manifest, **query)
