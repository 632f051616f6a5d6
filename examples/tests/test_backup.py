"""The backup operator: its plan at any time, and on both servers with time that the test moves."""

from datetime import UTC, datetime

import pytest

import steersman as sm
from steersman.kube.api.types import JobCondition, JobStatus
from steersman.testing import VirtualClock, eventually, running_least_privilege

NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
ENDED = dict.fromkeys(("startTime", "completionTime"), "2026-03-01T02:00:00Z")
COMPLETE = {**ENDED, "conditions": [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]}


def backup(example, namespace="shop", last_run=None, **spec):
    meta = sm.ObjectMeta(name="db", namespace=namespace, creation_timestamp="2026-02-28T12:00:00Z")
    spec = {"source": "data", "target": "archives", "schedule": "0 2 * * *", **spec}
    status = example.Backup.Status(last_run=last_run)
    return example.Backup(metadata=meta, spec=example.Backup.Spec(**spec), status=status)


def job(name, ended=""):
    rows = [JobCondition(type=ended, status="True")] if ended else []
    return sm.Job(metadata=sm.ObjectMeta(name=name), status=JobStatus(conditions=rows))


@pytest.mark.parametrize(
    ("now", "last_run", "jobs", "starts"),
    [
        (NIGHT.replace(hour=1), None, [], None),
        (NIGHT, None, [], NIGHT),
        (NIGHT.replace(day=9, hour=5), None, [], NIGHT.replace(day=9)),  # only the last of those that were missed
        (NIGHT.replace(hour=3), NIGHT.isoformat(), [], None),
        (NIGHT, None, [job("db-1")], None),  # another run is not finished
        (NIGHT, None, [job("db-1", "Failed")], NIGHT),
    ],
)
def test_a_run_starts_when_it_is_due_and_no_other_runs(example, now, last_run, jobs, starts):
    assert example.plan(backup(example, last_run=last_run), jobs, now).start == starts


def test_as_many_jobs_as_archives_are_kept_and_the_newest_says_how_it_is_going(example):
    jobs = [job("db-1", "Complete"), job("db-3", "Failed"), job("db-2", "Complete")]
    step = example.plan(backup(example, keep=2), jobs, NIGHT)
    assert ([old.name for old in step.surplus], step.outcome.status) == (["db-1"], "False")


@pytest.mark.parametrize("wrong", [{"schedule": "0 25 * * *"}, {"schedule": "0 0 31 2 *"}, {"time_zone": "Mars"}])
async def test_a_schedule_that_never_comes_is_refused(installed, steersman_webhooks, client, cluster, namespace, wrong):
    await steersman_webhooks(installed.schedules_can_be_read)
    await eventually(lambda: client.create(backup(installed, namespace)))
    with pytest.raises(sm.Invalid, match=r"spec\.schedule: never comes"):
        await client.create(backup(installed, namespace, **wrong))


async def test_a_backup_runs_by_the_clock_and_removes_its_archives_first(installed, client, cluster, namespace):
    made = await client.create(backup(installed, namespace, schedule="*/5 * * * *", on_delete="Delete"))
    clock, told = VirtualClock(time=made.created.timestamp()), set()

    async def newest(count):
        await clock.advance(60)
        names = sorted(job.name for job in (await client.list(sm.Job, namespace=namespace)).items)
        return names[-1] if len(names) == count else None

    async def reports(*wanted):
        backups, events = [await client.list(kind, namespace=namespace) for kind in (installed.Backup, sm.Event)]
        messages = [row.message for live in backups.items for row in live.status.conditions or ()]
        return messages == list(wanted) and {f"{event.reason} {event.message}" for event in events.items} == told

    async with running_least_privilege(cluster, installed.controllers()[0], namespace=namespace, clock=clock):
        for count in (1, 2):
            name = await eventually(lambda count=count: newest(count))
            await client.patch(sm.Job, name, {"status": COMPLETE}, namespace=namespace, subresource="status")
            told |= {f"Started job/{name}", f"Archived job/{name}"}
            await eventually(lambda name=name: reports(f"job/{name}"))
        await client.delete(installed.Backup, "db", namespace=namespace)
        assert await eventually(lambda: newest(3)) == "db-cleanup"
        await client.patch(sm.Job, "db-cleanup", {"status": COMPLETE}, namespace=namespace, subresource="status")
        await eventually(reports)
