"""The section `hourglass:` of the configuration file, and what it means.

hourglass:
  hardwareMap:
    gpu:
      nvidia-a100: {resource: nvidia.com/gpu, nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
    tee:
      sgx: {nodeSelector: {feature.node.kubernetes.io/cpu-security.sgx.enabled: "true"}}
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.durations import parse_duration
from steersman.kube.api.validation import dns_subdomain_errors, label_key_errors, label_value_errors, quoted

DEFAULT_GPU: Final = "nvidia.com/gpu"
SERVICE_ACCOUNTS: Final = ("default", "hourglass-*")
_ACCOUNTS: Final = re.compile(r"([a-z0-9*?\[!\]-]+/)?[a-z0-9.*?\[!\]-]+")  # what could match a name


class Offer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How one type of hardware is asked for in this cluster."""

    resource: str | None = None  # the extended resource that is counted; for a GPU nvidia.com/gpu when absent
    node_selector: dict[str, str] = {}  # labels that the node must have
    tolerations: tuple[dict[str, Any], ...] = ()  # that the pod gets
    resources: dict[str, int | str] = {}  # further resources, such as sgx.intel.com/epc
    runtime_class: str | None = None  # of the pod


def _labelled(key: str) -> Offer:
    return Offer(node_selector={key: "true"})


DEFAULT_TEE: Final[dict[str, Offer]] = {
    "sgx": _labelled("intel.feature.node.kubernetes.io/sgx"),
    "sev": _labelled("amd.feature.node.kubernetes.io/sev"),
    "tdx": _labelled("intel.feature.node.kubernetes.io/tdx"),
}


class HardwareMap(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Types of hardware by name. A TEE that is not listed here is one of sgx, sev and tdx with its usual label."""

    gpu: dict[str, Offer] = {}  # by the gpuType of performers
    tee: dict[str, Offer] = {}  # by the teeType of performers

    def tee_offer(self, name: str) -> Offer | None:
        """How a TEE of that type is asked for."""
        return self.tee.get(name) or DEFAULT_TEE.get(name)

    def tee_names(self) -> list[str]:
        """The TEE types that are known."""
        return sorted({*self.tee, *DEFAULT_TEE})


class HourglassConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section as it is written."""

    hardware_map: HardwareMap = HardwareMap()
    create_service_accounts: bool = True  # `hourglass-executor` with a Role for performers, where executors run
    max_concurrent_replacements: int = 5  # performers replaced at once; 0: no limit
    pending_recreate_after: str = "0s"  # give up on a pod that is Pending for so long; 0s: never
    cluster_domain: str = "cluster.local"  # of the endpoints in the status
    service_accounts: tuple[str, ...] = SERVICE_ACCOUNTS  # that pods may run as: patterns of NAME or NAMESPACE/NAME

    def options(self) -> HourglassOptions:
        """What was written, checked; ConfigError names the field that is wrong."""
        if self.max_concurrent_replacements < 0:
            raise ConfigError("must be 0 (no limit) or more", field="hourglass.maxConcurrentReplacements")
        try:
            pending = parse_duration(self.pending_recreate_after).total_seconds()
        except FormatError as error:
            raise ConfigError(str(error), field="hourglass.pendingRecreateAfter") from None
        if complaints := dns_subdomain_errors(self.cluster_domain):
            raise ConfigError(complaints[0], field="hourglass.clusterDomain")
        for place, pattern in enumerate(self.service_accounts):
            if not _ACCOUNTS.fullmatch(pattern):
                raise ConfigError(
                    f"{quoted(pattern)} is not a pattern of ServiceAccounts (try hourglass-*, or NAMESPACE/NAME)",
                    field=f"hourglass.serviceAccounts[{place}]",
                )
        for family, offers in (("gpu", self.hardware_map.gpu), ("tee", self.hardware_map.tee)):
            for name, offer in offers.items():
                _check_offer(offer, f"hourglass.hardwareMap.{family}.{name}")
        return HourglassOptions(
            hardware=self.hardware_map,
            create_service_accounts=self.create_service_accounts,
            max_replacements=self.max_concurrent_replacements or None,
            pending_seconds=pending or None,
            cluster_domain=self.cluster_domain,
            service_accounts=self.service_accounts,
        )


class HourglassOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The section as it is meant."""

    hardware: HardwareMap = HardwareMap()
    create_service_accounts: bool = True
    max_replacements: int | None = 5
    pending_seconds: float | None = None
    cluster_domain: str = "cluster.local"
    service_accounts: tuple[str, ...] = SERVICE_ACCOUNTS


def _check_offer(offer: Offer, field: str) -> None:
    if offer.resource is not None and (complaints := label_key_errors(offer.resource)):
        raise ConfigError(complaints[0], field=f"{field}.resource")
    for key, value in offer.node_selector.items():
        if complaints := [*label_key_errors(key), *label_value_errors(value)]:
            raise ConfigError(complaints[0], field=f"{field}.nodeSelector.{key}")
    for key in offer.resources:
        if complaints := label_key_errors(key):
            raise ConfigError(complaints[0], field=f"{field}.resources.{key}")
