"""The servers behind instances: their addresses, ports, TSIG keys and access lists, read from objects. Pure.

A server is an endpoint of an instance, or a pod of one. `servers_of` lists them; `keys_of` finds their keys.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from steersman.errors import FormatError, PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.api.config import KEY_LABEL
from steersman.operators.dns.bind.statements import checked_acl
from steersman.operators.dns.wire.tsig import Key, key_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from steersman.kube.api.types.core import Secret
    from steersman.kube.api.types.pods import Pod
    from steersman.operators.dns.api.field_types import SecretRef
    from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance, BindcarConfig, KeyRef, RndcKey
import msgspec

DNS_PORT: Final = 5353  # of pods: unprivileged
RNDC_PORT: Final = 9530
API_PORT: Final = 8080  # of sidecars
TOKEN: Final = "token"  # noqa: S105  # the field of a Secret that opens a sidecar
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
ZONES: Final = "/var/lib/bind"
SHARED_KEY: Final = "bind9-transfer-key"


class Keys(msgspec.Struct, frozen=True):
    """The TSIG keys of a server, never printed. `previous` still works on a server that has not loaded the new one."""

    control: Key
    update: Key
    transfer: Key
    previous: Key | None = None
    previous_update: Key | None = None
    token: str = ""  # of its sidecar

    def __repr__(self) -> str:
        return f"Keys({self.control!r}, {self.update!r}, {self.transfer!r})"


class Server(msgspec.Struct, frozen=True):
    """One named: an external endpoint, or a pod."""

    instance: NamespacedName
    name: str  # of the pod, or the index of the endpoint
    role: str  # primary or secondary
    address: str
    dns_port: int
    rndc_port: int
    keys: Keys
    directory: str = ""  # for zone files; empty: the server's default
    records_only: bool = False
    managed: bool = False
    allow_transfer: tuple[str, ...] = ()
    lists: frozenset[str] = frozenset()  # names of the access lists in its configuration
    primaries: tuple[str, ...] = ()  # where a secondary transfers from instead of from the primaries of the zone
    catalog: str = ""  # the catalog zone that an external secondary takes its zones from
    uid: str = ""  # of the pod: another pod at the same address is another server
    since: str = ""  # when its containers became ready: failures before that no longer count
    api_port: int = 0  # of the sidecar that adds and removes zones; 0: no sidecar

    @property
    def id(self) -> str:
        """Unique among all servers."""
        return f"{self.instance}/{self.name}/{self.address}:{self.dns_port}/{self.uid}"

    @property
    def title(self) -> str:
        """For messages: instance and pod or endpoint."""
        return f"{self.instance.name}/{self.name}"


def key_ref_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> SecretRef | None:
    """The user's Secret with the control key of this instance; None when the operator makes one."""
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
    """The Secrets of `rndcSecretRefs` that have no effect: a server has one control key, the first of them."""
    rows = (cluster.spec.rndc_secret_refs if cluster is not None else None) or []
    return [row.name for row in rows[1:]] if rows and key_ref_of(instance, cluster) is rows[0] else []


def rndc_key_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> RndcKey | None:
    """The `rndcKey` of the instance, or of its role in the cluster."""
    if instance.spec.rndc_key is not None or cluster is None:
        return instance.spec.rndc_key
    role = cluster.spec.primary if instance.spec.role == "primary" else cluster.spec.secondary
    return role.rndc_key if role is not None else None


def given_key(
    instance: Bind9Instance, cluster: Bind9Cluster | None, secrets: Mapping[NamespacedName, Secret]
) -> Key | None:
    """The user's control key, from a Secret or from the instance itself; None when the operator makes one."""
    ref = key_ref_of(instance, cluster)
    if ref is not None:
        return _key(secrets, NamespacedName(ref.name, instance.namespace), ref)
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


def keys_of(instance: Bind9Instance, cluster: Bind9Cluster | None, secrets: Mapping[NamespacedName, Secret]) -> Keys:
    """The keys of an instance; PlanError names the field that is missing."""
    spec, namespace = instance.spec, instance.namespace
    if not spec.endpoints:
        return _own_keys(
            NamespacedName(f"{instance.name}-rndc-key", namespace), NamespacedName(SHARED_KEY, namespace), secrets
        )
    control = given_key(instance, cluster, secrets)
    if control is None:
        raise PlanError(
            "name the Secret with the control key of this server",
            reason="KeyMissing",
            field="spec.rndcKey.secretRef.name",
        )

    def own_or_control(key: KeyRef | None) -> Key:
        if key is None:
            return control
        return _key(secrets, NamespacedName(key.secret_ref.name, namespace), key.secret_ref)

    ref = key_ref_of(instance, cluster)
    held = secrets.get(NamespacedName(ref.name, namespace)) if ref is not None else None
    token = "" if held is None or _is_made_here(held) else _token(held)
    return Keys(control, own_or_control(spec.update_key), own_or_control(spec.transfer_key), token=token)


def _is_made_here(held: Secret) -> bool:
    """Whether the operator made the Secret: its token is for the sidecars of its pods, and is sent nowhere else."""
    return held.labels.get(MANAGED_BY) == "steersman"


