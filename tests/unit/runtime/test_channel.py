"""Keys that no watch brings."""

from __future__ import annotations

from steersman.runtime.channel import Channel


def test_what_is_sent_early_reaches_the_first_queue_once():
    channel, seen = Channel(), []
    channel.send("a")
    channel.send("a")
    channel.connect(lambda key, after: seen.append((key, after)))
    channel.send("b", after=3.0)
    assert seen == [("a", None), ("b", 3.0)]
