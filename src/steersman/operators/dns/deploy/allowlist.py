"""The allow list: what an instance may mount, read, run and expose beyond DNS. Pure.

A user who may write a Bind9Instance or a Bind9Cluster need not have the right to read Secrets, run pods or claim
addresses, and must not get these rights through the operator. So a field is allowed when

- its value is on the list below: objects named for name servers, images that an administrator allows, fields of a
  Service that claim no address of others; or
- the namespace is one of `dns.trustedNamespaces`, or the operator's own; or
- it comes from a ClusterBind9Provider, which needs cluster-wide rights.

Invariant: what is not listed is refused. A refused field stops every write for the instance and removes nothing:
running pods stay as they are.

Not here: whether a value is valid, and the addresses of external servers (`endpoints`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.operators.dns.bind.servers import api_port_of, bindcar_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from steersman.operators.dns.api.config import DnsOptions
    from steersman.operators.dns.api.servers import (
        Bind9Cluster,
        Bind9Config,
        Bind9Instance,
        BindcarConfig,
        ClusterBind9Provider,
    )

NOT_ALLOWED: Final = "NotAllowed"
PREFIX: Final = "bindy-"  # of ConfigMaps, Secrets and PersistentVolumeClaims for name servers
TRUSTED: Final = "dns.trustedNamespaces"
IMAGES: Final = "dns.allowedImages"
SHOWN: Final = 3

SIDECAR_ARGS: Final = (["dns", "sidecar"],)
SIDECAR_VARIABLES: Final = ("API_", "BIND_", "BINDCAR_", "LOG_", "NSUPDATE_", "RATE_LIMIT_", "RNDC_", "RUST_")
SIDECAR_VARIABLE_NAMES: Final = frozenset({"DISABLE_AUTH", "TMPDIR", "TZ"})
CLAIM_FIELDS: Final = frozenset({"accessModes", "resources", "storageClassName", "volumeMode"})
SERVICE_FIELDS: Final = frozenset(
    {
        "allocateLoadBalancerNodePorts",
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "internalTrafficPolicy",
        "ipFamilies",
        "ipFamilyPolicy",
        "loadBalancerSourceRanges",
        "ports",
        "publishNotReadyAddresses",
        "selector",
        "sessionAffinity",
        "sessionAffinityConfig",
        "trafficDistribution",
    }
)
SERVICE_VALUES: Final = {"type": ("ClusterIP", "LoadBalancer", "NodePort"), "clusterIP": ("None",)}


class Refusal(msgspec.Struct, frozen=True):
    """A field that is not allowed, and the setting that would allow it."""

    field: str
    why: str
    setting: str = TRUSTED

    def __str__(self) -> str:
        return f"{self.field}: {self.why} (an administrator allows it with {self.setting})"


def shown(refusals: list[Refusal]) -> str:
    """The refusals as one message."""
    more = f"; and {len(refusals) - SHOWN} more" if len(refusals) > SHOWN else ""
    return "; ".join(map(str, refusals[:SHOWN])) + more


def refusals_of(
    instance: Bind9Instance,
    cluster: Bind9Cluster | None,
    provider: ClusterBind9Provider | None,
    options: DnsOptions,
) -> list[Refusal]:
    """The effective fields of a managed instance and its cluster that are not allowed."""
    if instance.spec.endpoints or not {"*", instance.namespace}.isdisjoint(options.trusted_namespaces):
        return []
    return list(_refusals(instance, _Shared(cluster, provider), options.allowed_images))


class _Shared:
    """The fields of an instance's cluster, without those that come from the provider."""

    def __init__(self, cluster: Bind9Cluster | None, provider: ClusterBind9Provider | None) -> None:
        self.cluster = cluster
        self._provider = provider.spec if provider is not None else None

    def of(self, field: str) -> Any:
        """A field of the cluster; None when it is not set, or when it has the value of the provider."""
        if self.cluster is None:
            return None
        value = getattr(self.cluster.spec, field)
        return None if self._provider is not None and value == getattr(self._provider, field) else value

    def path(self, field: str) -> str:
        """A field of the cluster in a message about the instance."""
        return f"Bind9Cluster {self.cluster.name if self.cluster is not None else ''} spec.{field}"


def _refusals(instance: Bind9Instance, shared: _Shared, images: tuple[str, ...]) -> Iterator[Refusal]:
    spec = instance.spec

    def chosen(field: str, wire: str) -> tuple[str, Any]:
        """The path and value of a field of the instance, else of its cluster."""
        own = getattr(spec, field)
        return (f"spec.{wire}", own) if own else (shared.path(wire), shared.of(field))

    path, image = chosen("image", "image")
    if image is not None and image.image:
        yield from _image(image.image, f"{path}.image", images)
    path, storage = chosen("storage", "storage")
    claim = storage.persistent_volume_claim if storage is not None else None
    if claim is not None and claim.claim_name and not claim.claim_name.startswith(PREFIX):
        why = f"the name of {claim.claim_name} must start with {PREFIX}; without claimName the operator creates one"
        yield Refusal(f"{path}.persistentVolumeClaim.claimName", why)
    path, volumes = chosen("volumes", "volumes")
    for number, volume in enumerate(volumes or ()):
        yield from _volume(volume, f"{path}[{number}]")
    path, config = _signing_config(instance, shared)
    signing = config.dnssec.signing if config is not None and config.dnssec is not None else None
    asked = signing.keys_from.persistent_volume if signing is not None and signing.keys_from is not None else None
    for field in sorted((asked or {}).keys() - CLAIM_FIELDS):
        yield Refusal(
            f"{path}.dnssec.signing.keysFrom.persistentVolume.{field}", "only fields of a new, empty claim are allowed"
        )
    if api_port_of(instance, shared.cluster):
        yield from _sidecar(instance, shared, images)
    yield from _service(instance, shared)


