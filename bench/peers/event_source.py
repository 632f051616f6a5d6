"""Where the events come from: an embedded API server whose objects change at a fixed rate.

The changes are put straight into the server's log, without requests, so that the rate holds on a small machine; what
the clients see is an ordinary watch over TLS. Each object says when it was sent. Prints `{"ready": …}`, then makes one
run per line of input (`RATE SECONDS`), ending with a change of the object `end`, and prints how it went.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from steersman.apiserver import EmbeddedServer
from steersman.testing.raw_api import RawApi, ssl_context

TURN = 0.005  # seconds between bursts

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "ticks.bench.example.org"},
    "spec": {
        "group": "bench.example.org",
        "scope": "Namespaced",
        "names": {"kind": "Tick", "plural": "ticks", "listKind": "TickList", "singular": "tick"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "sent": {"type": "string"},
                                    "payload": {"type": "object", "additionalProperties": {"type": "string"}},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


async def main(kubeconfig: str, objects: int) -> None:
    """Serve until the input ends."""
    async with EmbeddedServer() as server:
        server.write_kubeconfig(kubeconfig)
        path = "/apis/bench.example.org/v1/namespaces/default/ticks"
        async with RawApi(server.url, token=server.token, ssl_context=ssl_context(server.ca_pem)) as api:
            answer = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
            assert answer.status == 201, answer
            await api.eventually(path, lambda found: found.status == 200)
            for name in ["end", *(f"tick-{number:04}" for number in range(objects - 1))]:
                spec = {"sent": str(time.time_ns()), "payload": {f"key-{n}": "x" * 90 for n in range(8)}}
                body = {"apiVersion": "bench.example.org/v1", "kind": "Tick", "metadata": {"name": name}, "spec": spec}
                answer = await api.post(path, body)
                assert answer.status == 201, answer
        print(json.dumps({"ready": objects}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            rate, seconds = map(float, line.split())
            sent, took = await send(server, rate, seconds)
            print(json.dumps({"sent": sent, "seconds": took}), flush=True)


async def send(server: EmbeddedServer, rate: float, seconds: float) -> tuple[int, float]:
    """Change objects at `rate` for `seconds`; answers with how many changes that were and how long it took."""
    store = server.api.store
    table = store.find_table("ticks.bench.example.org")
    assert table is not None
    keys = [key for key in table.keys if not key.endswith("/end")]
    total, sent = int(rate * seconds), 0
    started = time.monotonic()
    while sent < total:
        due = min(total, int((time.monotonic() - started + TURN) * rate))
        for number in range(sent, due):
            key = keys[number % len(keys)]
            obj = table.records[key].obj
            store.put(table, key, {**obj, "spec": {**obj["spec"], "sent": str(time.time_ns())}})
        sent = due
        await asyncio.sleep(TURN)
    took = time.monotonic() - started
    await asyncio.sleep(0.5)
    (end,) = (key for key in table.keys if key.endswith("/end"))
    store.put(table, end, table.records[end].obj)
    return total, took


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
