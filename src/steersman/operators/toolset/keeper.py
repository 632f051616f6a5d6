"""The reconciler: one key is one ConfigMap (with its parts), one reconcile is look → plan → apply → tell.

Everything it decides comes from pure modules; what it remembers (answers of services, what was told) only saves
questions. After a restart the same ConfigMaps follow from what the cluster holds.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from steersman.kube.errors import AlreadyExists, Forbidden, NotFound
from steersman.kube.resources import ObjectRef
from steersman.kube.times import format_time
from steersman.operators.toolset.apply import (
    AGAIN_SECONDS,
    ConflictsExhausted,
    carry_out,
    claim,
    delete,
    on_schedule,
    restore,
)
from steersman.operators.toolset.backup import Backup, backup_ref, desired_backup, read_backup
from steersman.operators.toolset.detection import Verdict, detect
from steersman.operators.toolset.health import Book, Observed
from steersman.operators.toolset.held import Held
from steersman.operators.toolset.layout import part_name, size_of
from steersman.operators.toolset.look import Look, Problem, Standing, look_at
from steersman.operators.toolset.notify import Notifier
from steersman.operators.toolset.objects import ServiceLook, SliceLook, TargetMap, ToolsetConfig
from steersman.operators.toolset.plan import LABELS, Desired, ObjectPlan, Operation
from steersman.operators.toolset.report import Reporter, report_status
from steersman.operators.toolset.sight import record_of, services_in, sight_of
from steersman.operators.toolset.stand import Stand, is_ours, stand_of
from steersman.operators.toolset.steps import Step, digest_of, drift_of, plan_target
from steersman.operators.toolset.targets import find_targets
from steersman.operators.toolset.views import TargetView, services_of, toolsets_of
from steersman.runtime.channel import Channel
from steersman.runtime.result import Result, done, requeue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from steersman.operators.toolset.detection import Candidate
    from steersman.operators.toolset.metrics import ToolsetMetrics
    from steersman.operators.toolset.sight import Sight
    from steersman.operators.toolset.types import Settings
    from steersman.runtime.context import Context

__all__ = ["Keeper", "ProbeKey"]

UNSETTLED_SECONDS: Final = 30.0  # until the next look when something was wrong
BLIND_SECONDS: Final = 5.0  # when not everything can be seen, and before that is told
REFUSED_SECONDS: Final = 60.0  # when the server does not let us


class ProbeKey(msgspec.Struct, frozen=True):
    """One service, as one target asks it."""

    target: ObjectRef
    service: ObjectRef


class Keeper:
    """Keeps the ConfigMaps of all targets true."""

    def __init__(self, settings: Settings, metrics: ToolsetMetrics, *, crd: bool = False) -> None:
        self.file = settings
        self.metrics = metrics
        self.crd = crd  # whether the cluster has ToolsetConfigs
        self.targets = find_targets(settings, ())
        self.changed = Channel()  # keys: targets
        self.probes = Channel()  # keys: ProbeKey
        self.book = Book()
        self.held = Held(self.changed.send)
        self.candidates: dict[ObjectRef, dict[ObjectRef, Candidate]] = {}
        self.views: dict[ObjectRef, TargetView] = {}
        self.looks: dict[ObjectRef, Look] = {}
        self.reporter = Reporter(metrics)
        self.notifier = Notifier(metrics)
        self._verdicts: dict[ObjectRef, dict[str, tuple[str, Settings, Verdict]]] = {}
        self._dim: dict[ObjectRef, float] = {}  # since when (monotonic) a target does not see everything
        self._record: dict[ObjectRef, str | None] = {}  # what the next process should know of the Services
        self._searched: set[ObjectRef] = set()  # targets whose parts of an earlier process were looked for
        self._conflicts: Counter[ObjectRef] = Counter()

    # -- whose keys a change touches -----------------------------------------------------------------------------------

    def everything(self, _obj: object) -> Iterable[ObjectRef]:
        """A Service may matter to any target."""
        return tuple(self.targets.settings)

    def users_of(self, piece: SliceLook) -> Iterable[ObjectRef]:
        """The targets for which the Service of a slice is a candidate."""
        ref = ObjectRef(piece.service, piece.namespace)
        return [target for target, known in self.candidates.items() if ref in known]

    def claimed(self, config: ToolsetConfig) -> Iterable[ObjectRef]:
        """The ConfigMap that a ToolsetConfig names, and all that are kept now: it may take one's place."""
        claims = find_targets(self.file, [config])
        return {*claims.settings, *(claim.target for claim in claims.claims), *self.targets.settings}

    # -- a reconcile ---------------------------------------------------------------------------------------------------

    async def reconcile(self, ctx: Context, key: ObjectRef) -> Result:
        """Look at one target, and make it so."""
        began = ctx.clock.monotonic()
        self.targets = find_targets(self.file, ctx.cache[ToolsetConfig].list() if self.crd else ())
        settings = self.targets.settings.get(key)
        if settings is None:
            self._forget(key)
            await report_status(ctx, self.targets, key, None)
            return done
        try:
            result = await on_schedule(
                ctx.clock,
                lambda number: self._attempt(ctx, key, settings, fresh=number > 1),
                met=lambda: self._met_conflict(key),
            )
        except ConflictsExhausted as error:
            self.metrics.conflicts.labels("exhausted").inc()
            self.metrics.reconciles.labels(Operation.UPDATE, "failure").inc()
            ctx.log.warning("conflicts exhausted", component="reconciliation", configmap=str(key), error=str(error))
            self.reporter.tell(ctx, key, self._subject(key), "ConflictRetriesExhausted", str(error), warning=True)
            return requeue(after=AGAIN_SECONDS)
        except (Forbidden, NotFound) as error:
            self.metrics.reconciles.labels(Operation.UPDATE, "failure").inc()
            ctx.log.warning("write refused", component="reconciliation", configmap=str(key), error=str(error))
            self._failed(key, str(error))
            await report_status(ctx, self.targets, key, self.views.get(key))
            return requeue(after=REFUSED_SECONDS)
        finally:
            self.metrics.duration.observe(ctx.clock.monotonic() - began)
        await report_status(ctx, self.targets, key, self.views.get(key))
        return result

    async def _attempt(self, ctx: Context, key: ObjectRef, settings: Settings, *, fresh: bool) -> Result:
        stand = await self._stand(ctx, key, settings, fresh=fresh)
        if stand.paused:
            self._paused(ctx, key, stand)
            return requeue(after=settings.discovery_interval)
        sight = self._sight(ctx, key, settings)
        if sight.unseen and stand.text and stand.backup.known is None:
            self._failed(key, sight.message)  # nobody knows what is there, and it may be what is written
            ctx.log.warning("waits for services", component="service_discovery", problem=sight.message)
            return requeue(after=BLIND_SECONDS)
        look, wait = self._look(ctx, key, settings, stand, sight)
        if look.oversized:
            self.reporter.problems(ctx, key, stand.base, look.problems)
            self._failed(key, "what is always there and other people's keys are larger than one ConfigMap may be")
            return requeue(after=UNSETTLED_SECONDS)
        stand = await self._restored(ctx, key, settings, stand)
        now = format_time(ctx.clock.time())
        conflicts = self._conflicts[key]
        steps = plan_target(look, stand, settings, manager=ctx.field_manager, now=now, conflicts=conflicts)
        self._view(ctx, key, look, stand, steps, sight)
        await self._carry_out(ctx, key, settings, stand, steps)
        await self._back_up(ctx, key, settings, stand, look)
        subject = self._subject(key)
        self.reporter.looked(look, settings)
        self.reporter.planned(ctx, key, subject, steps, look, split_before=bool(stand.parts))
        taken = [Problem("NameTaken", "", f"{one} is somebody else's, and stays as it is") for one in stand.taken]
        self.reporter.problems(ctx, key, subject, [*look.problems, *taken])
        self.reporter.services(ctx, key, subject, look, stand.text)
        due, noted = await self.notifier.run(ctx, settings, subject, digest=digest_of(steps, settings))
        if noted is not None:
            self.held.wrote(noted)
        well = look.settled and not sight.problems and not drift_of(steps)
        calm = BLIND_SECONDS if sight.dim else settings.discovery_interval if well else UNSETTLED_SECONDS
        return requeue(after=min(one for one in (calm, wait, due, settings.discovery_interval) if one is not None))

    # -- what is there -------------------------------------------------------------------------------------------------

    async def _stand(self, ctx: Context, key: ObjectRef, settings: Settings, *, fresh: bool) -> Stand:
        """The ConfigMaps of a target: from the watches, or from the server after a conflict."""

        async def get(ref: ObjectRef) -> TargetMap | None:
            known = await self.held.get(ctx, ref, key)
            return await self.held.read(ctx, ref) if fresh else known

        taken: list[str] = []

        def own(found: TargetMap | None) -> TargetMap | None:
            if found is None or is_ours(found, ctx.field_manager):
                return found
            taken.append(found.name)
            return None

        base = await get(key)
        backup = own(await get(backup_ref(key)))
        parts: dict[int, TargetMap] = {}
        number = 1
        while True:
            ref = ObjectRef(part_name(key.name, number), key.namespace)
            if key in self._searched and not self.held.watched(ref):
                break
            seen = await get(ref) if self.held.watched(ref) else await self.held.read(ctx, ref)
            if seen is not None:
                await get(ref)  # watched from now on: somebody's may go, and then the name is free
            elif key not in self._searched:
                self._searched.add(key)
                break
            if (found := own(seen)) is not None:
                parts[number] = found
            number += 1
        return stand_of(
            base,
            parts,
            read_backup(backup),
            last=self.held.last_of(key),
            backup_object=backup,
            settings=settings,
            taken=tuple(taken),
        )

    def _sight(self, ctx: Context, key: ObjectRef, settings: Settings) -> Sight:
        """How far we see; a connection that breaks and comes back is nobody's problem."""
        sight, now = sight_of(ctx, settings), ctx.clock.monotonic()
        if not sight.problems:
            self._dim.pop(key, None)
            return sight
        lasting = sight.unseen or now - self._dim.setdefault(key, now) >= BLIND_SECONDS
        return sight if lasting else replace(sight, problems=(), dim=True)

    def _look(
        self, ctx: Context, key: ObjectRef, settings: Settings, stand: Stand, sight: Sight
    ) -> tuple[Look, float | None]:
        """What follows from the Services, and when the next of them changes by time alone."""
        began = ctx.clock.monotonic()
        services = [*ctx.cache[ServiceLook].list(), *services_in(stand.backup.known or "[]", sight.unseen)]
        known_verdicts = self._verdicts.get(key, {})
        look = look_at(
            services,
            settings,
            observed=lambda one: self._counted(ctx, key, settings, one),
            standing=Standing(
                text=stand.text,
                overrides=stand.overrides,
                last_valid=stand.backup.last_valid,
                others=size_of(stand.foreign),
                places=stand.places,
                avoid=stand.taken_parts(key.name),
            ),
            verdict=lambda service: self._verdict(known_verdicts, service, settings),
        )
        look = replace(look, problems=(*look.problems, *sight.problems))
        self._record[key] = None
        if settings.namespaces is not None:
            taking_part = {one.candidate.key for one in look.taking_part}
            self._record[key] = record_of(one for one in services if (one.namespace, one.name) in taking_part)
        self._verdicts[key] = {
            one.metadata.uid: (one.metadata.resource_version, settings, look.verdicts[one.ref]) for one in services
        }
        self.metrics.discovery.labels("success").observe(ctx.clock.monotonic() - began)
        known = self.candidates.get(key, {})
        self.candidates[key] = {
            ObjectRef(one.candidate.service, one.candidate.namespace): one.candidate for one in look.seen
        }
        for gone in known.keys() - self.candidates[key].keys():
            self.book.forget(ProbeKey(key, gone))
        waits: list[float] = []
        for one in look.seen:
            probe = ProbeKey(key, ObjectRef(one.candidate.service, one.candidate.namespace))
            self.book.included(probe, one.admission.included)
            page = self.book.get(probe)
            if page is not None and page.empty_since is not None and not page.empty:
                waits.append(page.empty_since + settings.health.empty_after - ctx.clock.monotonic())
            elif page is None or page.result is None:
                self.probes.send(probe)
        self.looks[key] = look
        return look, max(0.1, min(waits)) if waits else None

    def _counted(self, ctx: Context, key: ObjectRef, settings: Settings, one: Candidate) -> Observed:
        """What is known of a candidate, with its endpoints counted now."""
        slices = ctx.cache[SliceLook].by_index("service", f"{one.namespace}/{one.service}")
        ready = sum(piece.ready for piece in slices) if slices else None
        return self.book.counted(
            ProbeKey(key, ObjectRef(one.service, one.namespace)),
            question_of(one),
            ready,
            tick=ctx.clock.monotonic(),
            now=ctx.clock.time(),
            limit=settings.health.empty_after,
        )

    def _verdict(
        self, known: dict[str, tuple[str, Settings, Verdict]], service: ServiceLook, settings: Settings
    ) -> Verdict:
        """`detect`, once per revision of a Service."""
        revision, judged_by, verdict = known.get(service.metadata.uid, ("", None, None))
        if verdict is not None and revision == service.metadata.resource_version and judged_by == settings:
            return verdict
        try:
            return detect(service, settings)
        except Exception as error:  # noqa: BLE001  one Service that breaks a detector must not stop the others
            message = f"cannot be judged: {type(error).__name__}"
            return Verdict(reason="DetectorFailed", message=message, problems=(message,))

    # -- what to do ----------------------------------------------------------------------------------------------------

    async def _restored(self, ctx: Context, key: ObjectRef, settings: Settings, stand: Stand) -> Stand:
        """Give back what others had in a ConfigMap that was deleted."""
        keys = sorted({*stand.foreign, *stand.foreign_binary})
        if stand.base is not None or not keys or not settings.preserve_overrides:
            return stand
        made = await restore(
            ctx, name=key.name, namespace=key.namespace, data=stand.foreign, binary=stand.foreign_binary
        )
        if ctx.dry_run:
            return stand
        self.held.wrote(made)
        self.reporter.tell(ctx, key, made, "OverridesRestored", f"gave back {', '.join(keys)}")
        return replace(stand, base=made, existed=True)

    async def _carry_out(
        self,
        ctx: Context,
        key: ObjectRef,
        settings: Settings,
        stand: Stand,
        steps: tuple[Step, ...],
    ) -> None:
        for step in steps:
            plan, desired, current = step.plan, step.desired, step.current
            if desired.name in stand.taken:
                self.metrics.reconciles.labels(plan.operation, "failure").inc()
                continue
            if plan.operation is Operation.DELETE and current is not None:
                await delete(ctx, current)
                self.held.removed(current)
            elif plan.blocked and current is not None and settings.allow_recreate:
                await self._recreate(ctx, key, desired, current, stand)
            elif plan.blocked:
                self.metrics.reconciles.labels(plan.operation, "failure").inc()
                continue
            else:
                if plan.operation is Operation.CREATE and desired.name != key.name:
                    current = await self._claimed(ctx, key, desired)
                written = await carry_out(ctx, plan, desired, current)
                if written is not None and not ctx.dry_run:
                    self.held.wrote(written)
            self.metrics.reconciles.labels(plan.operation, "success").inc()
            self.metrics.size.labels(desired.name.removeprefix(settings.name) or "0").set(
                size_of(desired.data) + (size_of(stand.foreign) if desired.name == settings.name else 0)
            )
        for step in steps:
            if step.plan.operation is not Operation.DELETE and not ctx.dry_run:
                await self.held.get(ctx, ObjectRef(step.desired.name, step.desired.namespace), key)

    async def _claimed(self, ctx: Context, key: ObjectRef, desired: Desired) -> TargetMap | None:
        """An empty object of ours to write into: an apply alone would write into whatever has the name by now."""
        try:
            return await claim(ctx, desired)
        except AlreadyExists:
            await self.held.get(ctx, ObjectRef(desired.name, desired.namespace), key)  # seen from now on
            raise

    async def _recreate(self, ctx: Context, key: ObjectRef, desired: Desired, current: TargetMap, stand: Stand) -> None:
        """Delete what somebody made immutable and make it again, with everything others had in it."""
        await delete(ctx, current)
        self.held.removed(current)
        if desired.name == key.name and (stand.foreign or stand.foreign_binary):
            await restore(ctx, name=key.name, namespace=key.namespace, data=stand.foreign, binary=stand.foreign_binary)
        fresh = ObjectPlan(operation=Operation.CREATE, write=True)
        written = await carry_out(ctx, fresh, desired, None)
        if written is not None and not ctx.dry_run:
            self.held.wrote(written)
            self.reporter.tell(ctx, key, written, "Recreated", "it was immutable, and is made again without that")

    async def _back_up(self, ctx: Context, key: ObjectRef, settings: Settings, stand: Stand, look: Look) -> None:
        """Keep a copy of what others have in the ConfigMap, for when it is deleted while nobody watches."""
        if backup_ref(key).name in stand.taken:
            return
        record, known = self._record.get(key), stand.backup_object
        valid = stand.overrides if stand.overrides is not None and not look.override_error else stand.backup.last_valid
        wanted = Backup(foreign=dict(stand.foreign), last_valid=valid if stand.overrides is not None else None)
        if not settings.preserve_overrides:
            wanted = Backup()
        wanted = replace(wanted, known=record)
        if not wanted.foreign and not wanted.last_valid and record is None:
            if known is not None:
                await delete(ctx, known)
                self.held.removed(known)
            return
        desired = desired_backup(wanted, key, LABELS, settings.prefix)
        if known is not None and read_backup(known) == wanted:
            return
        plan = ObjectPlan(operation=Operation.UPDATE, write=True)
        written = await carry_out(ctx, plan, desired, known or await self._claimed(ctx, key, desired))
        if written is not None and not ctx.dry_run:
            self.held.wrote(written)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _view(
        self,
        ctx: Context,
        key: ObjectRef,
        look: Look,
        stand: Stand,
        steps: tuple[Step, ...],
        sight: Sight,
    ) -> None:
        drift = drift_of(steps)
        blocked = any(step.plan.blocked for step in steps)
        self.views[key] = TargetView(
            name=key.name,
            namespace=key.namespace,
            services=services_of(look),
            toolsets=toolsets_of(look),
            drift=drift,
            plan=tuple(
                {
                    "name": step.desired.name,
                    "operation": step.plan.operation.value,
                    "drift": list(step.plan.drift),
                    "prune": list(step.plan.prune),
                }
                for step in steps
            ),
            resource_version=stand.base.metadata.resource_version if stand.base is not None else "",
            last_discovery=format_time(ctx.clock.time()),
            override_error=look.override_error,
            overrides=len(look.overrides),
            parts=len(look.layout.parts),
            phase="Failing" if blocked else "Ready",
            message="somebody made it immutable" if blocked else sight.message,
        )
        if drift:
            ctx.log.warning("drift", component="reconciliation", configmap=str(key), drift_keys=list(drift))

    def _paused(self, ctx: Context, key: ObjectRef, stand: Stand) -> None:
        known = self.views.get(key) or TargetView(name=key.name, namespace=key.namespace)
        self.views[key] = replace(known, phase="Paused", message="an annotation says so")
        self.reporter.tell(ctx, key, stand.base, "Paused", "nothing is written while the annotation is there")

    def _failed(self, key: ObjectRef, message: str) -> None:
        known = self.views.get(key) or TargetView(name=key.name, namespace=key.namespace)
        self.views[key] = replace(known, phase="Failing", message=message)

    def _met_conflict(self, key: ObjectRef) -> None:
        self._conflicts[key] += 1
        self.metrics.conflicts.labels("retried").inc()

    def _subject(self, key: ObjectRef) -> TargetMap | None:
        return self.held.known(key)

    def _forget(self, key: ObjectRef) -> None:
        for service in self.candidates.pop(key, {}):
            self.book.forget(ProbeKey(key, service))
        for known in (self.views, self.looks, self._verdicts, self._conflicts, self._record, self._dim):
            known.pop(key, None)
        self._searched.discard(key)
        self.metrics.stands(key, ())


def question_of(candidate: Candidate) -> str:
    """What a probe asks: another one makes old answers worthless."""
    return f"{candidate.health_url} {candidate.identity_url if candidate.needs_identity else ''}"
