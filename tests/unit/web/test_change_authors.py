from __future__ import annotations

import asyncio

from steersman.kube.api.objects import ManagedFieldsEntry
from steersman.testing import eventually
from steersman.testing.clock import VirtualClock
from steersman.web.change_authors import ChangeAuthors, who


def wrote(manager, at, *keys):
    return ManagedFieldsEntry(manager=manager, time=at, fields_v1={"f:data": {f"f:{key}": {} for key in keys}})


ENTRIES = [
    wrote("helm", "2026-11-16T12:00:00Z", "mode", "level"),
    wrote("kubectl-edit", "2026-11-16T12:00:05Z", "mode"),
    wrote("tuner", "2026-11-16T12:00:09Z", "other"),
    ManagedFieldsEntry(manager="labeller", time="2026-11-16T12:00:09Z", fields_v1={"f:metadata": {}}),
]
AT = 1794830407  # 12:00:07


def test_the_managers_of_the_changed_keys_are_named_the_latest_first():
    assert who(ENTRIES, ["mode"], 0) == ["kubectl-edit", "helm"]
    assert who(ENTRIES, ["level"], 0) == ["helm"]
    assert who(ENTRIES, ["gone"], 0) == []
    assert who(ENTRIES, [], 0) == ["tuner", "kubectl-edit", "helm"]


def test_no_writer_is_named_for_a_change_that_was_written_over():
    assert who(ENTRIES, ["mode"], AT) == ["kubectl-edit", "helm"]
    assert who(ENTRIES, ["mode"], AT - 3) == []


class Cluster:
    def __init__(self):
        self.reads = 0

    async def get(self, kind, name, *, namespace):
        self.reads += 1
        found = kind()
        found.metadata.managed_fields = ENTRIES
        return found


async def test_a_change_is_asked_about_once_and_only_when_it_is_needed(snapshot):
    cluster = Cluster()
    authors = ChangeAuthors(cluster, clock=VirtualClock())
    running = asyncio.create_task(authors.run())
    try:
        assert cluster.reads == 0
        for _ in range(3):
            authors.complete(snapshot)
            await eventually(lambda: authors.learned == cluster.reads > 0)
        reads = cluster.reads
        authors.complete(snapshot)
        await asyncio.sleep(0)
        assert 0 < reads == cluster.reads
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
