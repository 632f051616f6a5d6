"""Where a serving certificate comes from.

`MountedCertificates` reads files that another program renews (cert-manager, a projected Secret). `ManagedCertificates`
keeps an authority and a certificate in a Secret of our own, renews them in time, and writes the authority into the
webhook configurations, and into definitions with a conversion webhook. Replicas share the Secret: the first write
wins, the other replicas read it.

Configurations are found by name, and names are free for all to choose. So `caBundle` is set only on webhooks that
call one of the names our certificate is for; with any other, our authority would break the webhooks of another program.
"""

from __future__ import annotations

import base64
import datetime as dt
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from steersman.certificates import Signed
from steersman.clock import SYSTEM_CLOCK, Clock
from steersman.errors import ConfigError
from steersman.kube.api.errors import AlreadyExists, Conflict, Invalid, NotFound
from steersman.kube.api.gvk import Kind
from steersman.kube.api.patches import PatchType
from steersman.logger import Logger
from steersman.runtime.webhook.certificates import CertBundle, Renewal, plan_renewal, renew

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from steersman.kube.client.client import Client

__all__ = ["CertificateSource", "ManagedCertificates", "MountedCertificates"]

SECRETS = Kind(version="v1", kind="Secret", plural="secrets")
CONFIGURATIONS = tuple(
    Kind(
        group="admissionregistration.k8s.io",
        version="v1",
        kind=f"{kind}WebhookConfiguration",
        plural=f"{kind.lower()}webhookconfigurations",
        namespaced=False,
    )
    for kind in ("Mutating", "Validating")
)
DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
ATTEMPTS = 5  # to write `caBundle` of one configuration, while other clients write to it as well
_KEYS = {
    "trust": "trust.crt",
    "authority": "ca.crt",
    "authority_key": "ca.key",
    "serving": "tls.crt",
    "serving_key": "tls.key",
}

log = Logger(__name__)


class CertificateSource(Protocol):
    """Asked again and again; answers only when there is something new."""

    async def load(self) -> Signed | None:
        """What to serve with from now on; None to go on as before. The first answer is never None."""


