"""The state of one server: its objects, what it serves, its watches, clock and randomness.

An `Api` is one server without its network. Handlers are plain functions of an `Api` and a `Request`; none of them
awaits between reading and writing, so each request is one atomic step and needs no lock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING

import msgspec

from steersman.apiserver.admission.configurations import WebhookConfigurations
from steersman.apiserver.admission.policies import AdmissionPolicies
from steersman.apiserver.authorization.authorizer import RBACAuthorizer
from steersman.apiserver.http.authenticator import Authenticator
from steersman.apiserver.quota.quota_usage import QuotaUsage
from steersman.apiserver.resources.registry import Registry
from steersman.apiserver.storage.representations import FullView, MetadataView, TableView, View
from steersman.apiserver.storage.store import Store
from steersman.apiserver.storage.watch import WatchHub
from steersman.apiserver.write.admission import SERVICE_ACCOUNT
from steersman.apiserver.write.service_allocator import ServiceAllocator
from steersman.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from steersman.apiserver.admission.chain import AdmissionChain
    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record, ResourceTable
    from steersman.kube.api.gvk import Kind

NAME_CHARS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alikes, as generated names have it


class Reply(msgspec.Struct, frozen=True):
    """An answer, ready to send."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None


def timestamp(seconds: float) -> str:
    """RFC 3339 in UTC, to the second, as objects carry it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Api:
    """One API server's state."""

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        history: int = 50_000,
        token: str = "",
        rbac: bool = False,
    ) -> None:
        self.clock = clock
        self.random = random or Random()  # noqa: S311  names and uids, not secrets
        self.store = Store(clock, history=history)
        self.registry = Registry()
        self.hub = WatchHub(self.store, clock)
        self.authenticator = Authenticator(token, clock, self.store.table(SERVICE_ACCOUNT).records)
        self.authorizer = RBACAuthorizer(self.store) if rbac else None  # None: authenticated users may do everything
        self.service_allocator = ServiceAllocator(self.store, self.random)
        self.webhooks = WebhookConfigurations(self.store)
        self.quota_usage = QuotaUsage(self.store)
        self.policies = AdmissionPolicies(self.store)
        self.admission: AdmissionChain | None = None  # set while webhooks and policies may judge the request
        self._views: dict[ResourceInfo, tuple[FullView, MetadataView]] = {}
        self._versions: dict[ResourceInfo, dict[str, ResourceInfo]] = {}
        self._versions_of = -1  # the registry's revision they are of
        self._stamp = (0, "")
        self.started = self.now()

    def now(self) -> str:
        """The current time as objects carry it."""
        second = int(self.clock.time())
        if self._stamp[0] != second:
            self._stamp = (second, timestamp(second))
        return self._stamp[1]

    def uid(self) -> str:
        """A new random UUID (version 4)."""
        bits = self.random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def suffix(self) -> str:
        """The random part of a generated name."""
        return "".join(self.random.choices(NAME_CHARS, k=5))

    def table(self, info: ResourceInfo) -> ResourceTable:
        """Where the objects of a resource are."""
        return self.store.table(info.storage)

    def storage_info(self, kind: Kind) -> ResourceInfo | None:
        """The resource whose objects `kind`'s table holds, in the stored version (or any served one)."""
        found = self.registry.lookup(kind.group, kind.version, kind.plural)
        if found is not None:
            return found
        for info in self.registry.resources():
            if info.storage.qualified == kind.qualified and not info.virtual:
                return info
        return None

    def versions(self, info: ResourceInfo) -> dict[str, ResourceInfo]:
        """All served versions of a resource by their apiVersion, `info` among them."""
        if self._versions_of != self.registry.revision:
            self._versions.clear()
            self._versions_of = self.registry.revision
        found = self._versions.get(info)
        if found is None:
            found = {other.kind.api_version: other for other in self.registry.versions(info)}
            self._versions[info] = found
        return found

    def view(self, request: Request) -> View:
        """The representation that `request` negotiated."""
        info = request.route.info
        if request.media.view == "Table":
            return TableView(info, include=request.query.text("includeObject"), clock=self.clock)
        full, metadata = self.views(info)
        return metadata if request.media.view else full

    def views(self, info: ResourceInfo) -> tuple[FullView, MetadataView]:
        """The representations of a resource that depend on nothing else."""
        found = self._views.get(info)
        if found is None:
            if len(self._views) > 1000:  # definitions that changed leave values behind
                self._views.clear()
            found = self._views[info] = (FullView(info), MetadataView(info))
        return found

    def answer(self, request: Request, record: Record, status: int = 200) -> Reply:
        """`record` as the client wants to see it."""
        return Reply(status, self.view(request).encode_object(record), request.media.content_type)
