#!/usr/bin/env python3
"""Record what the built-in kinds look like: discovery, their OpenAPI v3 documents and the shape of their Go types.

    tools/extract_openapi.py --server https://127.0.0.1:6443 --token TOKEN --sources $(go env GOMODCACHE)/k8s.io

Discovery says which resources there are, with names, scope, verbs and subresources. The documents come from the same
running kube-apiserver and are stored as they are, one file per group and version. They do not
say which optional fields are pointers, and only pointers keep an explicit zero (`replicas: 0` stays, `hostNetwork:
false` disappears). That fact comes from the Go sources of the same release: modules `api`, `apimachinery`,
`apiextensions-apiserver` and `kube-aggregator` below `--sources`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import ssl
import sys
import urllib.request
from pathlib import Path

DATA = Path(__file__).parent.parent / "src" / "steersman" / "apiserver" / "data"

GROUP_VERSIONS = (
    "api/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apiregistration.k8s.io/v1",
    "apis/apps/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v1",
    "apis/autoscaling/v2",
    "apis/batch/v1",
    "apis/certificates.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/discovery.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/flowcontrol.apiserver.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/node.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/resource.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
    "apis/storage.k8s.io/v1",
)

# Go module -> the folders in it that hold served types, with the prefix of their OpenAPI names.
SOURCES = {
    "api": (("", "io.k8s.api"),),
    "apimachinery": (("pkg/apis", "io.k8s.apimachinery.pkg.apis"),),
    "apiextensions-apiserver": (("pkg/apis", "io.k8s.apiextensions-apiserver.pkg.apis"),),
    "kube-aggregator": (("pkg/apis", "io.k8s.kube-aggregator.pkg.apis"),),
}

BASIC = {"bool", "byte", "float64", "int", "int32", "int64", "interface", "map", "string", "uint8"}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s+`[^`]*json:\"([^\"]*)\"[^`]*`", re.MULTILINE)
NAMED = re.compile(r"^type (\w+) ([\w.\[\]]+)$", re.MULTILINE)


DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def fetch(server: str, path: str, token: str | None, accept: str = "application/json") -> bytes:
    """GET one document. The server is one started for this extraction, so its certificate is not checked."""
    request = urllib.request.Request(f"{server}/{path}")  # noqa: S310 - the operator names the server
    request.add_header("Accept", accept)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    context = ssl._create_unverified_context()  # noqa: S323, SLF001 - see above
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
        return bytes(answer.read())


def write(name: str, value: object) -> None:
    """Write compact JSON, gzipped without a timestamp so that the same input gives the same file."""
    raw = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    path = DATA / name
    path.write_bytes(gzip.compress(raw, compresslevel=9, mtime=0))
    print(f"{path.name}: {len(raw)} -> {path.stat().st_size} bytes")  # noqa: T201 - a script that reports


def go_types(root: Path, prefix: str) -> dict[str, dict[str, str]]:
    """Per OpenAPI type: JSON field -> Go type and JSON options; embedded structs under the name "".

    A type of another package or one that is not basic has its package before it, and a named basic type is followed by
    what it is: `*v1.PullPolicy=string,omitempty`.
    """
    found: dict[str, dict[str, str]] = {}
    named: dict[str, dict[str, str]] = {}
    for path in sorted(root.rglob("*.go")):
        if path.name.startswith("zz_") or path.name.endswith("_test.go") or path.name == "generated.pb.go":
            continue
        text = path.read_text()
        package = ".".join((prefix, *path.parent.relative_to(root).parts))
        named.setdefault(package, {}).update(NAMED.findall(text))
        for struct in STRUCT.finditer(text):
            fields: dict[str, str] = {}
            for _, go_type, tag in FIELD.findall(struct.group(2)):
                name, *options = tag.split(",")
                kept = [option for option in options if option in {"omitempty", "omitzero"}]
                fields[name] = ",".join([go_type, *kept])
            if fields:
                found[f"{package}.{struct.group(1)}"] = fields
    for type_name, fields in found.items():
        names = named.get(type_name.rpartition(".")[0], {})
        for name, go_type in fields.items():
            fields[name] = spell_out(go_type, type_name.split(".")[-2], names)
    return found


def spell_out(go_type: str, package: str, named: dict[str, str]) -> str:
    """A field's type as Go's decoder names it, followed by what it is when the name does not say."""
    head, comma, options = go_type.partition(",")
    base = named.get(head.lstrip("*"))
    meaning = f"={qualified(base, package)}" if base else ""
    return f"{qualified(head, package)}{meaning}{comma}{options}"


def qualified(go_type: str, package: str) -> str:
    """The type with the real names of packages: `metav1.Time` is `v1.Time`, a local `Container` is `v1.Container`."""

    def name(found: re.Match[str]) -> str:
        alias, local = found.groups()
        if alias:
            version = re.search(r"v\d\w*$", alias)
            return f"{version.group() if version else alias}.{local}"
        return local if local in BASIC else f"{package}.{local}"

    return re.sub(r"(?:(\w+)\.)?(\w+)", name, go_type)


def served(types: dict[str, dict[str, str]], components: set[str]) -> dict[str, dict[str, str]]:
    """Only the types some document names, with the fields of the structs they embed marked `@Struct`."""
    kept: dict[str, dict[str, str]] = {}
    for name in sorted(components & types.keys()):
        fields = dict(types[name])
        package = name.rpartition(".")[0]
        embedded = fields.pop("", None)
        if embedded is not None:
            local = embedded.partition(",")[0].rpartition(".")[2]
            inner = types.get(f"{package}.{local}", {})
            fields |= {field: f"{go_type}@{local}" for field, go_type in inner.items()}
        kept[name] = fields
    return kept


def main() -> int:
    """Fetch, parse, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="URL of a running kube-apiserver")
    parser.add_argument("--token", help="bearer token that may read /openapi")
    parser.add_argument("--sources", required=True, type=Path, help="folder of api@VERSION, apimachinery@VERSION, ...")
    parser.add_argument("--release", default="v0.36.3", help="version of the Go modules (default: %(default)s)")
    options = parser.parse_args()

    DATA.mkdir(exist_ok=True)
    found = [json.loads(fetch(options.server, root, options.token, DISCOVERY))["items"] for root in ("api", "apis")]
    write("discovery.json.gz", {"items": [group for groups in found for group in groups]})
    components: set[str] = set()
    for path in GROUP_VERSIONS:
        document = json.loads(fetch(options.server, f"openapi/v3/{path}", options.token))
        components |= document["components"]["schemas"].keys()
        write(path.replace("/", "_") + ".json.gz", document)
    types: dict[str, dict[str, str]] = {}
    for module, folders in SOURCES.items():
        for folder, prefix in folders:
            types |= go_types(options.sources / f"{module}@{options.release}" / folder, prefix)
    write("go-types.json.gz", served(types, components))
    missing = sorted(name for name in components - types.keys() if name.startswith("io.k8s.api."))
    if missing:
        print("no Go struct found for:", *missing, sep="\n  ")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