def _own_keys(own: NamespacedName, shared: NamespacedName, secrets: Mapping[NamespacedName, Secret]) -> Keys:
    """The keys that the operator made for a server, and the previous ones that it may still use."""
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
    """The bearer token of the sidecar, in the same Secret as the key."""
    return ((held.data if held is not None else {}).get(TOKEN) or b"").decode("ascii", "replace").strip()


def _key(secrets: Mapping[NamespacedName, Secret], ref: NamespacedName, how: SecretRef | None = None) -> Key:
    secret = secrets.get(ref)
    if secret is None:
        raise PlanError(f"Secret {ref} not found", reason="KeyMissing", field="spec.rndcKey.secretRef")
    if how is None:
        return _named(secret, ref, "key-name", "secret")
    return _named(secret, ref, how.key_name_key, how.secret_key, usual=how.algorithm or "")


def _named(
    secret: Secret,
    ref: NamespacedName,
    name_key: str,
    secret_key: str,
    algorithm_key: str = "algorithm",
    usual: str = "",
) -> Key:
    """A key from fields of a Secret; `usual` is the algorithm when the Secret names none."""
    # The name of a key is sent in the clear to an address that a tenant chooses, so it must not be the token.
    data = {name: value for name, value in secret.data.items() if name != TOKEN}
    data = {algorithm_key: usual.encode(), **data} if usual else data
    try:
        return key_from(data, name_key=name_key, secret_key=secret_key, algorithm_key=algorithm_key)
    except FormatError as error:
        unread = not (data.get(name_key) and data.get(secret_key)) and secret.labels.get(KEY_LABEL) != "true"
        hint = f' (label the Secret {KEY_LABEL}: "true" to use fields of other names)' if unread else ""
        raise PlanError(f"Secret {ref}: {error}{hint}", reason="KeyInvalid", field="spec.rndcKey.secretRef") from None


def servers_of(instance: Bind9Instance, cluster: Bind9Cluster | None, keys: Keys, pods: Iterable[Pod]) -> list[Server]:
    """The servers of an instance: its endpoints, or its running pods.

    PlanError names a field that makes all of them unusable.
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
            **common,
        )
        for pod in pods
        if pod.status.pod_ip and not pod.deleting and pod.status.phase == "Running"
    ]


def _check_address(text: str, field: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        message = f'"{text}" is not an IP address (try 192.0.2.53 or 2001:db8::53)'
        raise PlanError(message, reason="ConfigurationInvalid", field=field) from None


def ready_since(pod: Pod) -> str:
    """Since when, and after how many restarts, the containers of a pod are ready; empty while they are not.

    Readiness gates do not count: the containers are ready as soon as named listens.
    """
    for row in pod.status.conditions or ():
        if row.type == "ContainersReady" and row.status == "True":
            restarts = sum(container.restart_count for container in pod.status.container_statuses or ())
            return f"{row.last_transition_time} {restarts}"
    return ""


def api_port_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> int:
    """The port of the sidecar; 0 when the instance does not use one."""
    if instance.spec.driver != "bindcar":
        return 0
    config = bindcar_of(instance, cluster)
    return (config.port if config is not None else None) or API_PORT


def bindcar_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> BindcarConfig | None:
    """The configuration of the sidecar: of the instance, else of its cluster."""
    own = instance.spec.config.bindcar_config if instance.spec.config is not None else None
    shared = cluster.spec.global_ if cluster is not None else None
    return instance.spec.bindcar_config or own or (shared.bindcar_config if shared is not None else None)


def catalog_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> str:
    """The catalog zone in the configuration of an external secondary, named by the instance or its cluster."""
    return asked_catalog(instance, cluster) if instance.spec.endpoints else ""


def asked_catalog(instance: Bind9Instance, cluster: Bind9Cluster | None) -> str:
    """The `catalogZone` of a secondary, whether or not it has an effect there."""
    if instance.spec.role != "secondary":
        return ""
    own = instance.spec.config.catalog_zone if instance.spec.config is not None else None
    shared = cluster.spec.global_.catalog_zone if cluster is not None and cluster.spec.global_ is not None else None
    return ((own if own is not None else shared) or "").lower().removesuffix(".")


def allowed_transfers(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[str]:
    """`allowTransfer` of the instance, else of its role, else of the cluster."""
    if instance.spec.config is not None and instance.spec.config.allow_transfer is not None:
        return list(instance.spec.config.allow_transfer)
    if cluster is None:
        return []
    role = cluster.spec.primary if instance.spec.role == "primary" else cluster.spec.secondary
    if role is not None and role.allow_transfer is not None:
        return list(role.allow_transfer)
    return list((cluster.spec.global_.allow_transfer if cluster.spec.global_ is not None else None) or ())


def lists_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> frozenset[str]:
    """The names of access lists that zones may use: only those in a configuration that the operator writes."""
    ours = cluster is not None and not instance.spec.endpoints and instance.spec.driver == "native"
    return frozenset((cluster.spec.acls if ours and cluster is not None else None) or ())
