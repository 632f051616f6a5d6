"""`steersman reload replay`: what a hook would have said about restarts of the past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from steersman.cli.output import output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.operators.reload.inspect.explain import WorkloadRestartRecord
    from steersman.operators.reload.planning.hooks import HookChange


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One restart of the past, and the word on it."""

    at: str
    workload: str
    sources: tuple[str, ...]
    decision: str  # allow or hold
    reason: str = ""


@click.command()
@click.argument("history", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--hook", required=True, metavar="NAME|MODULE:FUNCTION", help="An installed hook, or one being written.")
@click.option("--timeout", default="2s", show_default=True, help="How long it may take for one decision.")
@output_option()
def replay(history: Path, hook: str, timeout: str, output: str) -> None:
    """Run a hook over a recorded history and show its decisions. Nothing is asked of any cluster.

    HISTORY has one JSON object per line, as `steersman reload history -o jsonl` prints it, or is a JSON list of them;
    "-" is standard input.

    \b
    Example:
      steersman reload history -A -o jsonl > history.jsonl
      steersman reload replay history.jsonl --hook mine:decide
    """
    import asyncio
    import sys

    from steersman.cli.output import print_table, show
    from steersman.kube.api.durations import parse_duration
    from steersman.operators.reload.planning.hooks import load_hook

    sys.path.insert(0, str(Path.cwd()))  # a hook that is being written is where its author is
    function = load_hook(hook)
    changes = _changes(history)
    found = asyncio.run(_ask(function, changes, parse_duration(timeout).total_seconds()))

    def draw(console: Any) -> None:
        held = sum(entry.decision == "hold" for entry in found)
        console.print(f"{held} of {len(found)} restarts would have been held")
        rows = [(entry.at, entry.workload, " ".join(entry.sources), entry.decision, entry.reason) for entry in found]
        print_table(console, ["at", "workload", "for", "decision", "reason"], rows)

    show(found, output, draw)


def _changes(path: Path) -> list[HookChange]:
    """The recorded restarts, the oldest first."""
    import sys

    from steersman.errors import ConfigError
    from steersman.operators.reload.inspect.explain import WorkloadRestartRecord

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("file not found", where=str(path)) from None
    if text.lstrip().startswith("["):
        lines = [(1, text)]
        shape: Any = list[WorkloadRestartRecord]
    else:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        shape = WorkloadRestartRecord
    entries: list[WorkloadRestartRecord] = []
    for number, line in lines:
        try:
            found = msgspec.json.decode(line, type=shape)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"is not a recorded restart: {error}", where=f"{path}:{number}") from None
        entries += found if isinstance(found, list) else [found]
    entries.sort(key=lambda entry: entry.at)
    return [_recorded_change(entry, entries[:place]) for place, entry in enumerate(entries)]


def _recorded_change(entry: WorkloadRestartRecord, earlier: Sequence[WorkloadRestartRecord]) -> HookChange:
    """The change that led to a recorded restart, as far as the record tells."""
    from steersman.operators.reload.inspect.offline import seconds
    from steersman.operators.reload.planning.diff import parse_changes
    from steersman.operators.reload.planning.hooks import HookChange, HookSource

    return HookChange(
        workload=entry.workload,
        sources=tuple(
            HookSource(change.source.kind.value, change.source.namespace, change.source.name, change.keys)
            for change in parse_changes(entry.cause, entry.workload.namespace)
        ),
        at=seconds(entry.at),
        restarts=tuple(seconds(past.at) for past in earlier if past.workload == entry.workload),
    )


async def _ask(function: Any, changes: Sequence[HookChange], timeout: float) -> list[Replayed]:
    from steersman.kube.api.times import format_time
    from steersman.operators.reload.planning.hooks import HookRunner

    judge = HookRunner(function, timeout=timeout, on_error="hold")
    found = []
    for change in changes:
        decision = await judge.decide(change)
        found.append(
            Replayed(
                at=format_time(change.at),
                workload=f"{change.workload.kind.lower()}/{change.workload.namespace}/{change.workload.name}",
                sources=change.names,
                decision="allow" if decision.allowed else "hold",
                reason=decision.reason,
            )
        )
    return found
