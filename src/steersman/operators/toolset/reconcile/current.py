"""What the cluster holds of one target, read once per pass into one value: `CurrentState`.

It holds the Services, the target ConfigMap with its parts and its backup, and which lists fail. Three rules:

- One watch per ConfigMap, by name: rights on names are enough, and an object that loses a label is still seen. The
  watch also shows the last state of a deleted object, from which the keys of other owners are restored.
- The backup is a ConfigMap beside the target. It lets a new process restore what was deleted while no process ran,
  and keeps the last valid overrides, so that a mistake made before a restart is still only a mistake.
- A list that fails says nothing about the Services it would return. What a watch returned before stays in force. For
  a namespace that this process never listed, the Services recorded in the backup count, matched by today's settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from steersman.clock import Deadline
from steersman.errors import SteersmanError
from steersman.kube.api.errors import NotFound
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.operators.toolset.api.config import BACKUP_SUFFIX, HOLMES_KEY, INDEX_KEY, OVERRIDES_KEY
from steersman.operators.toolset.api.crd import (
    EndpointSliceSummary,
    ServiceSummary,
    TargetConfigMap,
    with_key_owners,
)
from steersman.operators.toolset.discovery.matching import labels_read
from steersman.operators.toolset.render.layout import part_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from steersman.operators.toolset.api.config import TargetSettings
    from steersman.runtime.reconcile.context import Context

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABELS: Final = {
    "app.kubernetes.io/name": "kubernaut-toolset",
    "app.kubernetes.io/component": "toolset",
    MANAGED_BY: "steersman",
}
SYNC_SECONDS: Final = 20.0
LARGEST_RECORD: Final = 400_000  # bytes; a larger record is not kept, and a target waits for the lists instead
LAST_VALID: Final = "steersman-last-valid-overrides"  # key of the backup
KNOWN_SERVICES: Final = "steersman-known-services"  # key of the backup
_TOOLSET_KEY: Final = re.compile(r"[a-z0-9.-]+-toolset\.yaml")


class ToolsetProblem(msgspec.Struct, frozen=True):
    """A problem of a target that is reported as an Event and counted."""

    reason: str  # of the Event
    kind: str  # type of toolset, for the metric
    message: str


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the backup ConfigMap."""

    foreign: Mapping[str, str] = {}  # keys of other owners in the target
    last_valid: str | None = None  # the last overrides that could be parsed
    known: str | None = None  # the included Services, where only some namespaces are watched