class MountedCertificates:
    """`tls.crt` and `tls.key` in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: Signed | None = None

    async def load(self) -> Signed | None:
        try:
            certificate, key = ((self._folder / name).read_bytes() for name in ("tls.crt", "tls.key"))
            material = Signed(certificate=certificate, key=key)
        except OSError as error:
            if self._last is not None:
                return None  # a mount in the middle of its swap; the next look finds it
            raise ConfigError(f"cannot read the serving certificate: {error}", where=str(self._folder)) from None
        if material == self._last:
            return None
        self._last = material
        return material


class ManagedCertificates:
    """A self-signed authority in a Secret, injected into the webhooks that call `names`.

    These are looked for in the webhook configurations of one name, and in the CustomResourceDefinitions `definitions`.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        configuration: str | None = None,
        definitions: Sequence[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._names = list(names)
        self._injected = [(kind, configuration) for kind in CONFIGURATIONS if configuration is not None]
        self._injected += [(DEFINITIONS, name) for name in definitions]
        self._clock = clock
        self._last: CertBundle | None = None
        self._strangers: frozenset[tuple[str, str, str]] = (
            frozenset()
        )  # webhooks that are not ours; the log knows of them

    async def load(self) -> Signed | None:
        bundle = await self._current()
        await self._inject(bundle.trust)
        if bundle == self._last:
            return None
        self._last = bundle
        return Signed(certificate=bundle.serving, key=bundle.serving_key)

    async def _current(self) -> CertBundle:
        """What the Secret holds, renewed first when it is time. Ends because one replica's write always wins."""
        while True:
            secret = await self._read()
            bundle = _bundle_in(secret)
            now = dt.datetime.fromtimestamp(self._clock.time(), dt.UTC)
            renewal = plan_renewal(bundle, self._names, now)
            if bundle is not None and renewal is Renewal.KEEP:
                return bundle
            try:
                await self._write(secret, renew(bundle, renewal, self._names, now))
            except (AlreadyExists, Conflict, NotFound):
                continue
            log.info("serving certificate renewed", secret=f"{self._namespace}/{self._secret}", what=renewal.value)

    async def _read(self) -> dict[str, Any] | None:
        try:
            secret: dict[str, Any] = await self._client.get(SECRETS, self._secret, namespace=self._namespace)
        except NotFound:
            return None
        return secret

    async def _write(self, secret: dict[str, Any] | None, bundle: CertBundle) -> None:
        data = {key: base64.b64encode(getattr(bundle, field)).decode() for field, key in _KEYS.items()}
        if secret is None:
            metadata = {"name": self._secret, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"}
            await self._client.create({**body, "data": data})
        else:
            await self._client.replace({**secret, "data": {**(secret.get("data") or {}), **data}})

    async def _inject(self, trust: bytes) -> None:
        """Put `trust` into every webhook that calls us and does not have it."""
        bundle = base64.b64encode(trust).decode()
        strangers: set[tuple[str, str, str]] = set()
        for kind, name in self._injected:
            for attempt in range(ATTEMPTS):
                try:
                    strangers |= await self._inject_into(kind, name, bundle)
                    break
                except (Conflict, Invalid):  # the guard did not hold: another replica was faster, most likely
                    if attempt == ATTEMPTS - 1:
                        raise
        self._name_strangers(frozenset(strangers))

    async def _inject_into(self, kind: Kind, name: str, bundle: str) -> set[tuple[str, str, str]]:
        """The same for one object; returns the webhooks in it that are not ours, and what they call."""
        try:
            live = await self._client.get(kind, name)
        except NotFound:
            return set()
        webhooks = list(_client_configs(live))
        wanting = [place for _, place, config in webhooks if self._is_ours(config) and config.get("caBundle") != bundle]
        if wanting:
            guard = {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]}
            patch = [guard, *({"op": "add", "path": f"{place}/caBundle", "value": bundle} for place in wanting)]
            await self._client.patch(kind, name, patch, type=PatchType.JSON)
        return {(name, webhook, _called_by(config)) for webhook, _, config in webhooks if not self._is_ours(config)}

    def _is_ours(self, config: dict[str, Any]) -> bool:
        return _called_by(config).lower() in {name.lower() for name in self._names}

    def _name_strangers(self, found: frozenset[tuple[str, str, str]]) -> None:
        for configuration, webhook, host in sorted(found - self._strangers):
            log.warning(
                "a webhook that calls another server is not changed: choose another name, or serve under that host",
                configuration=configuration,
                webhook=webhook,
                calls=host,
                served=self._names,
            )
        self._strangers = found


def _client_configs(live: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The webhooks of a configuration or a definition: name, JSON pointer and value of each `clientConfig`."""
    for number, webhook in enumerate(live.get("webhooks") or ()):
        yield webhook["name"], f"/webhooks/{number}/clientConfig", webhook["clientConfig"]
    conversion = (live.get("spec") or {}).get("conversion") or {}
    if (config := (conversion.get("webhook") or {}).get("clientConfig")) is not None:
        yield "conversion", "/spec/conversion/webhook/clientConfig", config


def _called_by(config: dict[str, Any]) -> str:
    """The name that the API server expects in the certificate of a webhook's server."""
    service = config.get("service")
    if service is not None:
        return f"{service['name']}.{service['namespace']}.svc"
    return urlsplit(config.get("url") or "").hostname or ""


def _bundle_in(secret: dict[str, Any] | None) -> CertBundle | None:
    data = (secret or {}).get("data") or {}
    try:
        return CertBundle(**{field: base64.b64decode(data[key], validate=True) for field, key in _KEYS.items()})
    except (KeyError, ValueError):
        return None
