"""What to do about an error of the API server, for every command: the missing right, the missing kinds.

An error is one line that says what is wrong; below it may stand text to copy. Nothing here asks the cluster anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from steersman.kube.errors import Forbidden, KubeError, NotFound

if TYPE_CHECKING:
    from steersman.errors import SteersmanError
    from steersman.kube.access import PolicyRule

__all__ = ["explain"]

_PATH: Final = re.compile(r"/apis/(?P<group>[^/]+)/[^/]+/(?:namespaces/[^/]+/)?(?P<plural>[^/?]+)")


def explain(error: SteersmanError) -> str:
    """The text of an error for the terminal, with what to do where that takes more than its own line."""
    if isinstance(error, Forbidden) and error.rule is not None:
        return f"error: {_first_part(error)}\nthis would allow it:\n{_role(error.rule)}"
    if isinstance(error, NotFound) and (missing := _missing_kind(error)):
        kind, operator = missing
        return (
            f"error: this cluster does not know {kind}\n"
            f"install the kinds first:\n  steersman crds --operators {operator} | kubectl apply -f -"
        )
    return f"error: {error}"


def _first_part(error: KubeError) -> str:
    """What the server said, without the rule in one line: it follows in a form to copy."""
    return error.message.partition("; a ClusterRole with this rule")[0].partition("; a Role in namespace")[0]


def _role(rule: PolicyRule) -> str:
    import yaml

    kind = "Role" if rule.namespace else "ClusterRole"
    metadata = {"name": "steersman-missing", **({"namespace": rule.namespace} if rule.namespace else {})}
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": [rule.to_wire()],
    }
    text: str = yaml.safe_dump(body, sort_keys=False)
    return text.rstrip()


def _missing_kind(error: NotFound) -> tuple[str, str] | None:
    """The kind, and the operator that brings it, when the path itself is unknown: a missing object has a name."""
    path = _PATH.search(error.request.url) if error.request is not None else None
    if path is None or error.details.get("name"):
        return None
    from steersman.operators import OPERATORS, load_operator

    kind = f"{path['plural']}.{path['group']}"
    for name in OPERATORS:
        if any(kind == f"{one.KIND.plural}.{one.KIND.group}" for one in load_operator(name).kinds):
            return kind, name
    return None
