#!/usr/bin/env python3
"""Ask a real kube-apiserver what it says to the objects in tests/unit/apiserver/recorded, and write down its answers.

    tools/record_cases.py --server https://127.0.0.1:6443 --token TOKEN

Inputs stay as they are; only the expected causes and stored values are replaced. Everything is a dry run except the one
definition that the cases of custom resources need, which is deleted again. Add a case by adding its input and running
this once.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from steersman.apiserver.resources.registry import Registry

RECORDED = Path(__file__).parent.parent / "tests" / "unit" / "apiserver" / "recorded"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DRY = "?dryRun=All&fieldValidation=Ignore"

JSON = dict[str, Any]


class Server:
    """The server that is asked. It was started for this, so its certificate is not checked."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token
        self._context = ssl._create_unverified_context()  # noqa: S323, SLF001 - see above

    def send(self, method: str, path: str, body: JSON | None = None) -> JSON:
        """One request; refusals are answers too."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, method=method)  # noqa: S310 - the operator names it
        request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:  # noqa: S310
                found: JSON = json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read()
            found = json.loads(text) if text.startswith(b"{") else {"kind": "Status", "message": text.decode()}
        return found


def causes(answer: JSON) -> list[list[str]]:
    """The causes of a refusal in a stable order."""
    listed = answer.get("details", {}).get("causes", []) if answer["kind"] == "Status" else []
    return sorted([cause.get("field", ""), cause["reason"], cause["message"]] for cause in listed)


def write(name: str, content: JSON) -> None:
    """One case per line, so that a change of one shows as one line."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            rows = ",\n".join(json.dumps(row, ensure_ascii=False, sort_keys=True) for row in value)
            lines.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    (RECORDED / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def custom_resources(server: Server) -> None:
    """Values of a custom resource: refused with causes, or stored."""
    content = json.loads((RECORDED / "custom_resources.json").read_text())
    definition = content["definition"]
    server.send("POST", DEFINITIONS, definition)
    spec = definition["spec"]
    version = spec["versions"][0]["name"]
    collection = f"/apis/{spec['group']}/{version}/namespaces/default/{spec['names']['plural']}"
    while server.send("GET", collection)["kind"] == "Status":
        time.sleep(0.1)
    for case in content["cases"]:
        kind = {"apiVersion": f"{spec['group']}/{version}", "kind": spec["names"]["kind"]}
        answer = server.send("POST", collection + DRY, {**kind, "metadata": {"name": "x"}, "spec": case["spec"]})
        case.pop("stored", None)
        case.pop("causes", None)
        case.update({"causes": causes(answer)} if answer["kind"] == "Status" else {"stored": answer.get("spec", {})})
    server.send("DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}")
    write("custom_resources.json", content)


def definitions(server: Server) -> None:
    """Definitions of custom resources."""
    content = json.loads((RECORDED / "definitions.json").read_text())
    for case in content["cases"]:
        case["causes"] = causes(server.send("POST", DEFINITIONS + DRY, case["definition"]))
    write("definitions.json", content)


def builtin_rules(server: Server) -> None:
    """New objects of built-in kinds. The recorded updates need a history and are left alone."""
    content = json.loads((RECORDED / "builtin_rules.json").read_text())
    registry = Registry()
    for case in content["creates"]:
        obj = case["object"]
        group, _, version = obj["apiVersion"].rpartition("/")
        info = registry.by_kind(group, version, obj["kind"])
        assert info is not None
        case["causes"] = causes(server.send("POST", info.kind.path("default") + DRY, obj))
    write("builtin_rules.json", content)


def main() -> int:
    """Record everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--token")
    options = parser.parse_args()
    server = Server(options.server, options.token)
    for record in (custom_resources, definitions, builtin_rules):
        record(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
