"""What following a watch costs: 5,000 changes of a custom resource per second, ours next to its peers.

A custom resource, because every client reads those as JSON; a source of its own (see peers/event_source.py), because no
real API server makes so many changes on a small machine. CPU is what the contender used from the moment it was complete
until it had seen the last change. The contenders take turns, and the run with the median CPU is shown.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from children import Child
from contenders import CONTROLLER_RUNTIME, KOPF, KUBERNETES_ASYNCIO, LIGHTKUBE, OURS, Contender
from results import Results

CONTENDERS = [OURS, CONTROLLER_RUNTIME, LIGHTKUBE, KUBERNETES_ASYNCIO, KOPF]
SOURCE = Path(__file__).parent / "peers" / "event_source.py"
PATIENCE = 120.0  # seconds a contender may need to catch up


def measure(contender: Contender, options: argparse.Namespace) -> dict[str, Any]:
    """One contender on a source of its own, so that none inherits the load of another."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = f"{folder}/kubeconfig"
        with Child([sys.executable, str(SOURCE), kubeconfig, str(options.objects)]) as source:
            source.hear()
            environment = {"KUBECONFIG": kubeconfig, "BENCH_OBJECTS": str(options.objects)}
            with Child([*contender.command(), "events"], env=environment) as child:
                child.hear()
                before = child.usage().cpu
                source.tell(f"{options.rate} {options.seconds}")
                sent = source.hear(PATIENCE + options.seconds)
                seen = await_end(child, PATIENCE)
                used = child.usage().cpu - before
                if seen is None:
                    os.kill(child.pid, signal.SIGUSR1)  # ends everybody but kopf, which says how far it came
                    seen = await_end(child, PATIENCE) or {}
                return {**sent, **seen, "cpu": used}


def await_end(child: Child, patience: float) -> dict[str, Any] | None:
    """What a contender says at the end; None when it does not come."""
    deadline = time.monotonic() + patience
    try:
        while "events" not in (seen := child.hear(max(0.0, deadline - time.monotonic()))):
            pass  # kopf says that it is complete whenever it lists again
    except TimeoutError:
        return None
    return seen


def cost_of(facts: dict[str, Any]) -> float:
    """CPU microseconds per change."""
    cost: float = facts["cpu"] / facts["sent"] * 1e6
    return cost


def main() -> int:
    """1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--objects", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3, help="of each but kopf, which has one")
    parser.add_argument("--only", nargs="*", help="the first word of the contenders' names; writes no results")
    options = parser.parse_args()
    chosen = [c for c in CONTENDERS if not options.only or c.name.split()[0] in options.only]
    results = Results(
        "events",
        f"Following {options.rate:,} changes per second for {options.seconds:.0f} s",
        f"{options.objects:,} custom resources of 1 KB change {options.rate:,} times per second for "
        f"{options.seconds:.0f} s; each contender follows them over TLS with a handler that notes how late each change "
        "is, in a process of its own. CPU per change sent, from complete to the last change seen: the median of "
        f"{options.runs} runs, taken in turns (one run of kopf). A contender that has not seen the last change "
        f"{PATIENCE:.0f} s after it was sent is not waited for: the server has ended its watch because it was too far "
        "behind, and it has listed the objects again. Handled is what its handler was given until then.",
        {
            "name": "",
            "cpu": "CPU µs per change",
            "share": "CPU, ours = 1",
            "rate": "sent per s",
            "handled": "handled",
            "p50": "lag p50 ms",
            "p99": "lag p99 ms",
        },
    )
    runs: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in chosen}
    for turn in range(options.runs):
        for contender in chosen:
            if turn == 0 or contender is not KOPF:
                facts = measure(contender, options)
                runs[contender.name].append(facts)
                print(f"  {contender.name}: {cost_of(facts):.2f} µs", file=sys.stderr)
    found: dict[str, float] = {}
    for contender in chosen:
        facts = sorted(runs[contender.name], key=cost_of)[len(runs[contender.name]) // 2]
        found[contender.name] = cost = cost_of(facts)
        results.versions[contender.name] = contender.version()
        results.add(
            name=contender.name,
            cpu=cost,
            share=cost / found.get(OURS.name, cost),
            rate=facts["sent"] / facts["seconds"],
            handled=f"{facts['events'] / facts['sent']:.0%}",
            p50=None if facts["p50"] is None else facts["p50"] * 1e3,
            p99=None if facts["p99"] is None else facts["p99"] * 1e3,
        )
    if options.only:
        return 0
    python = min(found[c.name] for c in (LIGHTKUBE, KUBERNETES_ASYNCIO))  # kopf may miss some
    results.bar("events per CPU second, ours to the best Python peer", python / found[OURS.name], 3.0, at_least=True)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
