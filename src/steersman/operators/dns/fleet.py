"""The servers behind instances, and the one driver that each of them has.

Pure where it reads objects (`servers_of`); the fleet itself only remembers drivers, by everything that makes a server
what it is, so that a changed key or address is a new driver; connections of old ones are closed a little later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import DriverError, FormatError, PlanError
from steersman.kube.resources import ObjectRef
from steersman.operators.dns.native import NativeDriver
from steersman.operators.dns.servers import PAUSE, Keys, Server
from steersman.operators.dns.tsig import key_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.clock import Clock
    from steersman.kube.types.core import Secret
    from steersman.kube.types.pods import Pod
    from steersman.operators.dns.driver import Driver
    from steersman.operators.dns.parts import SecretRef
    from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance, KeyRef
    from steersman.operators.dns.tsig import Key

__all__ = ["DNS_PORT", "RNDC_PORT", "SHARED_KEY", "ZONES", "Fleet", "key_ref_of", "keys_of", "servers_of"]

DNS_PORT: Final = 5353  # of pods: unprivileged
RNDC_PORT: Final = 9530
ZONES: Final = "/var/lib/bind"
SHARED_KEY: Final = "bind9-transfer-key"
LAST_CALL: Final = 60.0  # seconds for which the driver of a server as it was is kept


def key_ref_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> SecretRef | None:
    """The Secret that somebody else keeps for this instance; None when we make one."""
    spec = instance.spec
    if spec.rndc_key is not None and spec.rndc_key.secret_ref is not None:
        return spec.rndc_key.secret_ref
    if spec.rndc_secret_ref is not None:
        return spec.rndc_secret_ref
    if spec.config is not None and spec.config.rndc_secret_ref is not None:
        return spec.config.rndc_secret_ref
    if cluster is None:
        return None
    role = cluster.spec.primary if spec.role == "primary" else cluster.spec.secondary
    if role is not None and role.rndc_key is not None and role.rndc_key.secret_ref is not None:
        return role.rndc_key.secret_ref
    if role is not None and role.rndc_secret_ref is not None:
        return role.rndc_secret_ref
    if cluster.spec.global_ is not None and cluster.spec.global_.rndc_secret_ref is not None:
        return cluster.spec.global_.rndc_secret_ref
    return next(iter(cluster.spec.rndc_secret_refs or ()), None)


def keys_of(instance: Bind9Instance, cluster: Bind9Cluster | None, secrets: Mapping[ObjectRef, Secret]) -> Keys:
    """The keys of an instance; PlanError names what is missing."""
    spec, namespace = instance.spec, instance.namespace
    if not spec.endpoints:
        return _own_keys(ObjectRef(f"{instance.name}-rndc-key", namespace), ObjectRef(SHARED_KEY, namespace), secrets)
    ref = key_ref_of(instance, cluster)
    if ref is None:
        raise PlanError("the Secret of its key is not named", reason="KeyMissing", field="spec.rndcKey.secretRef.name")
    control = _key(secrets, ObjectRef(ref.name, namespace), ref)

    def other(further: KeyRef | None) -> Key:
        if further is None:
            return control
        return _key(secrets, ObjectRef(further.secret_ref.name, namespace), further.secret_ref)

    return Keys(control, other(spec.update_key), other(spec.transfer_key))


def _own_keys(own: ObjectRef, shared: ObjectRef, secrets: Mapping[ObjectRef, Secret]) -> Keys:
    """The keys that we made for a server, and those it may still answer to."""
    control = _key(secrets, own)
    held = secrets.get(own)
    assert held is not None
    older: dict[str, Key | None] = {"": None, "update-": None}
    for purpose in older:
        if held.data.get(f"previous-{purpose}secret"):
            kind = "previous-algorithm" if held.data.get("previous-algorithm") else "algorithm"
            older[purpose] = _named(held, own, f"{purpose}key-name", f"previous-{purpose}secret", kind)
    update = _named(held, own, "update-key-name", "update-secret")
    return Keys(control, update, _key(secrets, shared), older[""], older["update-"])


def _key(secrets: Mapping[ObjectRef, Secret], ref: ObjectRef, how: SecretRef | None = None) -> Key:
    secret = secrets.get(ref)
    if secret is None:
        raise PlanError(f"there is no Secret {ref}", reason="KeyMissing", field="spec.rndcKey.secretRef")
    return _named(
        secret, ref, "key-name" if how is None else how.key_name_key, "secret" if how is None else how.secret_key
    )


def _named(secret: Secret, ref: ObjectRef, name_key: str, secret_key: str, algorithm_key: str = "algorithm") -> Key:
    try:
        return key_from(secret.data, name_key=name_key, secret_key=secret_key, algorithm_key=algorithm_key)
    except FormatError as error:
        raise PlanError(f"Secret {ref}: {error}", reason="KeyInvalid", field="spec.rndcKey.secretRef") from None


def servers_of(instance: Bind9Instance, cluster: Bind9Cluster | None, keys: Keys, pods: Iterable[Pod]) -> list[Server]:
    """The servers of an instance: its endpoints, or those of its pods that have an address."""
    spec = instance.spec
    common: dict[str, Any] = {
        "instance": instance.ref,
        "role": spec.role,
        "keys": keys,
        "allow_transfer": tuple(allowed_transfers(instance, cluster)),
        "records_only": spec.records_only,
        "catalog": _catalog(instance, cluster),
        "primaries": tuple(spec.primary_servers or ()) if spec.role == "secondary" else (),
    }
    if spec.endpoints:
        return [
            Server(
                name=str(number),
                address=row.address,
                dns_port=row.dns_port,
                rndc_port=row.rndc_port,
                directory=spec.zone_directory,
                **common,
            )
            for number, row in enumerate(spec.endpoints)
        ]
    return [
        Server(
            name=pod.name,
            address=pod.status.pod_ip,
            dns_port=DNS_PORT,
            rndc_port=RNDC_PORT,
            directory=spec.zone_directory or ZONES,
            managed=True,
            uid=pod.metadata.uid,
            **common,
        )
        for pod in pods
        if pod.status.pod_ip and not pod.deleting and pod.status.phase == "Running"
    ]


def _catalog(instance: Bind9Instance, cluster: Bind9Cluster | None) -> str:
    """The catalog zone of a secondary that exists already: the instance's word, else the cluster's."""
    if instance.spec.role != "secondary" or not instance.spec.endpoints:
        return ""
    own = instance.spec.config.catalog_zone if instance.spec.config is not None else None
    shared = cluster.spec.global_.catalog_zone if cluster is not None and cluster.spec.global_ is not None else None
    return ((own if own is not None else shared) or "").lower().removesuffix(".")


def allowed_transfers(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[str]:
    """Who else may fetch zones: the instance's word, else its role's, else the cluster's."""
    if instance.spec.config is not None and instance.spec.config.allow_transfer is not None:
        return list(instance.spec.config.allow_transfer)
    if cluster is None:
        return []
    role = cluster.spec.primary if instance.spec.role == "primary" else cluster.spec.secondary
    if role is not None and role.allow_transfer is not None:
        return list(role.allow_transfer)
    return list((cluster.spec.global_.allow_transfer if cluster.spec.global_ is not None else None) or ())


