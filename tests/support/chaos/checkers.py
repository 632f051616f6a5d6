"""Checkers: small named functions from a history to findings, each a sentence. Pure.

What an operator did and why is different for each, so an operator says which versions were acts and which were causes;
the rules are the same for all.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.chaos.history import History

__all__ = [
    "CHECKERS",
    "Act",
    "Cause",
    "bounded_memory",
    "bounded_requests",
    "check",
    "no_act_without_cause",
    "no_answer_from_the_past",
    "no_failed_process",
    "no_new_serial_at_rest",
    "no_secret_value",
    "no_write_at_rest",
    "nothing_done_twice",
    "nothing_lost",
    "one_writer_at_a_time",
]

SECRET = "s3cr3t"  # every secret value in a run begins with it, and nothing else has it
ENCODED = b64encode(SECRET.encode()).decode()  # how such a value begins in a Secret
LEASES = "leases.coordination.k8s.io"
FAILURES = 12  # of the same request in one fault, however short it is…
FAILURES_PER_SECOND = 3.0  # …and for each second that it lasts
GROWTH = 6  # series or objects more after churn: an error that is counted for the first time; half the objects of churn
CONNECTIONS = 60  # that a replica may try in one fault, however short it is…
CONNECTIONS_PER_SECOND = 20.0  # …and for each second that it lasts


class Act(msgspec.Struct, frozen=True):
    """Something that an operator did and that must not happen twice, such as a restart."""

    key: str  # of the object it was done to
    place: int
    effect: str  # what it brought about: two acts in a row with the same effect are one too many
    title: str = ""


class Cause(msgspec.Struct, frozen=True):
    """A change that entitles an operator to one act."""

    key: str
    place: int


def nothing_lost(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """In the end everything is as users asked."""
    return [f"lost: {problem}" for problem in history.unmet]


def nothing_done_twice(_history: History, acts: list[Act], _causes: list[Cause]) -> list[str]:
    """No act has the effect that the act before it had already."""
    found, last = [], dict[str, Act]()
    for act in sorted(acts, key=lambda act: act.place):
        if act.key in last and last[act.key].effect == act.effect:
            found.append(f"doubled: {act.title or act.key} at {last[act.key].place} and again at {act.place}")
        last[act.key] = act
    return found


def no_act_without_cause(_history: History, acts: list[Act], causes: list[Cause]) -> list[str]:
    """There are never more acts than causes before them."""
    found, done = [], Counter[str]()
    for act in sorted(acts, key=lambda act: act.place):
        done[act.key] += 1
        before = sum(1 for cause in causes if cause.key == act.key and cause.place < act.place)
        if done[act.key] > before:
            found.append(f"no cause: {act.title or act.key} at {act.place} is act {done[act.key]} for {before} causes")
    return found


def one_writer_at_a_time(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """Where a leader is elected, only the replica that wrote the Lease last writes anything else."""
    found, leader = [], ""
    if not any(version.resource == LEASES and history.by_operator(version.writer) for version in history.versions):
        return []
    for version in history.versions:
        if not history.by_operator(version.writer) or version.resource.startswith("events"):
            continue
        if version.resource == LEASES:
            leader = version.writer
        elif version.writer != leader:
            what = f"{version.resource}/{version.name}"
            found.append(f"two writers: {version.writer} wrote {what} at {version.place} while {leader or 'none'} led")
    return found


def no_write_at_rest(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """When everything is as it should be, nothing is written, whatever changes that does not matter."""
    if history.rest is None:
        return []
    late = [write for write in history.operator_writes() if write.place > history.rest]
    return [f"at rest: {write.verb} {write.resource}/{write.name} at {write.place}" for write in late]


def no_secret_value(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """The value of a Secret is in Secrets and nowhere else: no object, no address, no log."""
    found = [
        f"secret value: in {version.resource}/{version.name} at {version.place}"
        for version in history.versions
        if version.resource != "secrets" and _is_secret(json.dumps(version.object))
    ]
    found += [f"secret value: in {request.path}" for request in history.requests if _is_secret(request.path)]
    return found + [f"secret value: in the log line {line}" for line in history.logs if _is_secret(line)]


def _is_secret(text: str) -> bool:
    return SECRET in text or ENCODED in text


def bounded_requests(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """During a fault nothing is asked in a tight loop: every repetition waits, and waits longer."""
    found = []
    for fault in history.faults:
        seconds = fault.ended - fault.began
        failures: Counter[tuple[str, ...]] = Counter(
            (request.agent, request.verb, request.resource, request.namespace, request.name)
            for request in history.requests
            if request.failed
            and request.status not in (404, 409)
            and history.by_operator(request.agent)
            and fault.began <= request.at <= fault.ended
        )
        for what, count in failures.items():
            if count > FAILURES + FAILURES_PER_SECOND * seconds:
                found.append(
                    f"too many requests: {' '.join(what)} failed {count} times in {seconds:.1f} s {fault.name}"
                )
        if fault.connections > CONNECTIONS + CONNECTIONS_PER_SECOND * seconds:
            tried = f"{fault.target} tried {fault.connections} connections in {seconds:.1f} s {fault.name}"
            found.append(f"too many requests: {tried}")
    return found


def no_answer_from_the_past(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """No serial and no value is older than one that the same server answered before, whatever it lost meanwhile."""
    found, newest = [], dict[tuple[str, str], int]()
    for answer in history.answers:
        key = answer.server, answer.what
        if key in newest and (answer.number is None or answer.number < newest[key]):
            now = "nothing" if answer.number is None else answer.number
            found.append(f"stale: {answer.server} answered {answer.what} {newest[key]}, and then {now}")
        if answer.number is not None:
            newest[key] = answer.number
    return found


def no_new_serial_at_rest(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """When everything is as it should be, name servers are not written either."""
    if history.rest is None:
        return []
    serials: dict[str, set[int | None]] = defaultdict(set)
    for answer in history.answers:
        if answer.what == "serial" and answer.place >= history.rest:
            serials[answer.server].add(answer.number)
    return [
        f"at rest: {server} had the serials {sorted(map(str, all_))}"
        for server, all_ in serials.items()
        if len(all_) > 1
    ]


def bounded_memory(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """Of objects that came and went nothing is kept: no metric series, no key in a queue, no object in a cache."""
    found, before = [], {footprint.agent: footprint for footprint in history.before_churn}
    for now in history.after_churn:
        was = before.get(now.agent, now)
        found += [
            f"memory: {now.agent} had {had} {what}, and {has} after churn"
            for what, had, has in (("series", was.series, now.series), ("cached objects", was.cached, now.cached))
            if has > had + GROWTH
        ]
        if now.queued:
            found.append(f"memory: {now.agent} has {now.queued} keys in its queues at rest")
    return found


def no_failed_process(history: History, _acts: list[Act], _causes: list[Cause]) -> list[str]:
    """No fault ends a process, except that a leader which lost its Lease stops."""
    expected = ("", "crash", "restart", "lost leadership")
    return [f"failed: {life.agent} ended with {life.end}" for life in history.lives if life.end not in expected]


CHECKERS = (
    nothing_lost,
    nothing_done_twice,
    no_act_without_cause,
    one_writer_at_a_time,
    no_write_at_rest,
    no_secret_value,
    no_answer_from_the_past,
    no_new_serial_at_rest,
    bounded_requests,
    bounded_memory,
    no_failed_process,
)


def check(history: History, acts: Iterable[Act], causes: Iterable[Cause]) -> dict[str, list[str]]:
    """What every checker finds, by its name; those that find nothing are left out."""
    done, why = list(acts), list(causes)
    found: dict[str, list[str]] = defaultdict(list)
    for checker in CHECKERS:
        if findings := checker(history, done, why):
            found[checker.__name__] = findings
    return dict(found)
