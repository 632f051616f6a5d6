#!/usr/bin/env python3
"""Record how the built-in kinds are numbered in protobuf, from the `.proto` files of a Kubernetes release.

    tools/extract_protobuf.py --sources $(go env GOMODCACHE)/k8s.io --release v0.36.3

kubectl sends protobuf for the kinds it has types for (`kubectl create namespace`). The embedded server reads it, and
needs to know nothing but number, JSON name and type of every field. A field whose message is no property in the
recorded OpenAPI documents is embedded in Go and has no level of its own in JSON: it is stored without a name.
Run it after tools/extract_openapi.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "src" / "steersman" / "apiserver" / "data"
MODULES = ("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator")

PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (?:(optional|repeated) ([\w.]+)|map<string, ([\w.]+)>) (\w+) = (\d+);", re.MULTILINE)
SCALARS = {"string", "bytes", "bool", "int32", "int64", "uint32", "double"}


def messages(sources: Path, release: str) -> dict[str, list[tuple[int, str, str, str]]]:
    """Every message with (number, name, shape, type) of its fields; names of types are complete."""
    found = {}
    for module in MODULES:
        for file in sorted((sources / f"{module}@{release}").rglob("generated.proto")):
            text = file.read_text()
            package = PACKAGE.search(text)
            assert package is not None, file
            for name, body in MESSAGE.findall(text):
                fields = []
                for label, kind, value, field, number in FIELD.findall(body):
                    type_ = kind or value
                    if type_ not in SCALARS:
                        type_ = type_.lstrip(".") if "." in type_ else f"{package[1]}.{type_}"
                    fields.append((int(number), field, "map" if value else label, type_))
                found[f"{package[1]}.{name}"] = fields
    return found


def schemas() -> dict[str, Any]:
    """Every recorded OpenAPI type by its Go-like name."""
    found: dict[str, Any] = {}
    for file in DATA.glob("api*.json.gz"):
        found |= json.loads(gzip.decompress(file.read_bytes()))["components"]["schemas"]
    return found


def kinds(types: dict[str, Any]) -> dict[str, str]:
    """`group/version/Kind` to the name of its message."""
    return {
        f"{gvk['group']}/{gvk['version']}/{gvk['kind']}": message_name(name)
        for name, schema in types.items()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
        if "items" not in schema.get("properties", {})
    }


def message_name(schema: str) -> str:
    """`io.k8s.api.core.v1.Pod` is the message `k8s.io.api.core.v1.Pod`."""
    return f"k8s.io.{schema.removeprefix('io.k8s.')}".replace("-", "_")


def json_name(field: str, properties: dict[str, Any]) -> str:
    """What JSON calls a field: a few are spelled as in Go, and JSON schemas have names with dashes and dollars."""
    name = field[0].lower() + field[1:]
    dashed = re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", name)
    return next((spelling for spelling in (name, dashed, f"${name}") if spelling in properties), name)


def main() -> None:
    """Write data/protobuf.json.gz with the messages that served kinds reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--release", required=True)
    arguments = parser.parse_args()
    known, types = messages(arguments.sources, arguments.release), schemas()
    by_message = {message_name(name): schema for name, schema in types.items()}
    roots = {kind: name for kind, name in kinds(types).items() if name in known}
    result: dict[str, dict[str, list[str]]] = {}
    waiting = list(roots.values())
    while waiting:
        name = waiting.pop()
        if name in result:
            continue
        properties = by_message.get(name, {}).get("properties")
        result[name] = {}
        for number, field, shape, type_ in known[name]:
            spelled = json_name(field, properties or {})
            embedded = shape == "optional" and type_ in known and properties is not None and spelled not in properties
            result[name][str(number)] = ["" if embedded else spelled, shape, type_]
            if type_ in known:
                waiting.append(type_)
    out = json.dumps({"kinds": roots, "messages": result}, sort_keys=True, separators=(",", ":")).encode()
    (DATA / "protobuf.json.gz").write_bytes(gzip.compress(out, mtime=0))


if __name__ == "__main__":
    main()