class CurrentState(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster holds of one target."""

    services: tuple[ServiceSummary, ...] = ()
    unlisted: frozenset[str] = frozenset()  # namespaces whose Services this process has never listed
    problems: tuple[ToolsetProblem, ...] = ()  # lists that fail
    list_interrupted: bool = False  # a list has failed for a moment only: not a problem yet
    base: TargetConfigMap | None = None
    parts: Mapping[int, TargetConfigMap] = {}
    backup: Backup = Backup()
    backup_object: TargetConfigMap | None = None
    existed: bool = False  # the base existed before, so it was deleted
    foreign: Mapping[str, str] = {}  # keys of other owners: in the base, or to be restored
    foreign_binary: Mapping[str, str] = {}
    is_paused: bool = False
    taken: tuple[str, ...] = ()  # names we would use, of objects that belong to another owner

    @property
    def taken_parts(self) -> frozenset[int]:
        """The numbers of parts whose names belong to another owner."""
        return frozenset(int(end) for name in self.taken if (end := name.rpartition("-")[2]).isdecimal())

    @property
    def overrides(self) -> str | None:
        """The administrator's overrides, byte for byte."""
        return self.foreign.get(OVERRIDES_KEY)

    @property
    def text(self) -> str:
        """All values that this operator has written."""
        objects = [obj for obj in (self.base, *self.parts.values()) if obj is not None]
        return "\n".join(text for obj in objects for key, text in (obj.data or {}).items() if is_managed_key(key))

    @property
    def places(self) -> dict[str, int]:
        """The part that holds each key."""
        return {
            key: number
            for number, part in self.parts.items()
            for key in part.data or {}
            if is_managed_key(key) and key != HOLMES_KEY
        }


# -- whose objects and keys these are ----------------------------------------------------------------------------------


def is_managed_key(key: str) -> bool:
    """Whether a key belongs to this operator by its name."""
    return key in (HOLMES_KEY, INDEX_KEY) or _TOOLSET_KEY.fullmatch(key) is not None


def owned_keys(obj: TargetConfigMap, manager: str) -> frozenset[str]:
    """The keys of the data that this field manager applied."""
    return frozenset((obj.owners or {}).get(manager, ()))


def is_ours(obj: TargetConfigMap, manager: str) -> bool:
    """Whether this operator made an object: its label says so, or it holds keys that we applied."""
    return obj.labels.get(MANAGED_BY) == LABELS[MANAGED_BY] or bool(owned_keys(obj, manager))


def mentions_url(text: str, url: str) -> bool:
    """Whether a URL, or one below it, is among written values."""
    return f'"{url}"' in text or f'"{url}/' in text


# -- the backup --------------------------------------------------------------------------------------------------------


def backup_ref(target: NamespacedName) -> NamespacedName:
    """The backup ConfigMap of a target."""
    return NamespacedName(f"{target.name}{BACKUP_SUFFIX}", target.namespace)


def read_backup(obj: TargetConfigMap | None) -> Backup:
    """Decode the backup ConfigMap."""
    data = dict(obj.data or {}) if obj is not None else {}
    valid, known = data.pop(LAST_VALID, None), data.pop(KNOWN_SERVICES, None)
    return Backup(foreign=data, last_valid=data.get(OVERRIDES_KEY) if valid is None else valid, known=known)


def backup_data(backup: Backup) -> dict[str, str]:
    """Encode the backup; the last valid overrides are written only when the current ones are not valid."""
    data = dict(backup.foreign)
    if backup.last_valid is not None and backup.last_valid != data.get(OVERRIDES_KEY):
        data[LAST_VALID] = backup.last_valid
    if backup.known is not None:
        data[KNOWN_SERVICES] = backup.known
    return data


def record_services(services: Iterable[ServiceSummary], settings: TargetSettings) -> str | None:
    """Encode Services for a process that cannot list them; None when the record would be too large.

    Annotations and labels that the settings never read are left out, so that a change to them writes nothing.
    """
    labels = labels_read(settings)
    required = {name for row in settings.types.values() for name in row.annotations}
    rows = [
        ServiceSummary(
            metadata=ObjectMeta(
                name=service.name,
                namespace=service.namespace,
                uid=service.metadata.uid,
                creation_timestamp=service.metadata.creation_timestamp,
                labels={name: value for name, value in service.labels.items() if name in labels} or None,
                annotations={
                    name: value
                    for name, value in service.annotations.items()
                    if name in required or name.startswith(settings.prefix)
                }
                or None,
            ),
            spec=service.spec,
        )
        for service in sorted(services, key=lambda service: (service.namespace, service.name))
    ]
    text = msgspec.json.encode(rows, order="deterministic").decode()
    return text if len(text) <= LARGEST_RECORD else None


def recorded_services(record: str | None, namespaces: frozenset[str]) -> tuple[ServiceSummary, ...]:
    """The recorded Services of these namespaces; none when the record is not valid."""
    try:
        rows = msgspec.json.decode(record or "[]", type=list[ServiceSummary])
    except (msgspec.DecodeError, RecursionError):
        return ()
    return tuple(service for service in rows if service.namespace in namespaces)


# -- reading -----------------------------------------------------------------------------------------------------------


def current_state(
    base: TargetConfigMap | None,
    parts: Mapping[int, TargetConfigMap],
    backup_object: TargetConfigMap | None,
    *,
    settings: TargetSettings,
    last: TargetConfigMap | None = None,
    taken: tuple[str, ...] = (),
) -> CurrentState:
    """Assemble the state of the ConfigMaps; `last` is the last state of a deleted base, if this process saw it."""
    shown, backup = base or last, read_backup(backup_object)
    foreign: Mapping[str, str] = {}
    if base is not None or settings.preserve_overrides:
        data = (shown.data or {}) if shown is not None else None
        foreign = backup.foreign if data is None else {k: text for k, text in data.items() if not is_managed_key(k)}
    return CurrentState(
        base=base,
        parts=parts,
        backup=backup,
        backup_object=backup_object,
        existed=base is None and (last is not None or backup_object is not None),
        foreign=foreign,
        foreign_binary=dict(shown.binary_data or {}) if shown is not None and settings.preserve_overrides else {},
        is_paused=shown is not None and shown.annotations.get(f"{settings.prefix}paused", "").lower() == "true",
        taken=taken,
    )


async def read_configmaps(
    get: Callable[[NamespacedName], Awaitable[TargetConfigMap | None]],
    target: NamespacedName,
    settings: TargetSettings,
    *,
    manager: str,
    last: TargetConfigMap | None = None,
    get_part: Callable[[NamespacedName], Awaitable[TargetConfigMap | None]] | None = None,
    known_parts: Callable[[NamespacedName], bool] | None = None,
) -> CurrentState:
    """Read the base, the backup and the parts of a target.

    Parts are read up to the first one that does not exist; with `known_parts`, up to the first one that is not known.
    """
    taken: list[str] = []

    def keep_ours(found: TargetConfigMap | None) -> TargetConfigMap | None:
        if found is None or is_ours(found, manager):
            return found
        taken.append(found.name)
        return None

    base = await get(target)
    backup = keep_ours(await get(backup_ref(target)))
    parts: dict[int, TargetConfigMap] = {}
    for number in range(1, settings.max_parts + 1):
        ref = NamespacedName(part_name(target.name, number), target.namespace)
        if known_parts is not None and not known_parts(ref):
            break
        found = await (get_part or get)(ref)
        if found is None and known_parts is None:
            break
        if (part := keep_ours(found)) is not None:
            parts[number] = part
    return current_state(base, parts, backup, settings=settings, last=last, taken=tuple(taken))


async def read_current(
    ctx: Context,
    watches: ConfigMapWatches,
    target: NamespacedName,
    settings: TargetSettings,
    *,
    fresh: bool,
    search_parts: bool,
) -> CurrentState:
    """Read one target: ConfigMaps from their watches, or from the API server when `fresh`; Services from the cache.

    `search_parts`: parts that an earlier process wrote may exist.
    """

    async def get(ref: NamespacedName) -> TargetConfigMap | None:
        if not watches.is_watched(ref):
            await watches.read(ctx, ref)  # raises Forbidden: a watch without the right to it would never sync
        known = await watches.get(ctx, ref, target)
        return await watches.read(ctx, ref) if fresh else known

    async def get_part(ref: NamespacedName) -> TargetConfigMap | None:
        if not watches.is_watched(ref) and await watches.read(ctx, ref) is None:
            return None
        return await get(ref)  # watched from now on, also when another owner has it: its deletion frees the name

    state = await read_configmaps(
        get,
        target,
        settings,
        manager=ctx.field_manager,
        last=watches.last_state(target),
        get_part=get_part,
        known_parts=None if search_parts else watches.is_watched,
    )
    unlisted, problems = _list_failures(ctx, settings)
    services = (*ctx.cache[ServiceSummary].list(), *recorded_services(state.backup.known, unlisted))
    return replace(state, services=services, unlisted=unlisted, problems=problems)


def _list_failures(ctx: Context, settings: TargetSettings) -> tuple[frozenset[str], tuple[ToolsetProblem, ...]]:
    """The namespaces whose Services were never listed, and a problem for each list that fails right now."""
    unlisted: frozenset[str] = frozenset()
    problems: list[ToolsetProblem] = []
    for kind in (ServiceSummary, EndpointSliceSummary):
        watched = ctx.cache.watched(kind)
        health = watched.informer.health() if watched is not None else None
        if health is None or health.problem is None:
            continue
        never = frozenset(filter(settings.watches, health.unseen))
        if kind is ServiceSummary:
            unlisted = never
        where = f" in namespace {', '.join(sorted(never))}" if never else ""
        ctx.log.warning("list failed", component="service_discovery", problem=health.problem)
        text = f"{kind.KIND.plural}{where} cannot be listed; the last known state stays in force"
        problems.append(ToolsetProblem("ListFailed", "", text))
    return unlisted, tuple(problems)


class WatchNotSynced(SteersmanError):  # noqa: N818  what happened
    """A ConfigMap cannot be watched."""


class ConfigMapWatches:
    """One watch per ConfigMap of any target, and the last state of those that were deleted."""

    def __init__(self, changed: Callable[[NamespacedName], None]) -> None:
        """`changed` receives the target of an object that changed."""
        self._changed = changed
        self._informers: dict[NamespacedName, Any] = {}
        self._deleted: dict[NamespacedName, TargetConfigMap] = {}

    async def get(self, ctx: Context, ref: NamespacedName, target: NamespacedName) -> TargetConfigMap | None:
        """The object as its watch shows it; the watch begins here."""
        informer = self._informers.get(ref)
        if informer is None:
            informer = ctx.caches.informer(
                TargetConfigMap,
                namespaces={ref.namespace},
                field_selector=f"metadata.name={ref.name}",
                transform=with_key_owners,
            )
            self._informers[ref] = informer
            informer.add_handler(lambda old, new, initial: self._on_change(ref, target, old, new, initial))
        if not informer.has_synced():
            try:
                async with Deadline(ctx.clock, SYNC_SECONDS):
                    await informer.wait_synced()
            except TimeoutError:
                problem = informer.health().problem or "the API server has not answered yet"
                raise WatchNotSynced(f"ConfigMap {ref} cannot be watched: {problem}") from None
        return self.known(ref)

    async def read(self, ctx: Context, ref: NamespacedName) -> TargetConfigMap | None:
        """The object as the API server has it."""
        try:
            found: TargetConfigMap = await ctx.client.get(TargetConfigMap, ref.name, namespace=ref.namespace)
        except NotFound:
            return None
        return with_key_owners(found)

    def is_watched(self, ref: NamespacedName) -> bool:
        """Whether the watch of an object has begun."""
        return ref in self._informers

    def known(self, ref: NamespacedName) -> TargetConfigMap | None:
        """The object as it was last seen or written."""
        informer = self._informers.get(ref)
        if informer is None:
            return None
        with informer.snapshot() as snapshot:
            found: TargetConfigMap | None = snapshot.get(ref)
        return found

    def last_state(self, ref: NamespacedName) -> TargetConfigMap | None:
        """The last state of a deleted object, if this process saw it."""
        return self._deleted.get(ref)

    def record_write(self, obj: TargetConfigMap) -> None:
        """Show a written object before its watch does."""
        informer = self._informers.get(obj.ref)
        if informer is not None:
            informer.record_write(obj)
        self._deleted.pop(obj.ref, None)

    def record_delete(self, obj: TargetConfigMap) -> None:
        """Hide an object that we deleted before its watch does."""
        informer = self._informers.get(obj.ref)
        if informer is not None:
            informer.record_delete(obj.ref, obj.metadata.uid)

    def _on_change(
        self,
        ref: NamespacedName,
        target: NamespacedName,
        old: TargetConfigMap | None,
        new: TargetConfigMap | None,
        initial: bool,
    ) -> None:
        if new is None and old is not None:
            self._deleted[ref] = old
        if not initial:
            self._changed(target)
