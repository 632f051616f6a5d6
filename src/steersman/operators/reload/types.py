"""The words of the reload operator: annotation names, sources, windows and configuration. Pure data.

Everything a person can write is read once, here or in `settings`, into types that cannot hold nonsense. An error names
the field and says what would be right; it concerns the one object or field it is about and nothing else.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal, TypeAlias, cast

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.durations import format_duration, parse_duration
from steersman.kube.names import dns_label_errors, label_key_errors, quoted
from steersman.kube.selectors import Selector
from steersman.operators.reload.features import CompareConfig, Features, HookConfig, NotifyConfig, features
from steersman.operators.reload.timetable import Timetable, make_opening

__all__ = [
    "ACTION",
    "APPLIED",
    "APPROVE",
    "BUDGET",
    "COMPARE",
    "DEPENDS_ON",
    "FREEZE",
    "GUARD",
    "MAX_CONCURRENT",
    "MAX_DELAY",
    "NATIVE_ANNOTATIONS",
    "NOTIFY",
    "ON_FAILURE",
    "PREFIX",
    "QUIET_PERIOD",
    "RECREATED_BY",
    "RECREATES",
    "RELOAD",
    "RELOAD_EXTRA",
    "RELOAD_IGNORE",
    "RESTARTED_AT",
    "RESTARTED_FOR",
    "ROLLOUT_DEADLINE",
    "SHARE_WITH",
    "URGENT",
    "WAVE",
    "WINDOWS",
    "Budget",
    "BudgetConfig",
    "Guard",
    "GuardConfig",
    "KindConfig",
    "NotifyConfig",
    "OnFailure",
    "Options",
    "ReloadConfig",
    "Scope",
    "ScopeConfig",
    "SourceKind",
    "SourceRef",
    "Window",
    "WindowConfig",
    "WorkloadId",
]

# On workloads, and where it says so on namespaces (N) and sources (S).
RELOAD: Final = "steersman.dev/reload"  # N S: auto | off | configmap/NAME,secret/NAME,…
RELOAD_EXTRA: Final = "steersman.dev/reload-extra"  # configmap/[NS/]NAME,…
RELOAD_IGNORE: Final = "steersman.dev/reload-ignore"  # configmap/NAME[#KEY],…
QUIET_PERIOD: Final = "steersman.dev/quiet-period"  # N
MAX_DELAY: Final = "steersman.dev/max-delay"  # N
BUDGET: Final = "steersman.dev/budget"  # N: 5/1h
WINDOWS: Final = "steersman.dev/windows"  # N: CRON for DURATION [in ZONE]; …
WAVE: Final = "steersman.dev/wave"  # a whole number; lower ones go first
DEPENDS_ON: Final = "steersman.dev/depends-on"  # deployment/NAME,…
MAX_CONCURRENT: Final = "steersman.dev/max-concurrent"  # N only: rollouts at once
ON_FAILURE: Final = "steersman.dev/on-failure"  # N: halt | continue
ROLLOUT_DEADLINE: Final = "steersman.dev/rollout-deadline"  # N
GUARD: Final = "steersman.dev/guard"  # N: 10 | 30% | 10,30%
FREEZE: Final = "steersman.dev/freeze"  # N S: until=RFC3339 | true
ACTION: Final = "steersman.dev/action"  # restart | none | http port=8080 path=/-/reload … | evict
APPROVE: Final = "steersman.dev/approve"  # N S: DIGEST,…
SHARE_WITH: Final = "steersman.dev/share-with"  # S only: NS,… | *
COMPARE: Final = "steersman.dev/compare"  # N S: [configmap/NAME#]GLOB=json|yaml|properties|certificate|ignore|bytes,…
NOTIFY: Final = "steersman.dev/notify"  # N: NAME,… of reload.notify | none
URGENT: Final = "steersman.dev/urgent"  # S only: "true"

# Written by us: the first on the workload itself, the others on its pod template.
APPLIED: Final = "steersman.dev/applied"
RESTARTED_AT: Final = "steersman.dev/restarted-at"
RESTARTED_FOR: Final = "steersman.dev/restarted-for"
RECREATES: Final = "steersman.dev/recreates"  # on the stand-in of a Job that is being recreated
RECREATED_BY: Final = "steersman.dev/recreated-by"  # on the Job itself: which stand-in, and what it says

PREFIX: Final = "steersman.dev/"  # of all of them
NATIVE_ANNOTATIONS: Final = frozenset(
    {
        RELOAD,
        RELOAD_EXTRA,
        RELOAD_IGNORE,
        QUIET_PERIOD,
        MAX_DELAY,
        NOTIFY,
        BUDGET,
        WINDOWS,
        WAVE,
        DEPENDS_ON,
        MAX_CONCURRENT,
        ON_FAILURE,
        ROLLOUT_DEADLINE,
        GUARD,
        FREEZE,
        ACTION,
        APPROVE,
        COMPARE,
        SHARE_WITH,
        URGENT,
        APPLIED,
        RESTARTED_AT,
        RESTARTED_FOR,
        RECREATES,
        RECREATED_BY,
    }
)


ByName: TypeAlias = Literal["never", "refused", "always"]


class SourceKind(StrEnum):
    """What configuration comes from."""

    CONFIGMAP = "configmap"
    SECRET = "secret"  # noqa: S105  # the name of a kind
    PROVIDER_CLASS = "secretproviderclass"  # of the secrets store CSI driver


class SourceRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """The name of one source.

    >>> ref = SourceRef(SourceKind.CONFIGMAP, "shop", "app")
    >>> str(ref), ref.seen_from("shop"), ref.seen_from("lab")
    ('configmap/shop/app', 'configmap/app', 'configmap/shop/app')
    """

    kind: SourceKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.namespace}/{self.name}"

    def seen_from(self, namespace: str) -> str:
        """The name as somebody in `namespace` says it: without its namespace when that is the same."""
        return f"{self.kind.value}/{self.name}" if self.namespace == namespace else str(self)

    @classmethod
    def parse(cls, text: str, namespace: str) -> SourceRef:
        """Read `configmap/NAME` or `configmap/NS/NAME`; without a namespace, the one given.

        >>> SourceRef.parse("secret/db", "shop")
        SourceRef(kind=<SourceKind.SECRET: 'secret'>, namespace='shop', name='db')
        """
        kind, *path = text.strip().split("/")
        if kind not in tuple(SourceKind) or not all(path) or len(path) not in (1, 2):
            raise FormatError(f'"{text.strip()}" is not a source (try configmap/NAME or secret/NAME)')
        return cls(SourceKind(kind), path[0] if len(path) == 2 else namespace, path[-1])


class WorkloadId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The name of one workload.

    >>> str(WorkloadId("Deployment", "shop", "web")), WorkloadId("Deployment", "shop", "web").title
    ('deployment/shop/web', 'deployment/web')
    """

    kind: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """How people of its namespace call it."""
        return f"{self.kind.lower()}/{self.name}"

    def seen_from(self, namespace: str) -> str:
        """The name as somebody in `namespace` says it."""
        return self.title if self.namespace == namespace else str(self)

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """When a change may become a restart; the limit is kept also where the quiet period is longer."""

    quiet: timedelta = timedelta(seconds=5)  # wait until the sources have been still this long…
    limit: timedelta = timedelta(seconds=30)  # …but never longer than this after the first change
    interval: timedelta = timedelta(0)  # and no sooner than this after the last restart

    def due(
        self, *, first: float, last: float, after: timedelta = timedelta(0), restarted: float | None = None
    ) -> float:
        """When changes of which the first came at `first` and the last at `last` are due, all on one clock.

        `after`: what a change takes on its way to the pods; `restarted`: when the last restart was.
        """
        way = after.total_seconds()
        settled = last + max(self.quiet.total_seconds(), way)
        due = min(settled, first + self.limit.total_seconds() + way)
        return due if restarted is None else max(due, restarted + self.interval.total_seconds())

    def inner(self, quiet: timedelta | None, limit: timedelta | None) -> Window:
        """The window when somebody further in says this much; who asks only for a longer quiet period gets it."""
        wanted = self.quiet if quiet is None else quiet
        most = max(self.limit, timedelta(0) if quiet is None else quiet) if limit is None else limit
        return Window(quiet=wanted, limit=most, interval=self.interval)

    def __str__(self) -> str:
        apart = f", {format_duration(self.interval)} apart" if self.interval else ""
        quiet = min(self.quiet, self.limit)
        return f"{format_duration(quiet)} quiet, at most {format_duration(self.limit)}{apart}"


