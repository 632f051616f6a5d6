"""The pure parts of the chaos harness: schedules, history, checkers, shrinking, the report, and virtual time."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from steersman.apiserver import LogEntry
from tests.support.chaos import checkers
from tests.support.chaos.checkers import Act, Cause, check
from tests.support.chaos.history import FaultSpan, History, Life
from tests.support.chaos.operators import NAMES, subject
from tests.support.chaos.report import Outcome, render
from tests.support.chaos.schedule import FAULTS, HORIZON, generate, parse
from tests.support.chaos.shrinking import shrink
from tests.support.chaos.virtual_loop import VirtualLoop

LEASES = "leases.coordination.k8s.io"


def request(history, agent, resource, name, *, verb="patch", status=200, at=0.0, path="/"):
    entry = LogEntry("PATCH", path, verb, resource, "shop", name, "", "user", f"steersman/1 (linux) {agent}", status)
    history.add_request(entry, at)


def write(history, agent, resource, name, **content):
    """An object is stored, and then the request that did it is logged, as in the server."""
    obj = {"metadata": {"name": name, "namespace": "shop", "uid": name}, **content}
    history.add_version("MODIFIED", len(history.versions), resource, obj)
    request(history, agent, resource, name)


def findings(history, *, acts=(), causes=()):
    return [*check(history, acts, causes)]


# -- schedules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_follows_from_its_seed_and_survives_its_own_text(name):
    actions = subject(name).actions
    made = [generate(name, seed, actions) for seed in range(50)]
    assert made == [generate(name, seed, actions) for seed in range(50)]
    assert len({str(schedule.steps) for schedule in made}) == 50
    assert [parse(str(schedule)) for schedule in made] == made


def test_schedules_hold_every_fault_and_every_action_in_order_of_time():
    actions = subject("reload").actions
    made = [generate("reload", seed, actions) for seed in range(200)]
    seen = {step.name for schedule in made for step in schedule.steps}
    assert seen == {*FAULTS, *(choice.name for choice in actions)}
    assert all([*schedule.steps] == sorted(schedule.steps) for schedule in made)
    assert all(0 <= step.at <= HORIZON for schedule in made for step in schedule.steps)
    assert {schedule.replicas for schedule in made} == {1, 2}


@pytest.mark.parametrize("text", ["", "reload", "reload x with 1 replicas", "reload 1 with 1 replicas\nsoon cut it"])
def test_a_text_that_is_not_a_schedule_is_refused_with_the_line(text):
    with pytest.raises(ValueError, match=r'".*" (does not begin a schedule|is not a step) \(try'):
        parse(text)


def test_an_unknown_operator_is_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match=r'--operators: unknown operator "dsn" \(known: reload'):
        subject("dsn")


# -- the history ------------------------------------------------------------------------------------------------------


def test_a_version_is_attributed_to_the_request_that_wrote_it():
    history = History()
    history.add_version("DELETED", 1, "pods", {"metadata": {"name": "orphan", "namespace": "shop", "uid": "1"}})
    write(history, "operator-0-1", "configmaps", "app")
    write(history, "user", "configmaps", "app")
    assert [version.writer for version in history.versions] == ["", "operator-0-1", "user"]


def test_a_write_whose_answer_was_cut_is_attributed_too_and_one_that_failed_is_not():
    history = History()
    history.add_version("MODIFIED", 1, "configmaps", {"metadata": {"name": "app", "namespace": "shop", "uid": "1"}})
    request(history, "user", "configmaps", "app", status=409)
    request(history, "operator-0-1", "configmaps", "app", status=0)
    assert history.versions[0].writer == "operator-0-1"


# -- checkers: each finds what it is for, and nothing in a history without it -----------------------------------------


def test_an_unmet_expectation_is_lost():
    assert findings(History(unmet=["deployment/web was not restarted"])) == ["nothing_lost"]


def test_the_same_effect_twice_is_doubled_and_another_effect_is_not():
    causes = [Cause("web", 0)] * 3
    again = [Act("web", 1, "a"), Act("web", 2, "b"), Act("web", 3, "b")]
    assert findings(History(), acts=again, causes=causes) == ["nothing_done_twice"]
    apart = [Act("web", 1, "a"), Act("api", 2, "a"), Act("web", 3, "b")]
    assert findings(History(), acts=apart, causes=[*causes, Cause("api", 0)]) == []


def test_an_act_needs_a_cause_of_its_own_before_it():
    acts = [Act("web", 2, "a"), Act("web", 4, "b")]
    assert findings(History(), acts=acts, causes=[Cause("web", 1), Cause("web", 3)]) == []
    assert findings(History(), acts=acts, causes=[Cause("web", 1), Cause("web", 5)]) == ["no_act_without_cause"]
    assert findings(History(), acts=acts, causes=[Cause("web", 1), Cause("api", 1)]) == ["no_act_without_cause"]


def test_only_the_replica_that_wrote_the_lease_last_may_write():
    history = History()
    for agent in ("operator-0-1", "operator-1-1"):
        write(history, agent, LEASES, "leader")
        write(history, agent, "configmaps", "app")
        write(history, "user", "configmaps", "app")
    assert findings(history) == []
    write(history, "operator-0-1", "events", "app")
    assert findings(history) == []
    write(history, "operator-0-1", "configmaps", "app")
    assert findings(history) == ["one_writer_at_a_time"]


def test_without_an_election_every_replica_may_write():
    history = History()
    write(history, "operator-0-1", "configmaps", "app")
    assert findings(history) == []


def test_a_write_of_the_operator_after_everything_came_to_rest_is_found():
    history = History()
    write(history, "operator-0-1", LEASES, "leader")
    write(history, "operator-0-1", "configmaps", "app")
    history.rest = history.place
    write(history, "user", "configmaps", "app")
    write(history, "operator-0-1", LEASES, "leader")
    assert findings(history) == []
    request(history, "operator-0-1", "configmaps", "app")
    assert findings(history) == ["no_write_at_rest"]


@pytest.mark.parametrize("value", [f"{checkers.SECRET}-1", checkers.ENCODED + "LTE="])
def test_a_secret_value_outside_of_secrets_is_found_wherever_it_is(value):
    history = History()
    write(history, "user", "secrets", "db", data={"password": value})
    assert findings(history) == []
    in_object = History()
    write(in_object, "operator-0-1", "configmaps", "app", data={"copied": value})
    in_path = History()
    request(in_path, "operator-0-1", "configmaps", "app", path=f"/?note={value}")
    for leaked in (in_object, in_path, History(logs=[f"connected with {value}"])):
        assert findings(leaked) == ["no_secret_value"]


def test_repeating_a_request_in_a_tight_loop_during_a_fault_is_found():
    history = History(faults=[FaultSpan("503", "replica/0", 10.0, 12.0)])
    for number in range(18):
        request(history, "operator-0-1", "pods", "", verb="list", status=503, at=10 + number / 10)
    assert findings(history) == []
    request(history, "operator-0-1", "pods", "", verb="list", status=503, at=12.0)
    assert findings(history) == ["bounded_requests"]
    many = FaultSpan("refuse", "replica/0", 10.0, 12.0, connections=101)
    assert findings(History(faults=[many])) == ["bounded_requests"]


def test_a_process_may_end_by_a_crash_or_without_its_lease_and_not_by_an_error():
    ends = ("crash", "restart", "lost leadership", "")
    assert findings(History(lives=[Life("operator-0-1", 0.0, end=end) for end in ends])) == []
    assert findings(History(lives=[Life("operator-0-1", 0.0, end="KeyError('x')")])) == ["no_failed_process"]


# -- shrinking, the report, virtual time ------------------------------------------------------------------------------


async def test_shrinking_leaves_only_the_steps_that_are_needed_in_their_order():
    async def fails(steps):
        return {3, 17, 4} <= {*steps}

    assert await shrink(tuple(range(20)), fails) == (3, 4, 17)


async def test_shrinking_ends_after_so_many_attempts():
    tried = []

    async def fails(steps):
        tried.append(steps)
        return False

    assert await shrink(tuple(range(20)), fails, attempts=5) == tuple(range(20))
    assert len(tried) == 5


def test_the_report_has_a_row_for_each_operator_and_counts_what_was_found():
    fine = generate("reload", 1, subject("reload").actions)
    outcomes = [
        Outcome(schedule=fine, faults=3, changes=1200, processes=2, acts=4, recovery=12.3),
        Outcome(schedule=fine, faults=2, findings={"nothing_lost": ["lost: a", "lost: b"]}),
        Outcome(
            schedule=replace(fine, operator="dns"),
            recovery=1.0,
            findings={"nothing_done_twice": ["a"], "no_act_without_cause": ["b"], "no_secret_value": ["c"]},
        ),
    ]
    _, _, dns, reload, everything = render(outcomes).splitlines()
    assert dns == "| dns | 1 | 0 | 0 | 0 | 0 | 0 | 2 | 1 | 1 s |"
    assert reload == "| reload | 2 | 5 | 1,200 | 2 | 4 | 2 | 0 | 0 | 12 s |"
    assert everything == "| all | 3 | 5 | 1,200 | 2 | 4 | 2 | 2 | 1 | 12 s |"


def test_an_hour_of_virtual_time_is_over_at_once_and_nothing_is_late():
    async def hour():
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(*address)
        start = loop.time()
        await asyncio.sleep(3600)
        woken = loop.time() - start
        writer.write(b"still here\n")
        assert await asyncio.to_thread(lambda: "from a thread") == "from a thread"
        assert loop.time() - start == woken, "time passed while a thread was at work"
        answer = await reader.readline()
        writer.close()
        return woken, answer

    async def serve(reader, writer):
        writer.write(await reader.readline())
        writer.close()

    async def main():
        nonlocal address
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            return await hour()

    address = None
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == (3600, b"still here\n")
