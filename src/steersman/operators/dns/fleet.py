"""The servers behind instances, and the one driver that each of them has.

Pure where it reads objects (`servers_of`); the fleet itself only remembers drivers, by everything that makes a server
what it is, so that a changed key or address is a new driver; connections of old ones are closed a little later, and
those of servers that are gone as soon as their instance is looked at.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import DriverError, FormatError, PlanError
from steersman.kube.resources import ObjectRef
from steersman.kube.rotation import RotatingFile
from steersman.operators.dns.acls import checked_acl
from steersman.operators.dns.bindcar.driver import BindcarDriver
from steersman.operators.dns.native import NativeDriver
from steersman.operators.dns.servers import PAUSE, Keys, Server
from steersman.operators.dns.tsig import key_from
from steersman.operators.dns.types import CATALOG, KEY_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from steersman.clock import Clock
    from steersman.kube.types.core import Secret
    from steersman.kube.types.pods import Pod
    from steersman.operators.dns.driver import Driver
    from steersman.operators.dns.parts import SecretRef
    from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance, BindcarConfig, KeyRef, RndcKey
    from steersman.operators.dns.tsig import Key

__all__ = [
    "DNS_PORT",
    "RNDC_PORT",
    "SHARED_KEY",
    "ZONES",
    "Fleet",
    "catalog_of",
    "given_key",
    "key_ref_of",
    "keys_of",
    "ready_since",
    "rndc_key_of",
    "servers_of",
    "unused_keys",
]

DNS_PORT: Final = 5353  # of pods: unprivileged
RNDC_PORT: Final = 9530
API_PORT: Final = 8080  # of sidecars
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


def unused_keys(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[str]:
    """The Secrets of `rndcSecretRefs` that come to nothing: a server has one control key, and the first is it."""
    rows = (cluster.spec.rndc_secret_refs if cluster is not None else None) or []
    return [row.name for row in rows[1:]] if rows and key_ref_of(instance, cluster) is rows[0] else []


def rndc_key_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> RndcKey | None:
    """What is said about the key, by the instance or for its role."""
    if instance.spec.rndc_key is not None or cluster is None:
        return instance.spec.rndc_key
    role = cluster.spec.primary if instance.spec.role == "primary" else cluster.spec.secondary
    return role.rndc_key if role is not None else None


def given_key(instance: Bind9Instance, cluster: Bind9Cluster | None, secrets: Mapping[ObjectRef, Secret]) -> Key | None:
    """A control key that somebody else keeps, in a Secret or in the instance itself; None when there is none."""
    ref = key_ref_of(instance, cluster)
    if ref is not None:
        return _key(secrets, ObjectRef(ref.name, instance.namespace), ref)
    wanted = rndc_key_of(instance, cluster)
    texts = ((wanted.secret or {}).get("stringData") if wanted is not None else None) or {}
    if wanted is None or not texts:
        return None
    try:
        return key_from(
            {"algorithm": wanted.algorithm.encode(), **{str(name): str(text).encode() for name, text in texts.items()}}
        )
    except FormatError as error:
        raise PlanError(str(error), reason="KeyInvalid", field="spec.rndcKey.secret") from None


def keys_of(instance: Bind9Instance, cluster: Bind9Cluster | None, secrets: Mapping[ObjectRef, Secret]) -> Keys:
    """The keys of an instance; PlanError names what is missing."""
    spec, namespace = instance.spec, instance.namespace
    if not spec.endpoints:
        return _own_keys(ObjectRef(f"{instance.name}-rndc-key", namespace), ObjectRef(SHARED_KEY, namespace), secrets)
    control = given_key(instance, cluster, secrets)
    if control is None:
        raise PlanError("the Secret of its key is not named", reason="KeyMissing", field="spec.rndcKey.secretRef.name")

    def other(further: KeyRef | None) -> Key:
        if further is None:
            return control
        return _key(secrets, ObjectRef(further.secret_ref.name, namespace), further.secret_ref)

    ref = key_ref_of(instance, cluster)
    token = _token(secrets.get(ObjectRef(ref.name, namespace))) if ref is not None else ""
    return Keys(control, other(spec.update_key), other(spec.transfer_key), token=token)


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
    return Keys(control, update, _key(secrets, shared), older[""], older["update-"], _token(held))


def _token(held: Secret | None) -> str:
    """What opens the sidecar, kept beside the key."""
    return ((held.data if held is not None else {}).get("token") or b"").decode("ascii", "replace").strip()


def _key(secrets: Mapping[ObjectRef, Secret], ref: ObjectRef, how: SecretRef | None = None) -> Key:
    secret = secrets.get(ref)
    if secret is None:
        raise PlanError(f"there is no Secret {ref}", reason="KeyMissing", field="spec.rndcKey.secretRef")
    if how is None:
        return _named(secret, ref, "key-name", "secret")
    return _named(secret, ref, how.key_name_key, how.secret_key, usual=how.algorithm or "")


def _named(
    secret: Secret, ref: ObjectRef, name_key: str, secret_key: str, algorithm_key: str = "algorithm", usual: str = ""
) -> Key:
    """A key from fields of a Secret; `usual` is its algorithm when the Secret has none."""
    data = {algorithm_key: usual.encode(), **secret.data} if usual else secret.data
    try:
        return key_from(data, name_key=name_key, secret_key=secret_key, algorithm_key=algorithm_key)
    except FormatError as error:
        unread = not (data.get(name_key) and data.get(secret_key)) and secret.labels.get(KEY_LABEL) != "true"
        hint = f' (fields of other names are read of Secrets with the label {KEY_LABEL}: "true")' if unread else ""
        raise PlanError(f"Secret {ref}: {error}{hint}", reason="KeyInvalid", field="spec.rndcKey.secretRef") from None


def servers_of(instance: Bind9Instance, cluster: Bind9Cluster | None, keys: Keys, pods: Iterable[Pod]) -> list[Server]:
    """The servers of an instance: its endpoints, or those of its pods that have an address.

    PlanError names a field with which there is no telling any of them what to do.
    """
    spec = instance.spec
    lists, allowed = lists_of(instance, cluster), allowed_transfers(instance, cluster)
    checked_acl(allowed, "spec.config.allowTransfer", lists)
    for number, row in enumerate(spec.endpoints or ()):
        _check_address(row.address, f"spec.endpoints[{number}].address")
    for number, address in enumerate(spec.primary_servers or ()):
        _check_address(address, f"spec.primaryServers[{number}]")
    common: dict[str, Any] = {
        "instance": instance.ref,
        "role": spec.role,
        "keys": keys,
        "allow_transfer": tuple(allowed),
        "lists": lists,
        "records_only": spec.records_only,
        "api_port": api_port_of(instance, cluster),
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
                catalog=catalog_of(instance, cluster),
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
            since=ready_since(pod),
            catalog=pod.annotations.get(CATALOG, ""),
            **common,
        )
        for pod in pods
        if pod.status.pod_ip and not pod.deleting and pod.status.phase == "Running"
    ]


def _check_address(text: str, field: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        message = f'"{text}" is not an address (try 192.0.2.53 or 2001:db8::53)'
        raise PlanError(message, reason="ConfigurationInvalid", field=field) from None


def ready_since(pod: Pod) -> str:
    """Since when, and after how many restarts, the containers of a pod are ready; empty while they are not.

    The gates of a pod have no part in this: its containers are ready as soon as named listens.
    """
    for row in pod.status.conditions or ():
        if row.type == "ContainersReady" and row.status == "True":
            return f"{row.last_transition_time} {sum(one.restart_count for one in pod.status.container_statuses or ())}"
    return ""


def api_port_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> int:
    """The port of the sidecar that zones are managed through; 0 when they are not."""
    if instance.spec.driver != "bindcar":
        return 0
    config = bindcar_of(instance, cluster)
    return (config.port if config is not None else None) or API_PORT


def bindcar_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> BindcarConfig | None:
    """What is said about the sidecar: by the instance, else by its cluster."""
    own = instance.spec.config.bindcar_config if instance.spec.config is not None else None
    shared = cluster.spec.global_ if cluster is not None else None
    return instance.spec.bindcar_config or own or (shared.bindcar_config if shared is not None else None)


def catalog_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> str:
    """The catalog zone that a secondary should have: the instance's word, else the cluster's.

    Pods have the one that they were made with, whatever is wanted now.
    """
    if instance.spec.role != "secondary":
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


def lists_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> frozenset[str]:
    """The access lists that zones may name: those of a configuration made here, where named itself reads them."""
    ours = cluster is not None and not instance.spec.endpoints and instance.spec.driver == "native"
    return frozenset((cluster.spec.acls if ours and cluster is not None else None) or ())


class Fleet:
    """Drivers by server."""

    def __init__(self, *, clock: Clock, timeout: float, pause: float = PAUSE, token_file: str = "") -> None:
        self._how: dict[str, Any] = {"clock": clock, "timeout": timeout, "pause": pause}
        self._token = RotatingFile(Path(token_file), clock, field="dns.bindcarTokenFile") if token_file else None
        self._drivers: dict[Server, Driver] = {}
        self._by_id: dict[str, Server] = {}
        self._closed = False
        self._heard: Callable[[Server, str, str], None] | None = None

    def listen(self, heard: Callable[[Server, str, str], None]) -> None:
        """Have somebody told of every try: the server, the way to it, and why it failed or nothing."""
        self._heard = heard

    def driver(self, server: Server) -> Driver:
        """The driver of a server as it is now."""
        found = self._drivers.get(server)
        if found is None and self._closed:
            raise DriverError("this process is stopping", server=server.title)
        older = self._by_id.get(server.id)
        if older is not None and older != server:  # whoever works with it still may finish
            asyncio.get_running_loop().call_later(LAST_CALL, self._hang_up, older)
        self._by_id[server.id] = server
        if found is None:
            made = (
                BindcarDriver(server, **self._how, token=self._own_token)
                if server.api_port
                else NativeDriver(server, **self._how)
            )
            made.heard = self._heard
            found = self._drivers[server] = made
        return found

    def _own_token(self) -> str:
        return "" if self._token is None else self._token.read().decode("ascii", "replace").strip()

    def _hang_up(self, server: Server) -> None:
        if self._by_id.get(server.id) != server and (driver := self._drivers.pop(server, None)) is not None:
            driver.close()

    def keep(self, instance: ObjectRef, servers: Iterable[Server]) -> None:
        """These are the servers of an instance: hang up on all others that it had."""
        kept = {server.id for server in servers}
        for gone in [one for one in self._drivers if one.instance == instance and one.id not in kept]:
            self._drivers.pop(gone).close()
            self._by_id.pop(gone.id, None)

    @property
    def servers(self) -> list[Server]:
        """Those with a driver."""
        return list(self._drivers)

    def close(self) -> None:
        """Hang up, for good."""
        self._closed = True
        while self._drivers:
            self._drivers.popitem()[1].close()
        self._by_id.clear()
