"""The rules of tolerations and scheduling gates: what they look like, and how they may change once a pod exists.

Tolerations are only added and gates only removed, so the scheduler never has to take a decision back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.validation import field_errors
from steersman.kube.api.validation import label_key_errors, label_value_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from steersman.kube.api.errors import Cause

JSON = dict[str, Any]


def toleration_causes(tolerations: list[JSON], path: str) -> Iterator[Cause]:
    """Why tolerations cannot match a taint."""
    for at, toleration in enumerate(tolerations):
        where, key, value = f"{path}[{at}]", toleration.get("key", ""), toleration.get("value", "")
        operator, effect = toleration.get("operator", "Equal"), toleration.get("effect", "")
        if key:
            yield from (field_errors.invalid(f"{where}.key", key, text) for text in label_key_errors(key))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield field_errors.invalid(f"{where}.operator", operator, text)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield field_errors.invalid(f"{where}.effect", effect, text)
        if operator == "Equal":
            yield from (field_errors.invalid(f"{where}.operator", value, text) for text in label_value_errors(value))
        elif operator == "Exists":
            if value:
                text = "value must be empty when `operator` is 'Exists'"
                yield field_errors.invalid(f"{where}.operator", value, text)
        else:
            yield field_errors.not_supported(f"{where}.operator", operator, ("Equal", "Exists"))
        if effect:
            yield from field_errors.enum_causes(toleration, "core.v1.Toleration", where, "effect")


def gate_causes(gates: list[JSON], path: str) -> Iterator[Cause]:
    """Why gates cannot be told apart."""
    seen: set[str] = set()
    for at, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from (field_errors.invalid(f"{path}[{at}]", name, text) for text in label_key_errors(name))
        if name in seen:
            yield field_errors.duplicate(f"{path}[{at}]", name)
        seen.add(name)


def scheduling_update_causes(spec: JSON, old: JSON) -> Iterator[Cause]:
    """What of the scheduling of a pod may not change."""
    wanted = [_without_seconds(toleration) for toleration in spec.get("tolerations") or ()]
    if any(_without_seconds(toleration) not in wanted for toleration in old.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield field_errors.forbidden("spec.tolerations", text)
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for at, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            yield field_errors.forbidden(f"spec.schedulingGates[{at}].name", text)
    if known and not (old.get("nodeSelector") or {}).items() <= (spec.get("nodeSelector") or {}).items():
        yield field_errors.invalid("spec.nodeSelector", spec.get("nodeSelector"), "only additions are allowed")


def _without_seconds(toleration: JSON) -> JSON:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}
