"""What it costs that cached objects cannot be changed by accident: copies at the edge next to the alternatives.

Every row is one kind of object, as the cache holds it. *decode* is what the object costs when it comes from the server,
plain and into frozen classes; *JSON* is the copy a reconciler is given; *walk* and *deepcopy* are other ways to copy;
*detect* is one comparison of the mutation detector. Times are the best of several rounds, in µs per object.
"""

from __future__ import annotations

import copy
import sys
import timeit
from typing import TYPE_CHECKING, Any

import msgspec
from results import Results

from steersman.cache.copies import copy_of
from steersman.kube.api.types.core import ConfigMap
from steersman.kube.api.types.pods import Pod

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS, NUMBER = 40, 400
COPY_LIMIT = 3.0  # a copy may cost this many decodings

METADATA = {
    "name": "web-7d4b9c-x2x9k",
    "namespace": "shop",
    "uid": "0b8f1a52-7a57-4b5e-8f0e-6d3c7f1c2a11",
    "resourceVersion": "123456",
    "labels": {"app": "web", "tier": "front", "pod-template-hash": "7d4b9c"},
    "annotations": {"example.org/checked": "yes"},
    "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "u", "controller": True}
    ],
}


def container(name: str) -> dict[str, Any]:
    """A container with some of everything."""
    return {
        "name": name,
        "image": "registry.example.org/web:1.2.3",
        "env": [
            {"name": "MODE", "value": "fast"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "web", "key": "token"}}},
        ],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }


def pod() -> dict[str, Any]:
    """A running Pod with two containers, as the server sends it."""
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "metadata": METADATA,
        "spec": {
            "containers": [container("web"), container("sidecar")],
            "volumes": [{"name": "config", "configMap": {"name": "web"}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            "nodeName": "node-1",
            "restartPolicy": "Always",
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.17",
            "conditions": [{"type": name, "status": "True"} for name in conditions],
            "containerStatuses": [
                {"name": name, "ready": True, "restartCount": 0, "image": "web:1.2.3", "imageID": "sha256:0"}
                for name in ("web", "sidecar")
            ],
        },
    }


def configmap() -> dict[str, Any]:
    """1.7 KB of data."""
    return {"metadata": METADATA, "data": {f"key-{n:02}": f"value of key {n} ".ljust(78, "x") for n in range(18)}}


def walked(value: Any) -> Any:
    """A copy made part by part, in Python."""
    if isinstance(value, msgspec.Struct):
        made = msgspec.structs.replace(value)
        for name in value.__struct_fields__:
            msgspec.structs.force_setattr(made, name, walked(getattr(value, name)))
        return made
    if isinstance(value, dict):
        return {name: walked(part) for name, part in value.items()}
    return type(value)(map(walked, value)) if isinstance(value, list | tuple) else value


def micros(function: Callable[[], Any], number: int = NUMBER) -> float:
    """The best round, per call."""
    return round(min(timeit.repeat(function, number=number, repeat=ROUNDS)) / number * 1e6, 1)


def main() -> int:
    """Measure and write the table."""
    columns = {
        "object": "object",
        "json": "copy: JSON",
        "decode": "decode",
        "frozen": "decode, frozen",
        "walk": "copy: walk",
        "deepcopy": "copy: deepcopy",
        "detect": "detect",
    }
    results = Results("copies", "µs for a private copy of a cached object", str(__doc__).strip(), columns)
    for name, wire, kind in (
        ("Pod", pod(), Pod),
        ("ConfigMap", configmap(), ConfigMap),
        ("Pod, untyped", pod(), dict),
        ("ConfigMap, untyped", configmap(), dict),
    ):
        text = msgspec.json.encode(wire)
        decode, encode = msgspec.json.Decoder(kind).decode, msgspec.json.Encoder().encode
        obj: Any = decode(text)
        cold = decode if kind is dict else msgspec.json.Decoder(type("Cold", (kind,), {}, frozen=True)).decode
        results.add(
            object=name,
            json=micros(lambda obj=obj: copy_of(obj)),
            decode=micros(lambda decode=decode, text=text: decode(text)),
            frozen=micros(lambda cold=cold, text=text: cold(text)),
            walk=micros(lambda obj=obj: walked(obj)),
            deepcopy=micros(lambda obj=obj: copy.deepcopy(obj), NUMBER // 20),
            detect=micros(lambda encode=encode, obj=obj: encode(obj)),
        )
        row = results.rows[-1]
        results.bar(f"copy of a {name} in decodings", round(row["json"] / row["decode"], 2), COPY_LIMIT)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
