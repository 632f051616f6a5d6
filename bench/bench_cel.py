"""What rules in CEL cost a write on the embedded server: the same definition with its rules and without them.

Creates and replacements go over HTTP to a server in this process, so the time is CPU of client and server together;
the difference is what the rules cost. Rounds with and without rules alternate, and the best of each counts. *none* is
a definition without rules next to itself: what the measurement cannot tell apart.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import time
from typing import Any

from results import Results

from steersman.apiserver import EmbeddedServer
from steersman.crd import crd_manifest
from steersman.operators.dns.api.records import ARecord
from steersman.operators.dns.api.zone import DNSZone
from steersman.testing.raw_api import RawApi, ssl_context

ROUNDS, WRITES = 7, 150
LIMIT = 1.5  # a write of one of our kinds may cost this many writes without rules
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SOA = {"primaryNs": "ns.example.org.", "adminEmail": "admin.example.org.", "refresh": 9, "retry": 9, "expire": 99}
LISTED = {"type": "array", "maxItems": 200, "items": {"type": "integer"}}
SUM = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"numbers": LISTED}}}}


def summed() -> dict[str, Any]:
    """A kind with 200 numbers, and a rule about each of them and one about all."""
    schema = copy.deepcopy(SUM)
    numbers = schema["properties"]["spec"]["properties"]["numbers"]
    numbers["x-kubernetes-validations"] = [{"rule": "self.all(x, x >= 0)"}]
    numbers["items"]["x-kubernetes-validations"] = [{"rule": "self < 1000"}]
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Numbers", "plural": "numbers"}
    spec = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": {"name": "numbers.example.org"}, "spec": spec}


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ARecord, 1 rule": (crd_manifest(ARecord), {"name": "www", "ipv4Addresses": ["192.0.2.1"]}),
    "DNSZone, 2 rules": (crd_manifest(DNSZone), {"zoneName": "example.org", "soaRecord": {**SOA, "negativeTtl": 9}}),
    "200 numbers, a rule for each": (summed(), {"numbers": list(range(200))}),
}


def without_rules(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_rules(item) for key, item in value.items() if key != "x-kubernetes-validations"}
    return [without_rules(item) for item in value] if isinstance(value, list) else value


async def installed(api: RawApi, definition: dict[str, Any], group: str) -> tuple[str, dict[str, Any]]:
    """The path of the collection and the head of its objects."""
    names, version = definition["spec"]["names"], definition["spec"]["versions"][0]["name"]
    spec = {**definition["spec"], "group": group}
    made = await api.post(CRDS, {**definition, "metadata": {"name": f"{names['plural']}.{group}"}, "spec": spec})
    assert made.status == 201, made.body
    path = f"/apis/{group}/{version}/namespaces/default/{names['plural']}"
    await api.eventually(path, lambda answer: answer.status == 200)
    return path, {"apiVersion": f"{group}/{version}", "kind": names["kind"]}


async def write(api: RawApi, path: str, head: dict[str, Any], spec: dict[str, Any], turn: int) -> float:
    """Seconds of CPU per write: half of them creates, half replacements."""
    started = time.process_time()
    for at in range(WRITES):
        made = await api.post(path, {**head, "metadata": {"name": f"x-{turn}-{at}"}, "spec": spec})
        labels = {**made.body["metadata"], "labels": {"a": "b"}}
        replaced = await api.put(f"{path}/{labels['name']}", {**made.body, "metadata": labels})
        assert replaced.status == 200, replaced.body
    return (time.process_time() - started) / (2 * WRITES)


async def measure(api: RawApi, name: str, definitions: list[dict[str, Any]], spec: dict[str, Any]) -> list[float]:
    kinds = [await installed(api, definition, f"{name}{at}.example") for at, definition in enumerate(definitions)]
    best = [float("inf")] * len(kinds)
    for turn in range(ROUNDS):
        for at, (path, head) in enumerate(kinds):
            best[at] = min(best[at], await write(api, path, head, spec, turn))
    return best


async def main() -> int:
    columns = {
        "kind": "kind",
        "rules": "rules, µs",
        "ratio": "ratio",
        "without": "write, µs",
        "with_": "with rules, µs",
    }
    results = Results("cel", "Rules in CEL on the embedded server", (__doc__ or "").strip(), columns)
    async with (
        EmbeddedServer() as server,
        RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api,
    ):
        for at, (name, (ruled, spec)) in enumerate(KINDS.items()):
            plain = without_rules(ruled)
            without, with_ = await measure(api, f"kind{at}", [plain, ruled], spec)
            _add(results, name, without, with_)
            if ruled["spec"]["group"] == DNSZone.KIND.group:
                results.bar(f"{name}: writes without rules", with_ / without, LIMIT)
        first, second = await measure(api, "none", [plain, plain], spec)
        _add(results, "none", first, second)
    return results.finish()


def _add(results: Results, name: str, without: float, with_: float) -> None:
    results.add(
        kind=name, rules=(with_ - without) * 1e6, ratio=with_ / without, without=without * 1e6, with_=with_ * 1e6
    )


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
