"""The key store: the Secret with the keys of digests, read now and then, and created once.

    started ──get──► there        its keys count; a newer one is taken up, and every state is rewritten with it
                └──► not there    a key is made in memory, and stored before the first state that names it is written
                └──► refused      digests are not keyed, as before there were keys; states with a key are left alone

Invariant: no state names a key that was not stored before. Two replicas may store at once: only a create can succeed,
and who comes second takes what is there. The Secret is never changed here. A person adds a key to rotate; one who
deletes the Secret while this process runs gets it back with the same keys, at the next check if no write comes before.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

import structlog

from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.errors import AlreadyExists, Forbidden, KubeError, NotFound
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import Secret
from steersman.kube.api.types.rbac import PolicyRule
from steersman.operators.reload.sources.digest_keys import (
    KEY_BYTES,
    NO_KEYS,
    DigestKey,
    Keyring,
    keys_in,
    keys_to_store,
)
from steersman.runtime.reconcile.write_guard import NotLeading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.cluster import Cluster

REFRESH_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 5.0  # while the server does not answer, and nothing is known yet

log = structlog.get_logger(__name__)


def rules(name: str) -> list[PolicyRule]:
    """The rights to it, in the namespace of the operator: no rule can limit by name what may be created."""
    return [
        PolicyRule(api_groups=[""], resources=["secrets"], verbs=["create"]),
        PolicyRule(api_groups=[""], resources=["secrets"], resource_names=[name], verbs=["get"]),
    ]


class KeyStore:
    """See the module. Without a name digests are not keyed."""

    def __init__(self, namespace: str = "", name: str = "", *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._stored = True  # what there is to store
        self._named = False  # whether states may name these keys: they were in the Secret once
        self._refused = ""  # why it may not be created
        self._lock = asyncio.Lock()
        self._warned: set[str] = set()
        self._lost: set[str] = set()  # identifiers of keys that are gone
        self.ring = NO_KEYS
        self.ready = asyncio.Event()  # it is known which keys there are
        self.listeners: list[Callable[[], None]] = []  # called when new digests have another key
        if not name:
            self.ready.set()

    @property
    def in_use(self) -> bool:
        """Whether there is a Secret to read."""
        return bool(self._name)

    async def run(self, cluster: Cluster) -> None:
        """Read it for ever, every now and then."""
        while True:
            try:
                await self.refresh(cluster.client)
                if self._named:  # the Secret was deleted: a process that starts without it could compare nothing
                    await self.store(cluster.client)
            except NotLeading:
                pass  # the one that leads does it
            except KubeError as error:
                log.warning("digest keys not read", secret=self._title, error=str(error))
            await self._clock.sleep(REFRESH_SECONDS if self.ready.is_set() else RETRY_SECONDS)

    async def refresh(self, client: Client) -> None:
        """Take what the Secret says now; KubeError when the server does not answer."""
        before = self.ring.newest
        async with self._lock:
            await self._refresh(client)
        self.ready.set()
        if self.ring.newest != before:
            for listener in self.listeners:
                listener()

    async def store(self, client: Client) -> bool:
        """Store what is not stored yet, before a state names it; returns whether the keys are still the same."""
        if self._stored:
            return True
        before = self.ring
        async with self._lock:
            if not self._stored:
                await self._store(client)
        return self.ring == before

    async def are_lost(self, client: Client, named: Collection[str]) -> bool:
        """Whether keys that a state names are really gone: the Secret is asked once more before that is believed."""
        if self._lost.issuperset(named):
            return True
        if self.in_use:
            await self.refresh(client)
        if any(self.ring.find(name) is not None for name in named) or self.ring.unreadable:
            return False
        self._lost.update(named)
        self._warn("lost", "digest key lost: what sources say now is taken as applied, without a restart")
        return True

    async def _refresh(self, client: Client) -> None:
        try:
            found = keys_in((await client.get(Secret, self._name, namespace=self._namespace)).data)
        except NotFound:
            if self._refused:
                self._unkeyed(self._refused)
                return
            self._stored = False
            if not self.ring.keys:
                self.ring = Keyring(keys=(DigestKey.of(secrets.token_bytes(KEY_BYTES)),))
            return
        except Forbidden as error:
            self._unkeyed(f"secret/{self._title} cannot be read: {error}")
            return
        if not found:
            self._unkeyed(f"secret/{self._title} holds no key of at least {KEY_BYTES} bytes")
            return
        self.ring = Keyring(keys=found).with_older(self.ring.keys)
        self._stored = self._named = True

    async def _store(self, client: Client) -> None:
        meta = ObjectMeta(
            name=self._name, namespace=self._namespace, labels={"app.kubernetes.io/managed-by": "steersman"}
        )
        try:
            await client.create(Secret(metadata=meta, type="Opaque", data={**keys_to_store(self.ring.keys)}))
        except AlreadyExists:
            self._stored = True
            made = self.ring
            if not self._named:
                self.ring = NO_KEYS  # no state names the key that was made here
            try:
                await self._refresh(client)
            except KubeError:
                self.ring, self._stored = made, False
                raise
            return
        except Forbidden as error:
            self._refused = f"secret/{self._title} cannot be created: {error}"
            if self._named:
                self._warn(
                    "not stored",
                    "the digest keys are in this process only: create their Secret again before it ends",
                    reason=self._refused,
                    advice="steersman rbac prints the rights",
                )
            else:
                self.ring = NO_KEYS  # no state names the key that was made here
            self._unkeyed(self._refused)
            return
        self._stored = self._named = True
        log.info("digest keys stored", secret=self._title, keys=len(self.ring.keys))

    def _unkeyed(self, why: str) -> None:
        """Go on with the keys that are here, or without any: what names another one is not compared."""
        self._stored = True
        self.ring = Keyring(keys=self.ring.keys, unreadable=why)
        if not self.ring.keys:
            self._warn(
                why,
                "digests are not keyed: short values of Secrets can be guessed from them",
                reason=why,
                advice="steersman rbac prints the rights",
            )

    def _warn(self, once: str, message: str, **fields: str) -> None:
        if once not in self._warned:
            self._warned.add(once)
            log.warning(message, secret=self._title, **fields)

    @property
    def _title(self) -> str:
        return f"{self._namespace}/{self._name}"


async def read_ring(client: Client, places: Iterable[tuple[str, str]], named: Collection[str]) -> Keyring:
    """The keys for one who only asks: of the first of these Secrets (namespace, name) that holds one of those `named`.

    Who asks never knows all keys that there are, so what is not found is unknown and not gone.
    """
    why = []
    for namespace, name in dict.fromkeys(places):
        try:
            found = keys_in((await client.get(Secret, name, namespace=namespace)).data)
        except NotFound:
            why.append(f"secret/{namespace}/{name} does not exist")
        except Forbidden:
            why.append(f"secret/{namespace}/{name} cannot be read (ask for the right to get it)")
        else:
            why.append(f"secret/{namespace}/{name} does not hold it")
            if any(key.id in named for key in found):
                return Keyring(keys=found, unreadable="; ".join(why))
    return Keyring(unreadable="; ".join(why) or "reload.digestSecret is none")
