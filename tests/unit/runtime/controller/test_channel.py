"""Keys that no watch brings."""

from __future__ import annotations

import asyncio
import threading

import pytest

from steersman.runtime.controller.channel import Channel


def test_what_is_sent_early_reaches_the_first_queue_once():
    channel, seen = Channel(), []
    channel.send("a")
    channel.send("a")
    channel.connect(lambda key, after: seen.append((key, after)))
    channel.send("b", after=3.0)
    assert seen == [("a", None), ("b", 3.0)]


@pytest.mark.parametrize(
    ("sent", "handed_over"),
    [
        ((None, 600.0), None),
        ((600.0, None), None),
        ((600.0, 5.0), 5.0),
        ((5.0, 600.0), 5.0),
    ],
)
def test_of_what_is_sent_early_about_one_key_the_soonest_counts_as_in_a_queue(sent, handed_over):
    channel, seen = Channel(), []
    for after in sent:
        channel.send("a", after=after)
    channel.connect(lambda key, after: seen.append((key, after)))
    assert seen == [("a", handed_over)]


def test_what_is_sent_early_is_handed_over_in_the_order_in_which_it_was_sent():
    channel, seen = Channel(), []
    for key in ("a", "b", "c"):
        channel.send(key)
    channel.connect(lambda key, after: seen.append(key))
    assert seen == ["a", "b", "c"]


async def test_what_a_thread_sends_is_added_on_the_event_loop_in_its_order():
    channel, seen, loop = Channel(), [], asyncio.get_running_loop()
    finished = asyncio.Event()

    def add(key, after):
        assert asyncio.get_running_loop() is loop
        seen.append((key, after))
        if key == "last":
            finished.set()

    channel.connect(add)

    def work():
        for number in range(100):
            channel.send(number, after=1.0)
        channel.send("last")

    thread = threading.Thread(target=work)
    thread.start()
    await finished.wait()
    thread.join()
    assert seen == [*((number, 1.0) for number in range(100)), ("last", None)]


async def test_no_key_is_lost_when_threads_send_while_a_queue_is_connected():
    for _ in range(50):
        channel, seen = Channel(), set()
        start = threading.Barrier(5)

        def work(first, channel=channel, start=start):
            start.wait()
            for number in range(first, first + 20):
                channel.send(number)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 80, 20)]
        for thread in threads:
            thread.start()
        start.wait()
        channel.connect(lambda key, after, seen=seen: seen.add(key))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)
        assert seen == set(range(80))


def test_a_queue_whose_loop_has_ended_is_let_go_and_the_next_one_gets_what_is_sent():
    channel, first, second = Channel(), [], []

    async def connect(seen):
        channel.connect(lambda key, after: seen.append(key))

    asyncio.run(connect(first))
    channel.send("lost with its controllers")
    channel.send("early")
    asyncio.run(connect(second))
    assert (first, second) == ([], ["early"])
