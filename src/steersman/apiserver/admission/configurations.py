"""Admission webhooks as they are configured: one value per webhook, in the order they are called.

Configurations are ordered by name, the webhooks of one by their position. They are read from the store when a request
needs them, so a write that follows the write of a configuration is already judged by it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver.admission.match_conditions import compile_condition
from steersman.apiserver.admission.match_resources import MatchResources
from steersman.apiserver.cel.expressions import CompiledExpression
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from steersman.apiserver.storage.store import Record, ResourceTable, Store

JSON = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
MUTATING = Kind(
    group=GROUP,
    version="v1",
    kind="MutatingWebhookConfiguration",
    plural="mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING = Kind(
    group=GROUP,
    version="v1",
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)
REVIEW_VERSIONS = ("v1", "v1beta1")


class WebhookTarget(msgspec.Struct, frozen=True):
    """Where a webhook listens: a URL, or a port of a service; and the authority that signed its certificate."""

    url: str = ""
    service: str = ""  # namespace/name
    port: int = 443
    path: str = ""
    ca_pem: str = ""  # empty: the authorities of the system

    @classmethod
    def from_wire(cls, client_config: JSON) -> WebhookTarget:
        """The `clientConfig` of an admission or conversion webhook."""
        ca_pem = base64.b64decode(client_config.get("caBundle") or "").decode("ascii", errors="backslashreplace")
        service = client_config.get("service")
        if service is None:
            return cls(url=client_config["url"], ca_pem=ca_pem)
        return cls(
            service=f"{service['namespace']}/{service['name']}",
            port=service.get("port") or 443,
            path=service.get("path") or "",
            ca_pem=ca_pem,
        )


class AdmissionWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a configuration."""

    name: str
    configuration: str
    mutating: bool
    match: MatchResources
    conditions: tuple[CompiledExpression, ...]  # matchConditions
    ignore_failures: bool  # failurePolicy
    reinvoke: bool  # reinvocationPolicy: asked again when a later webhook changed the object
    timeout: int  # seconds
    review_version: str  # the first one that both sides know
    target: WebhookTarget

    @property
    def id(self) -> str:
        """Tells it from all others of its type."""
        return f"{self.configuration}/{self.name}"

    @classmethod
    def from_wire(cls, webhook: JSON, *, configuration: str, mutating: bool) -> AdmissionWebhook:
        """A webhook of a stored, therefore valid and defaulted, configuration."""
        return cls(
            name=webhook["name"],
            configuration=configuration,
            mutating=mutating,
            match=MatchResources.from_wire(webhook, webhook.get("rules") or []),
            conditions=tuple(
                compile_condition(condition["expression"].strip()) for condition in webhook.get("matchConditions") or ()
            ),
            ignore_failures=webhook["failurePolicy"] == "Ignore",
            reinvoke=webhook.get("reinvocationPolicy") == "IfNeeded",
            timeout=webhook["timeoutSeconds"],
            review_version=next(name for name in webhook["admissionReviewVersions"] if name in REVIEW_VERSIONS),
            target=WebhookTarget.from_wire(webhook["clientConfig"]),
        )


class WebhookConfigurations:
    """The admission webhooks in a store. False while there is no configuration."""

    def __init__(self, store: Store) -> None:
        self._mutating = store.table(MUTATING)
        self._validating = store.table(VALIDATING)
        self._parsed: dict[Record, tuple[AdmissionWebhook, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._mutating.keys or self._validating.keys)

    def mutating(self) -> list[AdmissionWebhook]:
        """The webhooks that may change an object, in the order they are called."""
        return self._webhooks(self._mutating)

    def validating(self) -> list[AdmissionWebhook]:
        """The webhooks that only judge."""
        return self._webhooks(self._validating)

    def _webhooks(self, table: ResourceTable) -> list[AdmissionWebhook]:
        return [webhook for record in table.scan() for webhook in self._of(record)]

    def _of(self, record: Record) -> tuple[AdmissionWebhook, ...]:
        found = self._parsed.get(record)
        if found is None:
            if len(self._parsed) > 1000:  # configurations that changed leave values behind
                self._parsed.clear()
            found = self._parsed[record] = tuple(
                AdmissionWebhook.from_wire(
                    webhook, configuration=record.key, mutating=record.obj["kind"] == MUTATING.kind
                )
                for webhook in record.obj.get("webhooks") or ()
            )
        return found
