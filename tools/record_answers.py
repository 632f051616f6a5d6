#!/usr/bin/env python3
"""Ask a real kube-apiserver again for the answers the unit tests of the embedded one compare with.

    tools/record_answers.py --server https://127.0.0.1:6443 --token TOKEN

The files under tests/unit/apiserver/data hold requests and recorded answers. This sends the same requests and writes
the new answers in place, so a new Kubernetes release shows up as a diff. The server must be a throw-away one with an
empty `default` namespace, started with `--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,Priority`:
the files are about types and ownership, not about admission.
"""

from __future__ import annotations

import argparse
import gzip
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "tests" / "unit" / "apiserver" / "data"
VOLATILE = ("uid", "resourceVersion", "creationTimestamp")
PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies", "Endpoints": "endpoints"}
CLUSTER_SCOPED = {"Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "CSIDriver"}
PATCHES = {"apply": "apply-patch+yaml", "merge": "merge-patch+json", "strategic": "strategic-merge-patch+json"}
Object = dict[str, Any]


class Server:
    """The few requests a recording needs."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def send(self, method: str, path: str, body: Object | None = None, media: str = "json") -> tuple[int, Object]:
        """One request; refusals are answers too."""
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310 - the operator names the server
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", f"application/{media}")
        request.data = json.dumps(body).encode() if body is not None else None
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - a throw-away server
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def collection(obj: Object) -> str:
    """Where objects of this kind are created."""
    version, kind = obj["apiVersion"], obj["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = PLURALS.get(kind) or (f"{kind}es" if kind.endswith("Class") else f"{kind}s").lower()
    scope = "" if kind in CLUSTER_SCOPED or kind.endswith(("Class", "WebhookConfiguration")) else "/namespaces/default"
    return f"{root}{scope}/{plural.lower()}"


def stable(obj: Object) -> Object:
    """An object without what every run has differently."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in VOLATILE}
    return {**obj, "metadata": metadata}


def record_defaults(server: Server) -> None:
    """What new objects become."""
    path = DATA / "defaults.json"
    cases = json.loads(path.read_text())
    for case in cases:
        code, answer = server.send("POST", f"{collection(case['sent'])}?fieldManager=rec&dryRun=All", case["sent"])
        if code != 201:
            raise SystemExit(f"{case['sent']['kind']}: {answer.get('message')}")
        case["answer"] = stable(answer)
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), ensure_ascii=False) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")


def record_ownership(server: Server) -> None:
    """Who owns what after sequences of writes by several managers."""
    path = DATA / "ownership.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    define(server, document["definition"])
    for sequence in document["sequences"]:
        kinds = {"Thing": "example.org/v1", "Deployment": "apps/v1"}
        where = collection({"apiVersion": kinds.get(sequence["kind"], "v1"), "kind": sequence["kind"]})
        forget(server, f"{where}/o")
        version = None
        for step in sequence["steps"]:
            version = replay(server, where, step, version)
    path.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))


def replay(server: Server, where: str, step: Object, version: str | None) -> str | None:
    """Send one step and note its answer; gives the version of the object afterwards."""
    query = f"?fieldManager={step['manager']}&fieldValidation=Ignore" + ("&force=true" if step.get("force") else "")
    target = f"{where}/o" + (f"/{step['subresource']}" if "subresource" in step else "") + query
    before = clock()
    if step["op"] == "create":
        code, answer = server.send("POST", where + query, step["body"])
    elif step["op"] == "put":
        metadata = {**step["body"]["metadata"], "resourceVersion": version}
        code, answer = server.send("PUT", target, {**step["body"], "metadata": metadata})
    else:
        code, answer = server.send("PATCH", target, step["body"], PATCHES[step["op"]])
    after = clock()
    step["code"], step["now"] = code, after if after in json.dumps(answer) else before
    if code >= 300:
        step["answer"] = {"message": answer["message"], "causes": answer.get("details", {}).get("causes", [])}
        return version
    step["answer"] = stable(answer)
    step["answer"]["metadata"].pop("generation", None)
    return str(answer["metadata"]["resourceVersion"])


def clock() -> str:
    """The time as managers get it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def define(server: Server, schema: Object) -> None:
    """The custom resource the sequences use."""
    names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": schema}
    spec = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    body["metadata"] = {"name": "things.example.org"}
    server.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    while server.send("GET", "/apis/example.org/v1/namespaces/default/things")[0] != 200:
        time.sleep(0.2)


def forget(server: Server, target: str) -> None:
    """Delete what an earlier sequence left."""
    server.send("PATCH", target, {"metadata": {"finalizers": None}}, "merge-patch+json")
    server.send("DELETE", f"{target}?gracePeriodSeconds=0")


def main() -> int:
    """Record everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="URL of a throw-away kube-apiserver")
    parser.add_argument("--token", required=True, help="bearer token of an administrator")
    options = parser.parse_args()
    server = Server(options.server, options.token)
    record_defaults(server)
    record_ownership(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
