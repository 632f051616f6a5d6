"""The rules of CertificateSigningRequests: what may be asked for, and how it may be decided.

A decision stands: a condition `Approved`, `Denied` or `Failed` cannot be taken back, only `approval` adds the first
two, and a certificate that was issued never changes. What a signer does with a request is not here.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from steersman.apiserver.resources.schema import builtin_enum
from steersman.apiserver.validation import field_errors
from steersman.apiserver.validation.names import is_dns1123_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]
_ALWAYS_TRUE = ("Approved", "Denied", "Failed")
_SHORTEST = 600  # seconds a certificate may be valid
_LEGACY = "kubernetes.io/legacy-unknown"


def certificate_request_causes(obj: JSON, old: JSON | None, subresource: str) -> list[Cause]:
    """Why a request, its approval or its status cannot be stored."""
    found = list(_spec_causes(obj.get("spec") or {})) if old is None else []
    found += _condition_causes(_conditions(obj))
    found += _certificate_causes((obj.get("status") or {}).get("certificate"))
    return found if old is None else [*found, *_update_causes(obj, old, subresource)]


def _spec_causes(spec: JSON) -> Iterator[Cause]:
    from cryptography import x509

    try:
        x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or ""))
    except (ValueError, binascii.Error):
        yield field_errors.invalid("spec.request", "", "PEM block type must be CERTIFICATE REQUEST")
    usages, known = spec.get("usages") or [], _usages()
    if not usages:
        yield field_errors.required("spec.usages")
    for at, usage in enumerate(usages):
        if usage not in known:
            yield field_errors.not_supported(f"spec.usages[{at}]", usage, known)
        if usage in usages[:at]:
            yield field_errors.duplicate(f"spec.usages[{at}]", usage)
    yield from _signer_causes(spec.get("signerName", ""))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST:
        yield field_errors.invalid("spec.expirationSeconds", seconds, f"may not be less than {_SHORTEST} seconds")


def _usages() -> tuple[str, ...]:
    return builtin_enum("certificates.v1.CertificateSigningRequestSpec", "usages")


def _signer_causes(name: str) -> Iterator[Cause]:
    domain, slash, path = name.partition("/")
    if not name:
        yield field_errors.required("spec.signerName")
    elif not slash or not path or "/" in path or "." not in domain:
        yield field_errors.invalid("spec.signerName", name, 'must be a name such as "example.com/signer"')
    elif name == _LEGACY:
        yield field_errors.invalid("spec.signerName", name, "the legacy signerName is not allowed via this API version")
    else:
        for part in (domain, path):
            yield from (field_errors.invalid("spec.signerName", part, text) for text in is_dns1123_subdomain(part))


def _conditions(obj: JSON) -> list[JSON]:
    return (obj.get("status") or {}).get("conditions") or []


def _condition_causes(conditions: list[JSON]) -> Iterator[Cause]:
    seen: list[str] = []
    for at, condition in enumerate(conditions):
        path, kind, status = f"status.conditions[{at}]", condition.get("type", ""), condition.get("status", "")
        allowed = ("True",) if kind in _ALWAYS_TRUE else ("True", "False", "Unknown")
        if not kind:
            yield field_errors.required(f"{path}.type")
        if not status:
            yield field_errors.required(f"{path}.status")
        elif status not in allowed:
            yield field_errors.not_supported(f"{path}.status", status, allowed)
        if kind in seen:
            yield field_errors.duplicate(f"{path}.type", kind)
        elif {kind, *seen} >= {"Approved", "Denied"}:
            yield field_errors.invalid(
                "status.conditions", kind, "Approved and Denied conditions are mutually exclusive"
            )
        seen.append(kind)


def _certificate_causes(certificate: str | None) -> list[Cause]:
    from cryptography import x509

    if not certificate:
        return []
    try:
        x509.load_pem_x509_certificates(base64.b64decode(certificate))
    except ValueError:
        text = "must contain at least one CERTIFICATE PEM block"
        return [field_errors.invalid("status.certificate", "<certificate data>", text)]
    return []


def _update_causes(obj: JSON, old: JSON, subresource: str) -> Iterator[Cause]:
    kinds, before = ([item.get("type") for item in _conditions(request)] for request in (obj, old))
    for kind in _ALWAYS_TRUE:
        if kind in before and kind not in kinds:
            yield field_errors.forbidden("status.conditions", f'updates may not remove a condition of type "{kind}"')
    if subresource != "approval":
        for kind in ("Approved", "Denied"):
            if kind in kinds and kind not in before:
                text = f'updates may not add a condition of type "{kind}"'
                yield field_errors.forbidden("status.conditions", text)
    issued, certificate = ((item.get("status") or {}).get("certificate") for item in (old, obj))
    if issued and certificate != issued:
        yield field_errors.forbidden("status.certificate", "updates may not modify existing certificate content")