class Fleet:
    """Drivers by server."""

    def __init__(self, *, clock: Clock, timeout: float, pause: float = PAUSE) -> None:
        self._clock, self._timeout, self._pause = clock, timeout, pause
        self._drivers: dict[Server, Driver] = {}
        self._by_id: dict[str, Server] = {}
        self._closed = False

    def driver(self, server: Server) -> Driver:
        """The driver of a server as it is now."""
        found = self._drivers.get(server)
        if found is None:
            if self._closed:
                raise DriverError("this process is stopping", server=server.title)
            older = self._by_id.get(server.id)
            if older is not None:  # whoever works with it still may finish
                asyncio.get_running_loop().call_later(LAST_CALL, self._hang_up, older)
            found = self._drivers[server] = NativeDriver(
                server, clock=self._clock, timeout=self._timeout, pause=self._pause
            )
            self._by_id[server.id] = server
        return found

    def _hang_up(self, server: Server) -> None:
        if self._by_id.get(server.id) != server and (driver := self._drivers.pop(server, None)) is not None:
            driver.close()

    def keep(self, servers: Iterable[Server]) -> None:
        """Hang up on all others."""
        kept = {server.id for server in servers}
        for gone in [server for server in self._drivers if server.id not in kept]:
            self._drivers.pop(gone).close()
            self._by_id.pop(gone.id, None)

    def close(self) -> None:
        """Hang up, for good."""
        self._closed = True
        self.keep(())
