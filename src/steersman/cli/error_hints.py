"""What to do about an error of the API server, for every command: the missing right, the missing kinds.

An error is one line that says what is wrong; below it may stand text to copy. Nothing here asks the cluster anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from steersman.kube.api.errors import Forbidden, KubeError, NotFound

if TYPE_CHECKING:
    from steersman.errors import SteersmanError
    from steersman.kube.api.rbac_hint import MissingRule

READS: Final = ("get", "list", "watch")
_PATH: Final = re.compile(r"/apis/(?P<group>[^/]+)/[^/]+/(?:namespaces/[^/]+/)?(?P<plural>[^/?]+)")


def explain(error: SteersmanError) -> str:
    """The text of an error for the terminal, with what to do where that takes more than its own line."""
    if isinstance(error, Forbidden) and error.rule is not None:
        return (
            f"error: {_first_part(error)}\nthis would allow it:\n{_role(_with_reads(error.rule))}\n"
            "# all rights of an operator: steersman rbac --operators NAME | kubectl apply -f -"
        )
    if isinstance(error, NotFound) and (missing := _missing_kind(error)):
        kind, operator = missing
        return (
            f"error: {kind} is not installed in this cluster\n"
            f"install the kinds first:\n  steersman crds --operators {operator} | kubectl apply -f -"
        )
    return f"error: {error}"


def _first_part(error: KubeError) -> str:
    """What the server said, without the rule in one line: it follows in a form to copy."""
    return error.message.partition("; a ClusterRole with this rule")[0].partition("; a Role in namespace")[0]


def _with_reads(rule: MissingRule) -> MissingRule:
    """The rule with all verbs of reading: who may not list a kind is told of get and watch at once, not one by one."""
    from msgspec.structs import replace

    return replace(rule, verbs=READS) if set(rule.verbs) & {"list", "watch"} else rule


def _role(rule: MissingRule) -> str:
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
        if any(kind == owned.KIND.qualified for owned in load_operator(name).kinds):
            return kind, name
    return None
