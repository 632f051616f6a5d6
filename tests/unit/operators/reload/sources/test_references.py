"""Every way in which a pod refers to a ConfigMap or a Secret, and how precisely."""

from __future__ import annotations

import msgspec
import pytest

from steersman.operators.reload.sources.references import PodView, references


def found(pod):
    view = msgspec.convert(pod, PodView)
    return [
        (str(reference.kind.value), reference.name, reference.keys, reference.optional, reference.where)
        for reference in references(view)
    ]


def container(role="containers", **parts):
    return {role: [{"name": "c", **parts}]}


KEY = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "mode"}}}
SECRET_KEY = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pw", "optional": True}}}

CASES = {
    "one key in an environment": (
        container(env=[KEY]),
        [("configmap", "app", ("mode",), False, "container c: env X")],
    ),
    "an optional key of a Secret": (
        container(env=[SECRET_KEY]),
        [("secret", "db", ("pw",), True, "container c: env X")],
    ),
    "all keys in an environment": (
        container(envFrom=[{"configMapRef": {"name": "app"}}, {"secretRef": {"name": "db", "optional": True}}]),
        [
            ("configmap", "app", None, False, "container c: envFrom"),
            ("secret", "db", None, True, "container c: envFrom"),
        ],
    ),
    "a prefix is told": (
        container(envFrom=[{"prefix": "APP_", "configMapRef": {"name": "app"}}]),
        [("configmap", "app", None, False, "container c: envFrom APP_*")],
    ),
    "an init container": (
        container("initContainers", env=[KEY]),
        [("configmap", "app", ("mode",), False, "init container c: env X")],
    ),
    "a sidecar": (
        container("initContainers", env=[KEY], restartPolicy="Always"),
        [("configmap", "app", ("mode",), False, "sidecar c: env X")],
    ),
    "an ephemeral container": (
        container("ephemeralContainers", env=[KEY]),
        [("configmap", "app", ("mode",), False, "ephemeral container c: env X")],
    ),
    "a volume": (
        {"volumes": [{"name": "v", "configMap": {"name": "app"}}]},
        [("configmap", "app", None, False, "volume v")],
    ),
    "a Secret as a volume has its own spelling": (
        {"volumes": [{"name": "v", "secret": {"secretName": "tls", "optional": True}}]},
        [("secret", "tls", None, True, "volume v")],
    ),
    "items of a volume": (
        {"volumes": [{"name": "v", "configMap": {"name": "app", "items": [{"key": "a", "path": "x/a"}]}}]},
        [("configmap", "app", ("a",), False, "volume v")],
    ),
    "a projected volume": (
        {
            "volumes": [
                {
                    "name": "v",
                    "projected": {
                        "sources": [
                            {"configMap": {"name": "app", "items": [{"key": "a", "path": "a"}]}},
                            {"secret": {"name": "db"}},
                            {"serviceAccountToken": {"path": "token"}},
                        ]
                    },
                }
            ]
        },
        [("configmap", "app", ("a",), False, "volume v"), ("secret", "db", None, False, "volume v")],
    ),
    "a volume mounted by subPath only": (
        {
            "volumes": [{"name": "v", "configMap": {"name": "app"}}],
            **container(volumeMounts=[{"name": "v", "subPath": "nginx.conf"}]),
        },
        [("configmap", "app", ("nginx.conf",), True, "volume v: subPath nginx.conf")],
    ),
    "a subPath of an item": (
        {
            "volumes": [{"name": "v", "configMap": {"name": "app", "items": [{"key": "a", "path": "etc/a"}]}}],
            **container(volumeMounts=[{"name": "v", "subPath": "etc"}]),
        },
        [("configmap", "app", ("a",), False, "volume v: subPath etc")],
    ),
    "a second mount of all of it": (
        {
            "volumes": [{"name": "v", "configMap": {"name": "app"}}],
            **container(volumeMounts=[{"name": "v", "subPath": "a"}, {"name": "v"}]),
        },
        [("configmap", "app", None, False, "volume v")],
    ),
    "a subPath that is only known when the pod starts": (
        {
            "volumes": [{"name": "v", "configMap": {"name": "app"}}],
            **container(volumeMounts=[{"name": "v", "subPathExpr": "$(POD)"}]),
        },
        [("configmap", "app", None, False, "volume v")],
    ),
    "a CSI volume": (
        {
            "volumes": [
                {
                    "name": "v",
                    "csi": {
                        "driver": "d",
                        "volumeAttributes": {"secretProviderClass": "vault", "secretName": "share"},
                        "nodePublishSecretRef": {"name": "login"},
                    },
                }
            ]
        },
        [
            ("secretproviderclass", "vault", None, False, "volume v: csi d"),
            ("secret", "share", None, False, "volume v: csi d"),
            ("secret", "login", None, False, "volume v: csi nodePublishSecretRef"),
        ],
    ),
    "a driver with a Secret": (
        {"volumes": [{"name": "v", "cephfs": {"monitors": [], "secretRef": {"name": "ceph"}}}]},
        [("secret", "ceph", None, False, "volume v: cephfs")],
    ),
    "a pull secret stops nobody": (
        {"imagePullSecrets": [{"name": "registry"}]},
        [("secret", "registry", None, True, "imagePullSecrets")],
    ),
    "lists that are null": ({"containers": None, "volumes": None, "imagePullSecrets": None}, []),
    "nothing": (container(env=[{"name": "PLAIN", "value": "x"}]), []),
}


@pytest.mark.parametrize("case", CASES)
def test_every_use_of_a_source_is_found(case):
    pod, expected = CASES[case]
    assert found(pod) == expected
