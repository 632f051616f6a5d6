"""Roles and bindings as manifests, written short."""

from __future__ import annotations

from typing import Any

from steersman.runtime import rbac

RBAC = "rbac.authorization.k8s.io"
ROLES = f"/apis/{RBAC}/v1"
Manifest = dict[str, Any]


def rule(resources: str | list[str], *verbs: str, names: tuple[str, ...] = ()) -> Manifest:
    """A rule as a role holds it."""
    return rbac.rule_manifest(rbac.rule(resources, *verbs, names=names))


def urls(*paths: str, verbs: tuple[str, ...] = ("get",)) -> Manifest:
    """A rule about paths."""
    return {"nonResourceURLs": list(paths), "verbs": list(verbs)}


def role(name: str, *rules: Manifest, namespace: str = "", **fields: Any) -> Manifest:
    """A Role, or a ClusterRole without a namespace."""
    kind = "Role" if namespace else "ClusterRole"
    return _object(kind, name, namespace, rules=list(rules), **fields)


def binding(name: str, *subjects: Manifest, role: str, namespace: str = "", kind: str = "") -> Manifest:
    """A binding to a role of the same scope, unless `kind` says otherwise."""
    scope = "" if namespace else "Cluster"
    reference = {"apiGroup": RBAC, "kind": kind or f"{scope}Role", "name": role}
    return _object(f"{scope}RoleBinding", name, namespace, roleRef=reference, subjects=list(subjects))


def user(name: str) -> Manifest:
    """A user as the subject of a binding."""
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def group(name: str) -> Manifest:
    """A group as the subject of a binding."""
    return {"apiGroup": RBAC, "kind": "Group", "name": name}


def account(name: str, namespace: str = "") -> Manifest:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, **({"namespace": namespace} if namespace else {})}


def _object(kind: str, name: str, namespace: str, **fields: Any) -> Manifest:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, **fields}
