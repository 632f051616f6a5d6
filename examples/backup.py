"""Archives of a volume on a schedule: Jobs, retention, status, Events, a finalizer and a webhook.

At every time of its schedule a Backup runs a Job that writes an archive of one claim to another, and removes archives
beyond `spec.keep`. Runs never overlap, and of several missed ones only the last is made up for. See docs/backup.md.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

import steersman as sm

FINALIZER = "example.org/archives"
LABEL = "example.org/backup"
ARCHIVE = 'tar -czf "$TO/$NAME.part" -C /source . && mv "$TO/$NAME.part" "$TO/$NAME.tar.gz"'
PRUNE = 'ls -1r "$TO"/*.tar.gz | tail -n "+$((KEEP + 1))" | xargs -r rm --'


class Backup(sm.Resource, group="example.org", version="v1", short_names=("bkp",)):
    """Archives of a volume, made on a schedule."""

    class Spec(sm.Struct):
        """What to archive, when, and how many archives to keep."""

        source: Annotated[str, sm.Immutable(), sm.Selectable(), sm.Column("Source")]
        """Name of the PersistentVolumeClaim to archive, in the same namespace."""
        target: Annotated[str, sm.Immutable()]
        """Name of the PersistentVolumeClaim that the archives are written to, in a folder of the Backup's name."""
        schedule: Annotated[str, sm.Column("Schedule")]
        """When to make an archive, in five cron fields: minute, hour, day, month, weekday."""
        time_zone: str = "UTC"
        """Time zone of the schedule, such as `Europe/Berlin`."""
        keep: Annotated[int, sm.Ge(1), sm.Le(100)] = 7
        """How many archives to keep. The oldest are removed after a successful run."""
        on_delete: Literal["Keep", "Delete"] = "Keep"
        """Whether the archives stay when the Backup is deleted."""
        image: str = "busybox:1.37"
        """Image with `sh`, `tar` and `xargs` that the Jobs run."""

    class Status(sm.Struct):
        """What the operator observed."""

        last_run: Annotated[str | None, sm.Format("date-time"), sm.Column("Last run", type="date")] = None
        """The time of the schedule that the last Job was started for."""
        conditions: list[sm.Condition] | None = None
        """`Ready` says how the last run ended."""

    spec: Spec
    status: Status = Status()


@sm.validate(Backup)
async def schedules_can_be_read(request: sm.AdmissionRequest[Backup]) -> None:
    """A schedule that never comes would look like one that works, so it is refused before it is stored."""
    try:
        if request.new is not None:
            next(runs(request.new, datetime.now(UTC)))
    except (CronSimError, KeyError, OSError, StopIteration, ValueError) as error:
        raise sm.Denied(f"never comes: {error} (try 0 2 * * * in UTC)", field="spec.schedule") from None


class Plan(sm.Struct, frozen=True):
    """What one look at a Backup and its Jobs comes to."""

    start: datetime | None  # the run that begins now
    next: datetime  # the next time of the schedule
    surplus: list[sm.Job]  # Jobs that ended long ago
    outcome: sm.Condition | None  # of the last run that ended


def runs(backup: Backup, start: datetime, *, reverse: bool = False) -> CronSim:
    """The times of the schedule after `start`, or before it, newest first."""
    return CronSim(backup.spec.schedule, start.astimezone(ZoneInfo(backup.spec.time_zone)), reverse=reverse)


def plan(backup: Backup, jobs: list[sm.Job], now: datetime) -> Plan:
    """Pure: tests call it with any time and any Jobs."""
    ended = sorted((job for job in jobs if result_of(job)), key=lambda job: job.name, reverse=True)
    last = datetime.fromisoformat(backup.status.last_run) if backup.status.last_run else backup.created or now
    due = next(runs(backup, now + timedelta(seconds=1), reverse=True))
    return Plan(
        start=due if due > last and len(ended) == len(jobs) else None,
        next=next(runs(backup, now)),
        surplus=ended[backup.spec.keep :],
        outcome=result_of(ended[0]) if ended else None,
    )


def result_of(job: sm.Job) -> sm.Condition | None:
    """How a Job ended, as the condition of its Backup; None while it runs."""
    for row in job.status.conditions:
        if row.status == "True" and row.type in ("Complete", "Failed"):
            reason = "Archived" if row.type == "Complete" else "BackupFailed"
            return sm.new_condition("Ready", row.type == "Complete", reason, f"job/{job.name} {row.message}".strip())
    return None


async def reconcile(ctx: sm.Context, backup: Backup) -> sm.Result:
    """Start the run that is due, remove old Jobs, and say how the last run ended."""
    now, status = datetime.fromtimestamp(ctx.clock.time(), UTC), backup.status
    jobs = ctx.cache[sm.Job].list(namespace=backup.namespace)
    step = plan(backup, [job for job in jobs if job.labels.get(LABEL) == backup.name], now)
    if step.start is not None:
        await ctx.apply(job := job_for(backup, f"{step.start.astimezone(UTC):%Y%m%d-%H%M}", ARCHIVE, PRUNE))
        ctx.event(backup, "Started", f"job/{job['metadata']['name']}")
    for old in step.surplus:
        await ctx.delete(old, propagation="Background")
    conditions = status.conditions
    if step.outcome is not None:
        if sm.is_news(sm.find_condition(conditions, "Ready"), step.outcome):
            ctx.event(backup, step.outcome.reason, step.outcome.message, warning=step.outcome.status == "False")
        conditions = sm.set_conditions(conditions, step.outcome, now=ctx.clock.time())
    last = step.start.isoformat() if step.start else status.last_run
    await ctx.status(backup, last_run=last, conditions=conditions)
    return sm.requeue(after=(step.next - now).total_seconds())


async def clean_up(ctx: sm.Context, backup: Backup) -> sm.Result:
    """Before a Backup goes: remove its archives if that was asked for, and wait until they are gone."""
    if backup.spec.on_delete == "Keep":
        return sm.done
    await ctx.apply(cleaner := job_for(backup, "cleanup", 'rm -rf -- "$TO"'))
    live = ctx.cache[sm.Job].get(sm.NamespacedName(cleaner["metadata"]["name"], backup.namespace))
    return sm.done if live is not None and result_of(live) else sm.requeue(after=60)


def job_for(backup: Backup, run: str, *commands: str) -> dict[str, Any]:
    """The Job that runs the commands; equal runs have equal names, so none is started twice."""
    meta = {"name": f"{backup.name}-{run}", "namespace": backup.namespace, "labels": {LABEL: backup.name}}
    claims = {"source": backup.spec.source, "target": backup.spec.target}
    variables = {"NAME": meta["name"], "TO": f"/target/{backup.name}", "KEEP": str(backup.spec.keep)}
    container = {
        "name": "archive",
        "image": backup.spec.image,
        "command": ["sh", "-ec", "\n".join(['mkdir -p "$TO"', *commands])],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in claims],
    }
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claims.items()]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    spec = {"backoffLimit": 2, "template": {"metadata": {"labels": meta["labels"]}, "spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def controllers() -> list[sm.Controller]:
    """What `steersman run` runs."""
    watched = sm.Controller(Backup, reconcile).when(sm.generation | sm.deletion_started).owns(sm.Job)
    return [watched.finalizer(FINALIZER, clean_up)]
