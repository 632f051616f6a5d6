"""The pure parts of the chaos harness: schedules, history, checkers, shrinking, the report, and virtual time."""

from __future__ import annotations

import asyncio
from contextvars import copy_context

import pytest
from msgspec.structs import replace

from steersman.apiserver import LogEntry
from tests.support.chaos import checkers
from tests.support.chaos.checkers import Act, Cause, check
from tests.support.chaos.history import Answer, FaultSpan, Footprint, History, Life
from tests.support.chaos.load import LoadResult, queued_keys, render_load
from tests.support.chaos.operators import NAMES, subject
from tests.support.chaos.report import Outcome, render, render_faults
from tests.support.chaos.schedule import FAULTS, HORIZON, REAL_HORIZON, generate, generate_real, parse
from tests.support.chaos.shrinking import shrink
from tests.support.chaos.virtual_loop import PROCESS, VirtualLoop

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
    chosen = subject("dns")
    made = [generate("dns", seed, chosen.actions, chosen.faults) for seed in range(300)]
    seen = {step.name for schedule in made for step in schedule.steps}
    assert seen == {*FAULTS, *(choice.name for choice in chosen.actions)} - {"server-restart"}  # of the real server
    assert all([*schedule.steps] == sorted(schedule.steps) for schedule in made)
    assert all(0 <= step.at <= HORIZON for schedule in made for step in schedule.steps)
    assert {schedule.replicas for schedule in made} == {1, 2}


def test_schedules_for_processes_have_two_of_them_and_only_faults_that_processes_can_have():
    chosen = subject("dns")
    made = [generate_real("dns", seed, chosen.actions, chosen.faults) for seed in range(100)]
    assert [parse(str(schedule)) for schedule in made] == made
    seen = {step.name for schedule in made for step in schedule.steps if step.is_fault}
    assert seen == {"crash", "restart", "pause", "server-restart", *(choice.name for choice in chosen.faults)}
    assert all(schedule.replicas == 2 and schedule.steps[-1].at <= REAL_HORIZON for schedule in made)


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


def test_an_answer_older_than_one_before_it_is_found_for_each_server_and_record():
    growing = [Answer(1, "ns0", "serial", 4), Answer(2, "ns1", "serial", 3), Answer(3, "ns0", "t0", 1)]
    assert findings(History(answers=growing)) == []
    for last in (Answer(4, "ns0", "serial", 3), Answer(4, "ns0", "t0", None)):
        assert findings(History(answers=[*growing, last])) == ["no_answer_from_the_past"]


def test_a_serial_that_moves_at_rest_is_found():
    answers = [Answer(1, "ns0", "serial", 4), Answer(5, "ns0", "serial", 5), Answer(6, "ns0", "serial", 5)]
    assert findings(History(answers=answers, rest=5)) == []
    assert findings(History(answers=answers, rest=1)) == ["no_new_serial_at_rest"]


def test_what_a_process_keeps_of_objects_that_are_gone_is_found():
    before = [Footprint("operator-0-1", series=100, queued=3, cached=20)]
    for now, found in (
        (Footprint("operator-0-1", series=106, queued=0, cached=20), []),
        (Footprint("operator-0-1", series=112, queued=0, cached=20), ["bounded_memory"]),
        (Footprint("operator-0-1", series=100, queued=0, cached=32), ["bounded_memory"]),
        (Footprint("operator-0-1", series=100, queued=1, cached=20), ["bounded_memory"]),
        (Footprint("operator-0-2", series=300, queued=0, cached=20), []),  # it began meanwhile
    ):
        assert findings(History(before_churn=before, after_churn=[now])) == found


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


def test_the_report_of_a_load_has_the_rate_as_it_was_and_what_failed():
    result = LoadResult(seconds=30.0, changes=2500, lost=["web-1"], backlog=7, probes=100, slowest_probe=0.25)
    result.failed_probes["/readyz 500"] += 2
    text = render_load(result)
    assert "| duration | 30 s |" in text
    assert "| changes made | 2,500 (5,000 a minute) |" in text
    assert "| lost | 1 |" in text
    assert "| most keys in the queues | 7 of 50 workloads |" in text
    assert "| probes, metrics and page | 100 asked, 2 failed, slowest 0.25 s |" in text


def test_the_backlog_is_the_sum_of_all_queues():
    metrics = 'workqueue_depth{name="a",priority="0"} 3.0\nworkqueue_depth{name="b",priority="0"} 4.0\nother 9.0\n'
    assert queued_keys(metrics) == 7


def test_the_report_counts_each_fault():
    made = parse(
        "reload 1 with 1 replicas\n1.00 edit configmap/app-0\n2.00 cut replica/0 0.10\n3.00 cut replica/0 0.20\n"
    )
    *_, row = render_faults([Outcome(schedule=made)]).splitlines()
    assert row == "| cut | 2 | every connection is closed |"


def virtual_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def test_a_process_that_is_stopped_does_nothing_until_it_goes_on_and_others_do():
    done = []

    async def process(name, reader):
        await asyncio.sleep(1)
        done.append(f"{name} woke")
        done.append(f"{name} read {await reader.readline()}")

    async def main():
        loop, writers = virtual_loop(), []
        connected = asyncio.Semaphore(0)

        def accept(_reader, writer):
            writers.append(writer)
            connected.release()

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            tasks = []
            for name in ("stopped", "other"):
                context = copy_context()
                context.run(PROCESS.set, name)
                opening = asyncio.open_connection(*server.sockets[0].getsockname())
                reader, writer = await asyncio.create_task(opening, context=context)
                tasks.append((asyncio.create_task(process(name, reader), context=context), writer))
                await connected.acquire()
            loop.stop_process("stopped")
            for writer in writers:
                writer.write(b"x\n")
            await asyncio.sleep(60)
            assert done == ["other woke", "other read b'x\\n'"]
            loop.continue_process("stopped")
            await asyncio.gather(*(task for task, _ in tasks))
            assert done[2:] == ["stopped woke", "stopped read b'x\\n'"]
            for writer in (*writers, *(writer for _, writer in tasks)):
                writer.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def test_while_the_time_is_held_none_passes():
    async def main():
        loop, holder = virtual_loop(), object()
        sleeping = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        loop.hold(holder)
        before = loop.time()
        await asyncio.to_thread(lambda: None)
        assert not sleeping.done()
        assert loop.time() == before
        loop.release(holder)
        await sleeping
        assert loop.time() == before + 60

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


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


def test_a_run_that_never_rests_ends_after_its_cpu_time():
    async def never_rests():
        while True:  # noqa: ASYNC110  that is what it is for
            await asyncio.sleep(0)

    with (
        pytest.raises(TimeoutError, match="CPU time"),
        asyncio.Runner(loop_factory=lambda: VirtualLoop(cpu_seconds=0.01)) as runner,
    ):
        runner.run(never_rests())