MOST_RESTARTS: Final = 200  # of a budget: so many are remembered on a workload


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How often one workload may be restarted before somebody should look at what keeps changing."""

    restarts: int = 5  # 0: no limit; at most MOST_RESTARTS
    per: timedelta = timedelta(hours=1)

    def __str__(self) -> str:
        return f"{self.restarts} restarts in {format_duration(self.per)}"


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """How many workloads one change may restart before somebody must approve it; 0: no limit."""

    workloads: int = 0
    percent: float = 0.0  # of the workloads of a namespace that take part

    def __str__(self) -> str:
        limits = [str(self.workloads)] * bool(self.workloads) + [f"{self.percent:g}%"] * bool(self.percent)
        return ",".join(limits) or "off"


class OnFailure(StrEnum):
    """What a failed rollout means for those that wait to be restarted for the same change."""

    HALT = "halt"
    CONTINUE = "continue"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """ConfigMaps and workloads that belong together by their labels instead of by reference.

    A source and a workload of the same namespace that match `selector` belong together when they carry the same value
    of the label `env_label`.
    """

    namespace: str | None = None  # None: in every namespace, each for itself
    selector: Selector
    env_label: str = "env"
    sources: frozenset[SourceKind] = frozenset({SourceKind.CONFIGMAP})
    workloads: frozenset[str] = frozenset({"Deployment"})

    def group(self, namespace: str, labels: dict[str, str]) -> str | None:
        """The group an object belongs to in this scope: its environment; None when it is not in the scope."""
        if self.namespace is not None and namespace != self.namespace:
            return None
        value = labels.get(self.env_label)
        return value if value and self.selector.matches(labels) else None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the operator, read and checked."""

    window: Window = Window()
    budget: Budget = Budget()
    scopes: tuple[Scope, ...] = ()
    dialects: tuple[str, ...] = ("native", "xing", "shipshape")
    kinds: tuple[KindConfig, ...] = ()
    max_concurrent: int = 0
    max_concurrent_per_namespace: int = 0
    timetable: Timetable = Timetable()
    guard: Guard = Guard()
    on_failure: OnFailure = OnFailure.HALT
    deadline: timedelta = timedelta(minutes=10)
    ask_pods: bool = True
    policies: bool = True
    namespaces: frozenset[str] | None = None
    features: Features = Features()
    watch_secrets: bool = True
    watch_providers: bool | None = None  # None: as Secrets
    watch_configmaps: bool = True
    watch_namespaces: bool = True
    source_selector: str | None = None  # only sources with these labels are watched
    configmaps_by_name: ByName = "refused"  # when the names that workloads use are watched one by one
    secrets_by_name: ByName = "refused"
    names: dict[SourceKind, frozenset[str]] = {}  # the only ones, where there is a list
    ignored_namespaces: frozenset[str] = frozenset()
    namespace_selector: Selector | None = None  # only in namespaces with these labels


class ScopeConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.selectors`."""

    namespace: str | None = None  # all namespaces when left out
    selector: str
    env_label: str = "env"
    kinds: tuple[str, ...] = ("Deployment",)  # the kinds of workloads that are restarted by this scope


class KindConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.kinds`: a built-in kind by its name, or any other kind in full."""

    kind: str
    group: str = ""
    version: str = ""
    plural: str = ""
    template: str = ""  # path of the pod template, e.g. spec.template
    restart: str = ""  # template (stamp it), recreate (Jobs), or the path of a field that takes a time


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.budget`."""

    restarts: int = 5
    per: str = "1h"


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.windows`."""

    cron: str
    duration: str
    time_zone: str = "UTC"


class GuardConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.guard`."""

    workloads: int = 0  # 0: no limit
    percent: float = 0.0  # of the workloads of a namespace; 0: no limit


class ReloadConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section `reload:` of the configuration file, as it is written."""

    quiet_period: str = "5s"
    max_delay: str = ""  # 30s, or the quiet period where that is longer
    dialects: tuple[str, ...] = ("native", "xing", "shipshape")
    selectors: tuple[ScopeConfig, ...] = ()
    kinds: tuple[str | KindConfig, ...] = ()  # none: all built-in ones
    budget: BudgetConfig = BudgetConfig()
    max_concurrent: int = 0  # rollouts at once; 0: no limit
    max_concurrent_per_namespace: int = 0
    windows: tuple[WindowConfig, ...] = ()  # none: always
    guard: GuardConfig = GuardConfig()
    on_failure: OnFailure = OnFailure.HALT
    rollout_deadline: str = "10m"  # after which a rollout that is not available has failed
    pods: bool = True  # ask pods why a rollout takes long
    policies: bool = True  # heed ReloadPolicy and ClusterReloadPolicy, where they are installed
    notify: tuple[NotifyConfig, ...] = ()
    actions: tuple[str, ...] = ()  # http, evict: actions besides restart and none that workloads may ask for
    compare: tuple[CompareConfig, ...] = ()  # how keys are compared, where not byte by byte
    hook: HookConfig = HookConfig()
    audit_period: str = ""  # how often stale pods are counted, e.g. 5m; never when empty
    namespaces: tuple[str, ...] = ()  # none: all
    secrets: bool = True  # watch Secrets
    secret_provider_classes: bool | None = None  # watch what the secrets store CSI driver mounts; None: as Secrets
    config_maps: bool = True  # watch ConfigMaps
    narrow: str = "refused"  # watch used names one by one: never, where a list is refused, or always
    config_map_names: tuple[str, ...] = ()  # only these, one by one; none: all
    secret_names: tuple[str, ...] = ()
    min_interval: str = "0s"  # between two restarts of a workload
    ignore_namespaces: tuple[str, ...] = ()  # where nothing takes part
    namespace_selector: str = ""  # only namespaces with these labels
    source_selector: str = ""  # only ConfigMaps and Secrets with these labels are watched
    rivals: tuple[str, ...] | None = None  # Leases of other controllers, [NS/]NAME; None: those we know; none: no look
    rival_namespaces: tuple[str, ...] | None = None  # where those hold all writes; None: where the originals live
    namespace_settings: bool = True  # read the annotations of namespaces, when all are watched

    def options(self) -> Options:
        """What was written, checked; ConfigError names the field that is wrong."""
        for value, name in (
            (self.max_concurrent, "maxConcurrent"),
            (self.max_concurrent_per_namespace, "maxConcurrentPerNamespace"),
            (self.guard.workloads, "guard.workloads"),
            (self.guard.percent, "guard.percent"),
        ):
            if value < 0:
                raise ConfigError("must be 0 (no limit) or more", field=f"reload.{name}")
        if self.guard.percent > 100:
            raise ConfigError("must be 100 or less (0: no limit)", field="reload.guard.percent")
        for place, name in enumerate(self.namespaces):
            if dns_label_errors(name):
                raise ConfigError(f"{quoted(name)} is not a namespace (try shop)", field=f"reload.namespaces[{place}]")
        configmaps, secrets = self._by_name(self.config_map_names), self._by_name(self.secret_names)
        if self.selectors and configmaps == "always":
            raise ConfigError(
                "need all ConfigMaps of a namespace (leave out narrow: always and configMapNames)",
                field="reload.selectors",
            )
        names = {SourceKind.CONFIGMAP: self.config_map_names, SourceKind.SECRET: self.secret_names}
        return Options(
            configmaps_by_name=configmaps,
            secrets_by_name=secrets,
            names={kind: frozenset(only) for kind, only in names.items() if only},
            window=self._window(),
            budget=self._budget(),
            scopes=tuple(_scope(row, f"reload.selectors[{place}]") for place, row in enumerate(self.selectors)),
            dialects=self.dialects,
            kinds=tuple(KindConfig(kind=row) if isinstance(row, str) else row for row in self.kinds),
            max_concurrent=self.max_concurrent,
            max_concurrent_per_namespace=self.max_concurrent_per_namespace,
            timetable=self._timetable(),
            guard=Guard(workloads=self.guard.workloads, percent=self.guard.percent),
            on_failure=self.on_failure,
            deadline=_duration(self.rollout_deadline, "reload.rolloutDeadline"),
            ask_pods=self.pods,
            policies=self.policies,
            namespaces=frozenset(self.namespaces) or None,
            watch_secrets=self.secrets,
            watch_providers=self.secret_provider_classes,
            features=features(self.actions, self.compare, self.notify, self.hook, self.audit_period),
            watch_configmaps=self.config_maps,
            watch_namespaces=self.namespace_settings or bool(self.namespace_selector),
            ignored_namespaces=frozenset(self.ignore_namespaces),
            namespace_selector=_selector(self.namespace_selector, "reload.namespaceSelector"),
            source_selector=str(_selector(self.source_selector, "reload.sourceSelector") or "") or None,
        )

    def _by_name(self, only: tuple[str, ...]) -> ByName:
        if self.narrow not in ("never", "refused", "always"):
            raise ConfigError(f'"{self.narrow}" is not one of never, refused, always', field="reload.narrow")
        return "always" if only else cast("ByName", self.narrow)

    def _window(self) -> Window:
        quiet = _duration(self.quiet_period, "reload.quietPeriod")
        limit = _duration(self.max_delay, "reload.maxDelay") if self.max_delay else None
        interval = _duration(self.min_interval, "reload.minInterval")
        return Window(interval=interval).inner(quiet, limit)

    def _timetable(self) -> Timetable:
        openings = []
        for place, row in enumerate(self.windows):
            try:
                openings.append(make_opening(row.cron, row.duration, row.time_zone))
            except FormatError as error:
                raise ConfigError(str(error), field=f"reload.windows[{place}]") from None
        return Timetable(openings=tuple(openings))

    def _budget(self) -> Budget:
        if not 0 <= self.budget.restarts <= MOST_RESTARTS:
            raise ConfigError(f"must be from 0 (no limit) to {MOST_RESTARTS}", field="reload.budget.restarts")
        per = _duration(self.budget.per, "reload.budget.per")
        if not per:
            raise ConfigError("must be longer than 0 (try 1h)", field="reload.budget.per")
        return Budget(restarts=self.budget.restarts, per=per)


def _scope(row: ScopeConfig, field: str) -> Scope:
    try:
        selector = Selector.parse(row.selector)
    except FormatError as error:
        raise ConfigError(str(error), field=f"{field}.selector") from None
    if selector.empty:
        raise ConfigError("must not be empty: it would select everything (try app=web)", field=f"{field}.selector")
    if complaints := label_key_errors(row.env_label):
        raise ConfigError("; ".join(complaints), field=f"{field}.envLabel")
    return Scope(
        namespace=row.namespace or None,
        selector=selector,
        env_label=row.env_label,
        workloads=frozenset(row.kinds),
    )


def _selector(text: str, field: str) -> Selector | None:
    try:
        return Selector.parse(text) if text else None
    except FormatError as error:
        raise ConfigError(str(error), field=field) from None


def _duration(text: str, field: str) -> timedelta:
    try:
        return parse_duration(text)
    except FormatError as error:
        raise ConfigError(str(error), field=field) from None
