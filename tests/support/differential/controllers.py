"""What controllers do on a real server, done or awaited for both servers alike.

Quotas: no controller runs that would bring a quota's usage up to date, so the test counts and writes it. Whether the
admission of the real server has seen that is found out with a Secret, of which a quota allows one or none in turns.

Garbage collection: it is over when a chain of owners that was made for the purpose is gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.differential.steps import KINDS
from tests.support.manifests import configmap, owner, secret

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi

__all__ = ["Collector", "Quota", "left_over"]

_OWNED = ("configmap", "secret", "service", "deployment", "job")
_NOISE = "kube-root-ca.crt"
_CHAIN = 4


class Quota:
    """The quota of one sequence on one server."""

    def __init__(self, api: RawApi, namespace: str, name: str, hard: dict[str, str]) -> None:
        self._api = api
        self._namespace = namespace
        self._path = KINDS["quota"].path(namespace, name)
        self._hard = hard
        self._secrets = 0

    async def create(self) -> Any:
        """Put it in force."""
        body = {"metadata": {"name": self._path.rpartition("/")[2]}, "spec": {"hard": self._limits()}}
        made = await self._api.post(KINDS["quota"].path(self._namespace), body)
        assert made.status == 201, made.body
        return await self._update_usage()

    async def count(self) -> Any:
        """Bring its usage up to date, and return it as the server shows it."""
        self._secrets = 1 - self._secrets
        return await self._update_usage()

    def _limits(self) -> dict[str, str]:
        return {**self._hard, "secrets": str(self._secrets)}

    async def _update_usage(self) -> Any:
        limits = self._limits()
        used = {name: str(await self._usage(name)) for name in limits}
        assert (await self._api.patch(self._path, {"spec": {"hard": limits}})).status == 200
        status = {"status": {"hard": limits, "used": used}}
        assert (await self._api.patch(f"{self._path}/status", status)).status == 200
        wanted = 201 if self._secrets else 403
        path = KINDS["secret"].path(self._namespace)
        async with asyncio.timeout(60):
            while (await self._api.post(path, secret("probe"), dryRun="All")).status != wanted:
                pass
        return (await self._api.get(self._path)).body["status"]

    async def _usage(self, name: str) -> int:
        resource = name.removeprefix("count/").split(".", 1)[0]
        kind = next(kind for kind in KINDS.values() if kind.plural == resource)
        items = (await self._api.get(kind.path(self._namespace))).body["items"]
        if name == "services.nodeports":
            return sum(bool(port.get("nodePort")) for item in items for port in item["spec"].get("ports", ()))
        if name == "pods":
            return sum("deletionTimestamp" not in item["metadata"] for item in items)
        return len(items)


class Collector:
    """Waits for the garbage collector of one server."""

    def __init__(self, api: RawApi, namespace: str) -> None:
        self._api = api
        self._path = KINDS["configmap"].path(namespace)

    async def settle(self) -> None:
        """Return when a chain of owners, made and cut here, has been collected to its end."""
        above = None
        for index in range(_CHAIN):
            meta = {} if above is None else {"ownerReferences": [owner(above)]}
            made = await self._api.post(self._path, configmap(f"zz-chain-{index}", **meta))
            assert made.status == 201, made.body
            above = made.body
        await self._api.delete(f"{self._path}/zz-chain-0", propagationPolicy="Background")
        async with asyncio.timeout(60):
            while (await self._api.get(f"{self._path}/zz-chain-{_CHAIN - 1}")).status != 404:
                pass


async def left_over(api: RawApi, namespace: str) -> list[Any]:
    """The objects that may own each other, as they are."""
    lists = {kind: (await api.get(KINDS[kind].path(namespace))).body["items"] for kind in _OWNED}
    return [
        {"kind": kind, **item} for kind, items in lists.items() for item in items if item["metadata"]["name"] != _NOISE
    ]