def _signing_config(instance: Bind9Instance, shared: _Shared) -> tuple[str, Bind9Config | None]:
    own = instance.spec.config
    if own is not None and own.dnssec is not None:
        return "spec.config", own
    return shared.path("global"), shared.of("global_")


def _image(image: str, field: str, allowed: Iterable[str]) -> Iterator[Refusal]:
    name = repository_of(image)
    if not any(
        entry in ("*", name) or (entry.endswith("/*") and name.startswith(entry[:-1]))
        for entry in map(_without_default_registry, allowed)
    ):
        yield Refusal(field, f"image {name} is not allowed", IMAGES)


def repository_of(image: str) -> str:
    """The name of an image without default registry, tag and digest.

    >>> repository_of("docker.io/team/named:9.20@sha256:00"), repository_of("registry.example:5000/named:1")
    ('team/named', 'registry.example:5000/named')
    """
    name = image.strip().partition("@")[0]
    head, slash, last = name.rpartition("/")
    return _without_default_registry(f"{head}{slash}{last.partition(':')[0]}")


def _without_default_registry(name: str) -> str:
    for registry in ("docker.io/", "index.docker.io/"):
        name = name.removeprefix(registry)
    return name.removeprefix("library/")


def _volume(volume: Mapping[str, Any], field: str) -> Iterator[Refusal]:
    sources = {"configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"}
    for kind, source in volume.items():
        if kind in ("name", "emptyDir"):
            continue
        name = source.get(sources[kind]) if kind in sources and isinstance(source, dict) else None
        if kind not in sources:
            yield Refusal(
                f"{field}.{kind}", f"only emptyDir, and ConfigMaps, Secrets and claims whose name starts with {PREFIX}"
            )
        elif not str(name or "").startswith(PREFIX):
            yield Refusal(f"{field}.{kind}.{sources[kind]}", f"the name of {name} must start with {PREFIX}")


def _sidecar(instance: Bind9Instance, shared: _Shared, images: tuple[str, ...]) -> Iterator[Refusal]:
    config = bindcar_of(instance, shared.cluster)
    if config is None:
        return
    own = instance.spec.config.bindcar_config if instance.spec.config is not None else None
    if config is instance.spec.bindcar_config:
        path = "spec.bindcarConfig"
    elif config is own:
        path = "spec.config.bindcarConfig"
    elif (inherited := shared.of("global_")) is not None and inherited.bindcar_config is config:
        path = shared.path("global.bindcarConfig")
    else:
        return  # of the provider
    yield from _sidecar_fields(config, path, images)


def _sidecar_fields(config: BindcarConfig, path: str, images: tuple[str, ...]) -> Iterator[Refusal]:
    if config.image:
        yield from _image(config.image, f"{path}.image", images)
    if config.args and list(config.args) not in SIDECAR_ARGS:
        yield Refusal(f"{path}.args", "only no arguments, or [dns, sidecar]")
    for number, row in enumerate(config.env_vars or ()):
        name, field = str(row.get("name", "")), f"{path}.envVars[{number}]"
        if not name.startswith(SIDECAR_VARIABLES) and name not in SIDECAR_VARIABLE_NAMES:
            yield Refusal(f"{field}.name", f"{name} is not a variable of a sidecar")
        for kind, source in (row.get("valueFrom") or {}).items():
            named = source.get("name") if isinstance(source, dict) else None
            if kind in ("secretKeyRef", "configMapKeyRef"):
                if not str(named or "").startswith(PREFIX):
                    yield Refusal(f"{field}.valueFrom.{kind}.name", f"the name of {named} must start with {PREFIX}")
            elif kind not in ("fieldRef", "resourceFieldRef"):
                yield Refusal(f"{field}.valueFrom.{kind}", "unknown source")
        for further in sorted(row.keys() - {"name", "value", "valueFrom"}):
            yield Refusal(f"{field}.{further}", "unknown field")


def _service(instance: Bind9Instance, shared: _Shared) -> Iterator[Refusal]:
    role = shared.of(instance.spec.role)
    wanted = role.service if role is not None else None
    if wanted is None:
        return
    path = shared.path(f"{instance.spec.role}.service")
    for field, value in sorted((wanted.spec or {}).items()):
        if field in SERVICE_VALUES:
            if value not in SERVICE_VALUES[field]:
                yield Refusal(f"{path}.spec.{field}", f"only {' or '.join(SERVICE_VALUES[field])}")
        elif field not in SERVICE_FIELDS:
            yield Refusal(f"{path}.spec.{field}", "could claim an address of another service")
    for name in sorted(wanted.annotations or {}):
        yield Refusal(f"{path}.annotations.{name}", "could instruct another controller")
