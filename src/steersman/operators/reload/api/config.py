"""The section `reload:` of the configuration, and the types its settings have everywhere. Pure data.

`ReloadConfig` is what users write; `options()` validates it once into `ReloadOptions`, which cannot hold an invalid
value. An error names the field and what would be right.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.api.durations import format_duration, parse_duration
from steersman.kube.api.selectors import Selector
from steersman.kube.api.validation import dns_label_errors, dns_subdomain_errors, label_key_errors, quoted
from steersman.operators.reload.api.windows import MaintenanceWindows, make_window

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST_SECRET: Final = "steersman-reload-digests"  # noqa: S105  # the name of a Secret
ACTIONS: Final = ("restart", "none", "http", "evict")
FORMS: Final = ("json", "yaml", "properties", "certificate", "ignore", "bytes")
_GLOB: Final = re.compile(r"[-._a-zA-Z0-9*?\[\]!]+")  # what keys are made of, and what makes a glob of them
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_GLOB: Final = 253
_SHOWN: Final = 100  # characters of a bad value that a message repeats
FORMATS: Final = ("cloudevents", "slack", "teams", "googlechat", "text")

ByName: TypeAlias = Literal["never", "refused", "always"]


class SourceKind(StrEnum):
    """Where configuration comes from."""

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
        """The name as it is written in `namespace`: without its namespace when that is the same."""
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
        """Its name within its namespace."""
        return f"{self.kind.lower()}/{self.name}"

    def seen_from(self, namespace: str) -> str:
        """The name as it is written in `namespace`."""
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
        delay = after.total_seconds()
        settled = last + max(self.quiet.total_seconds(), delay)
        due = min(settled, first + self.limit.total_seconds() + delay)
        return due if restarted is None else max(due, restarted + self.interval.total_seconds())

    def inner(self, quiet: timedelta | None, limit: timedelta | None) -> Window:
        """The window of an inner layer; a longer quiet period alone raises the limit with it."""
        wanted = self.quiet if quiet is None else quiet
        most = max(self.limit, timedelta(0) if quiet is None else quiet) if limit is None else limit
        return Window(quiet=wanted, limit=most, interval=self.interval)

    def __str__(self) -> str:
        apart = f", {format_duration(self.interval)} apart" if self.interval else ""
        quiet = min(self.quiet, self.limit)
        return f"{format_duration(quiet)} quiet, at most {format_duration(self.limit)}{apart}"


MOST_RESTARTS: Final = 200  # of a budget: so many are remembered on a workload


class RestartBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How often one workload may be restarted: more restarts mean that a source keeps changing."""

    restarts: int = 5  # 0: no limit; at most MOST_RESTARTS
    per: timedelta = timedelta(hours=1)

    def __str__(self) -> str:
        return f"{self.restarts} restarts in {format_duration(self.per)}"


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """How many workloads one change may restart without approval; 0: no limit."""

    workloads: int = 0
    percent: float = 0.0  # of the workloads of a namespace that take part

    def __str__(self) -> str:
        limits = [str(self.workloads)] * bool(self.workloads) + [f"{self.percent:g}%"] * bool(self.percent)
        return ",".join(limits) or "off"


class OnFailure(StrEnum):
    """What a failed rollout means for those that wait to be restarted for the same change."""

    HALT = "halt"
    CONTINUE = "continue"


class LabelScope(msgspec.Struct, frozen=True, kw_only=True):
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


class ReceiverConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.notify`."""

    name: str = ""  # by which workloads and policies choose their receivers
    url: str = ""  # where to send it…
    url_from: str = ""  # …or the environment variable that holds the address, since it is often a secret
    format: str = "cloudevents"  # cloudevents, slack, teams, googlechat or text
    template: str | None = None  # of the text, with $workloads, $sources, $outcome, …
    only: tuple[str, ...] = ()  # outcomes worth a message; none: all
    timeout: str = "10s"  # of one attempt
    attempts: int = 5  # before a message is lost
    proxy: str = ""  # through which it is sent, http://HOST:PORT; none: straight


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.webhook`: an address that is called when a source changes, and nothing is restarted."""

    url: str = ""  # where to send it…
    url_from: str = ""  # …or the environment variable that holds the address, since it may be a secret

    def __bool__(self) -> bool:
        return bool(self.url or self.url_from)


class CompareConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.compare`: how keys of some sources are compared."""

    source: str = "*"  # configmap/NAME, secret/NAME or *; NAME may be a glob
    namespace: str | None = None  # None: in every one
    keys: str  # a glob
    form: str = msgspec.field(name="as")  # json, yaml, properties, certificate, ignore or bytes

    def complaint(self) -> tuple[str, str] | None:
        """The field that makes no sense, and why."""
        if self.form not in FORMS:
            return "as", f'"{self.form[:_SHOWN]}" is not one of {", ".join(FORMS)}'
        kind, slash, name = self.source.partition("/")
        if self.source != "*" and not (slash and name and "/" not in name and kind in ("configmap", "secret")):
            return "source", f'"{self.source[:_SHOWN]}" is not a source (try configmap/NAME, secret/NAME or *)'
        if not self.keys or len(self.keys) > _LONGEST_GLOB or not _GLOB.fullmatch(self.keys):
            return "keys", f'"{self.keys[:_SHOWN]}" is not a glob of keys (try *.json)'
        return None


class HookConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.hook`: the Python function that decides last about a restart."""

    name: str = ""  # of the entry point in the group steersman.reload.hooks; empty: none
    timeout: str = "2s"  # of one call
    on_error: str = "allow"  # or hold: what an exception or a hang means


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What is switched on, checked."""

    actions: frozenset[str] = frozenset({"restart", "none"})
    compare: tuple[CompareConfig, ...] = ()
    notify: tuple[ReceiverConfig, ...] = ()
    hook: HookConfig = HookConfig()
    hook_timeout: timedelta = timedelta(seconds=2)
    audit: timedelta | None = None  # how often stale pods are counted; None: never

    def unknown_receivers(self, names: Sequence[str]) -> list[tuple[int, str]]:
        """The names that no receiver has: the index of each, and what to do about it."""
        known = {sink.name for sink in self.notify if sink.name}
        return [
            (place, f"unknown receiver {quoted(name[:_SHOWN])} (configuration: reload.notify[].name)")
            for place, name in enumerate(names)
            if name not in known
        ]


class Strategy(StrEnum):
    """Where Reloader writes a restart."""

    ENV_VARS = "env-vars"
    ANNOTATIONS = "annotations"


class ReloaderConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.reloader`: how the dialect of Reloader is read and written, as its flags of these names say."""

    auto_reload_all: bool = False  # workloads take part without an annotation
    reload_strategy: Strategy = Strategy.ENV_VARS  # env-vars or annotations: where a restart is written


class ReloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the operator, read and checked."""

    window: Window = Window()
    budget: RestartBudget = RestartBudget()
    scopes: tuple[LabelScope, ...] = ()
    dialects: tuple[str, ...] = ("native", "xing", "shipshape")
    kinds: tuple[KindConfig, ...] = ()
    max_concurrent: int = 0
    max_concurrent_per_namespace: int = 0
    maintenance_windows: MaintenanceWindows = MaintenanceWindows()
    guard: Guard = Guard()
    on_failure: OnFailure = OnFailure.HALT
    order_with: frozenset[str] = frozenset()  # namespaces; "*" is all of them
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
    digest_secret: tuple[str, str] | None = ("", DIGEST_SECRET)  # namespace ("": our own) and name; None: no keys
    names: dict[SourceKind, frozenset[str]] = {}  # the only ones, where there is a list
    ignored_namespaces: frozenset[str] = frozenset()
    namespace_selector: Selector | None = None  # only in namespaces with these labels
    webhook: WebhookConfig = WebhookConfig()  # called instead of every restart
    reloader: ReloaderConfig = ReloaderConfig()
    reload_on_create: bool = True
    reload_on_delete: bool = False


class ScopeConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.selectors`."""

    namespace: str | None = None  # all namespaces when left out
    selector: str  # labels that sources and workloads share
    env_label: str = "env"  # the label whose value joins a source and a workload
    kinds: tuple[str, ...] = ("Deployment",)  # the kinds of workloads that are restarted by this scope


class KindConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.kinds`: a built-in kind by its name, or any other kind in full."""

    kind: str  # such as Deployment
    group: str = ""  # of a kind that is not built in
    version: str = ""  # of a kind that is not built in
    plural: str = ""  # of a kind that is not built in
    template: str = ""  # path of the pod template, e.g. spec.template
    restart: str = ""  # template (stamp it), recreate (Jobs), run (CronJobs), or the path of a field that takes a time


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.budget`."""

    restarts: int = 5  # of one workload; 0: no limit
    per: str = "1h"  # the time in which they count


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.windows`."""

    cron: str  # when the window opens
    duration: str  # how long it stays open
    time_zone: str = "UTC"  # of cron


class GuardConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`reload.guard`."""

    workloads: int = 0  # 0: no limit
    percent: float = 0.0  # of the workloads of a namespace; 0: no limit


class ReloadConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section `reload:` of the configuration file, as it is written."""

    quiet_period: str = "5s"  # how long sources must be unchanged before a restart
    max_delay: str = ""  # 30s, or the quiet period where that is longer
    dialects: tuple[str, ...] = ("native", "xing", "shipshape")  # whose annotations are read
    reloader: ReloaderConfig = ReloaderConfig()  # of the dialect reloader
    selectors: tuple[ScopeConfig, ...] = ()  # sources and workloads that belong together by label
    kinds: tuple[str | KindConfig, ...] = ()  # none: all built-in ones
    budget: BudgetConfig = BudgetConfig()
    max_concurrent: int = 0  # rollouts at once; 0: no limit
    max_concurrent_per_namespace: int = 0  # 0: no limit
    windows: tuple[WindowConfig, ...] = ()  # none: always
    guard: GuardConfig = GuardConfig()
    on_failure: OnFailure = OnFailure.HALT  # halt or continue: the workloads that still wait
    order_with: tuple[str, ...] = ()  # namespaces whose order, failures and numbers count, if they say so too; * is all
    rollout_deadline: str = "10m"  # after which a rollout that is not available has failed
    pods: bool = True  # ask pods why a rollout takes long
    policies: bool = True  # apply ReloadPolicy and ClusterReloadPolicy, where they are installed
    notify: tuple[ReceiverConfig, ...] = ()  # who gets a message about each change
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
    secret_names: tuple[str, ...] = ()  # only these, one by one; none: all
    digest_secret: str = DIGEST_SECRET  # [NS/]NAME of the Secret with the keys of digests; none: they are not keyed
    min_interval: str = "0s"  # between two restarts of a workload
    ignore_namespaces: tuple[str, ...] = ()  # where nothing takes part
    namespace_selector: str = ""  # only namespaces with these labels
    source_selector: str = ""  # only ConfigMaps and Secrets with these labels are watched
    rivals: tuple[str, ...] | None = (
        None  # Leases of other controllers, [NS/]NAME; None: the known ones; empty: none are watched
    )
    rival_namespaces: tuple[str, ...] | None = None  # where those hold all writes; None: where the originals live
    namespace_settings: bool = True  # read the annotations of namespaces, when all are watched
    reload_on_create: bool = True  # a source that appears restarts workloads that run without it
    reload_on_delete: bool = False  # a source that is deleted restarts workloads, though pods may not start without it
    webhook: WebhookConfig = WebhookConfig()  # call this address when a source changes, and restart nothing

    def options(self) -> ReloadOptions:
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
        return ReloadOptions(
            configmaps_by_name=configmaps,
            secrets_by_name=secrets,
            names={kind: frozenset(only) for kind, only in names.items() if only},
            window=self._window(),
            budget=self._budget(),
            scopes=tuple(_scope(row, f"reload.selectors[{place}]") for place, row in enumerate(self.selectors)),
            dialects=self.dialects,
            reloader=self.reloader,
            kinds=tuple(KindConfig(kind=row) if isinstance(row, str) else row for row in self.kinds),
            max_concurrent=self.max_concurrent,
            max_concurrent_per_namespace=self.max_concurrent_per_namespace,
            maintenance_windows=self._maintenance_windows(),
            guard=Guard(workloads=self.guard.workloads, percent=self.guard.percent),
            on_failure=self.on_failure,
            order_with=self._order_with(),
            digest_secret=self._digest_secret(),
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
            reload_on_create=self.reload_on_create,
            reload_on_delete=self.reload_on_delete,
            webhook=self._webhook(),
            namespace_selector=_selector(self.namespace_selector, "reload.namespaceSelector"),
            source_selector=str(_selector(self.source_selector, "reload.sourceSelector") or "") or None,
        )

    def _webhook(self) -> WebhookConfig:
        if self.webhook.url and self.webhook.url_from:
            raise ConfigError("needs either url or urlFrom", field="reload.webhook")
        if self.webhook.url and not self.webhook.url.startswith(("http://", "https://")):
            raise ConfigError("must begin with https:// or http://", field="reload.webhook.url")
        return self.webhook

    def _digest_secret(self) -> tuple[str, str] | None:
        if self.digest_secret == "none":  # noqa: S105  # a word, not a Secret
            return None
        namespace, slash, name = self.digest_secret.rpartition("/")
        if dns_subdomain_errors(name) or (slash and dns_label_errors(namespace)):
            example = f"(try {DIGEST_SECRET}, ops/{DIGEST_SECRET} or none)"
            raise ConfigError(f"{quoted(self.digest_secret)} is not a Secret {example}", field="reload.digestSecret")
        return namespace, name

    def _order_with(self) -> frozenset[str]:
        for place, name in enumerate(self.order_with):
            if name != "*" and dns_label_errors(name):
                raise ConfigError(
                    f"{quoted(name)} is not a namespace (try shop, or *)", field=f"reload.orderWith[{place}]"
                )
        return frozenset(self.order_with)

    def _by_name(self, only: tuple[str, ...]) -> ByName:
        if self.narrow not in ("never", "refused", "always"):
            raise ConfigError(f'"{self.narrow}" is not one of never, refused, always', field="reload.narrow")
        return "always" if only else cast("ByName", self.narrow)

    def _window(self) -> Window:
        quiet = _duration(self.quiet_period, "reload.quietPeriod")
        limit = _duration(self.max_delay, "reload.maxDelay") if self.max_delay else None
        interval = _duration(self.min_interval, "reload.minInterval")
        return Window(interval=interval).inner(quiet, limit)

    def _maintenance_windows(self) -> MaintenanceWindows:
        windows = []
        for place, row in enumerate(self.windows):
            try:
                windows.append(make_window(row.cron, row.duration, row.time_zone))
            except FormatError as error:
                raise ConfigError(str(error), field=f"reload.windows[{place}]") from None
        return MaintenanceWindows(windows=tuple(windows))

    def _budget(self) -> RestartBudget:
        if not 0 <= self.budget.restarts <= MOST_RESTARTS:
            raise ConfigError(f"must be from 0 (no limit) to {MOST_RESTARTS}", field="reload.budget.restarts")
        per = _duration(self.budget.per, "reload.budget.per")
        if not per:
            raise ConfigError("must be longer than 0 (try 1h)", field="reload.budget.per")
        return RestartBudget(restarts=self.budget.restarts, per=per)


def features(
    actions: tuple[str, ...],
    compare: tuple[CompareConfig, ...],
    notify: tuple[ReceiverConfig, ...],
    hook: HookConfig,
    audit_period: str,
) -> Features:
    """What was written, checked; ConfigError names the field that is wrong."""
    for place, action in enumerate(actions):
        _one_of(action, ACTIONS, f"reload.actions[{place}]")
    for place, row in enumerate(compare):
        if complaint := row.complaint():
            raise ConfigError(complaint[1], field=f"reload.compare[{place}].{complaint[0]}")
    for place, sink in enumerate(notify):
        field = f"reload.notify[{place}]"
        _one_of(sink.format, FORMATS, f"{field}.format")
        if sink.name and (sink.name == "none" or not _NAME.fullmatch(sink.name)):
            raise ConfigError(f'"{sink.name[:_SHOWN]}" is not a name (try ops)', field=f"{field}.name")
        if bool(sink.url) == bool(sink.url_from):
            raise ConfigError("needs either url or urlFrom", field=field)
        if sink.url and not sink.url.startswith(("http://", "https://")):
            raise ConfigError("must begin with https:// or http://", field=f"{field}.url")
        if sink.proxy and not sink.proxy.startswith(("http://", "https://")):
            raise ConfigError("must begin with http:// or https://", field=f"{field}.proxy")
        if sink.attempts < 1:
            raise ConfigError("must be 1 or more", field=f"{field}.attempts")
        _duration(sink.timeout, f"{field}.timeout")
    _one_of(hook.on_error, ("allow", "hold"), "reload.hook.onError")
    period = _duration(audit_period, "reload.auditPeriod") if audit_period else None
    if period is not None and period < timedelta(seconds=1):
        raise ConfigError("must be 1s or longer (try 5m)", field="reload.auditPeriod")
    return Features(
        actions=frozenset({"restart", "none", *actions}),
        compare=compare,
        notify=notify,
        hook=hook,
        hook_timeout=_duration(hook.timeout, "reload.hook.timeout"),
        audit=period,
    )


def _one_of(value: str, known: tuple[str, ...], field: str) -> None:
    if value not in known:
        raise ConfigError(f'"{value}" is not one of {", ".join(known)}', field=field)


def _scope(row: ScopeConfig, field: str) -> LabelScope:
    try:
        selector = Selector.parse(row.selector)
    except FormatError as error:
        raise ConfigError(str(error), field=f"{field}.selector") from None
    if selector.empty:
        raise ConfigError("must not be empty: it would select everything (try app=web)", field=f"{field}.selector")
    if complaints := label_key_errors(row.env_label):
        raise ConfigError("; ".join(complaints), field=f"{field}.envLabel")
    return LabelScope(
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
