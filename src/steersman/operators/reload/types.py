"""The words of the reload operator: annotation names, sources, windows and configuration. Pure data.

Everything a person can write is read once, here or in `settings`, into types that cannot hold nonsense. An error names
the field and says what would be right; it concerns the one object or field it is about and nothing else.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from steersman.errors import ConfigError, FormatError
from steersman.kube.durations import format_duration, parse_duration
from steersman.kube.names import label_key_errors
from steersman.kube.selectors import Selector

__all__ = [
    "APPLIED",
    "APPROVE",
    "DEPENDS_ON",
    "FREEZE",
    "MAX_DELAY",
    "NATIVE_ANNOTATIONS",
    "QUIET_PERIOD",
    "RECREATES",
    "RELOAD",
    "RELOAD_EXTRA",
    "RELOAD_IGNORE",
    "RESTARTED_AT",
    "RESTARTED_FOR",
    "SHARE_WITH",
    "URGENT",
    "WAVE",
    "Budget",
    "BudgetConfig",
    "KindConfig",
    "NotifyConfig",
    "Options",
    "ReloadConfig",
    "Scope",
    "ScopeConfig",
    "SourceKind",
    "SourceRef",
    "Window",
]

# On workloads, and where it says so on namespaces (N) and sources (S).
RELOAD: Final = "steersman.dev/reload"  # N S: auto | off | configmap/NAME,secret/NAME,…
RELOAD_EXTRA: Final = "steersman.dev/reload-extra"  # configmap/[NS/]NAME,…
RELOAD_IGNORE: Final = "steersman.dev/reload-ignore"  # configmap/NAME[#KEY],…
QUIET_PERIOD: Final = "steersman.dev/quiet-period"  # N
MAX_DELAY: Final = "steersman.dev/max-delay"  # N
WAVE: Final = "steersman.dev/wave"
DEPENDS_ON: Final = "steersman.dev/depends-on"
FREEZE: Final = "steersman.dev/freeze"  # N S: until=RFC3339 | true
APPROVE: Final = "steersman.dev/approve"
SHARE_WITH: Final = "steersman.dev/share-with"  # S only: NS,… | *
URGENT: Final = "steersman.dev/urgent"  # S only: "true"

# Written by us: the first on the workload itself, the others on its pod template.
APPLIED: Final = "steersman.dev/applied"
RESTARTED_AT: Final = "steersman.dev/restarted-at"
RESTARTED_FOR: Final = "steersman.dev/restarted-for"
RECREATES: Final = "steersman.dev/recreates"  # on the stand-in of a Job that is being recreated

NATIVE_ANNOTATIONS: Final = frozenset(
    {
        RELOAD,
        RELOAD_EXTRA,
        RELOAD_IGNORE,
        QUIET_PERIOD,
        MAX_DELAY,
        WAVE,
        DEPENDS_ON,
        FREEZE,
        APPROVE,
        SHARE_WITH,
        URGENT,
        APPLIED,
        RESTARTED_AT,
        RESTARTED_FOR,
        RECREATES,
    }
)


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


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """When a change may become a restart."""

    quiet: timedelta = timedelta(seconds=5)  # wait until the sources have been still this long…
    limit: timedelta = timedelta(seconds=30)  # …but never longer than this after the first change

    def due(self, *, first: float, last: float) -> float:
        """When changes of which the first came at `first` and the last at `last` are due."""
        return min(last + self.quiet.total_seconds(), first + self.limit.total_seconds())

    def __str__(self) -> str:
        return f"{format_duration(self.quiet)} quiet, at most {format_duration(self.limit)}"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How often one workload may be restarted before somebody should look at what keeps changing."""

    restarts: int = 5  # 0: no limit
    per: timedelta = timedelta(hours=1)

    def __str__(self) -> str:
        return f"{self.restarts} restarts in {format_duration(self.per)}"


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
    namespaces: frozenset[str] | None = None
    watch_secrets: bool = True


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


class NotifyConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `reload.notify`."""

    url: str
    format: str = "cloudevents"
    template: str | None = None


class ReloadConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The section `reload:` of the configuration file, as it is written."""

    quiet_period: str = "5s"
    max_delay: str = "30s"
    dialects: tuple[str, ...] = ("native", "xing", "shipshape")
    selectors: tuple[ScopeConfig, ...] = ()
    kinds: tuple[str | KindConfig, ...] = ()  # none: all built-in ones
    budget: BudgetConfig = BudgetConfig()
    max_concurrent: int = 0  # rollouts at once; 0: no limit
    notify: tuple[NotifyConfig, ...] = ()
    namespaces: tuple[str, ...] = ()  # none: all
    secrets: bool = True  # watch Secrets

    def options(self) -> Options:
        """What was written, checked; ConfigError names the field that is wrong."""
        if self.max_concurrent < 0:
            raise ConfigError("must be 0 (no limit) or more", field="reload.maxConcurrent")
        return Options(
            window=self._window(),
            budget=self._budget(),
            scopes=tuple(_scope(row, f"reload.selectors[{place}]") for place, row in enumerate(self.selectors)),
            dialects=self.dialects,
            kinds=tuple(KindConfig(kind=row) if isinstance(row, str) else row for row in self.kinds),
            max_concurrent=self.max_concurrent,
            namespaces=frozenset(self.namespaces) or None,
            watch_secrets=self.secrets,
        )

    def _window(self) -> Window:
        quiet = _duration(self.quiet_period, "reload.quietPeriod")
        limit = _duration(self.max_delay, "reload.maxDelay")
        return Window(quiet=quiet, limit=max(quiet, limit))

    def _budget(self) -> Budget:
        if self.budget.restarts < 0:
            raise ConfigError("must be 0 (no limit) or more", field="reload.budget.restarts")
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


def _duration(text: str, field: str) -> timedelta:
    try:
        return parse_duration(text)
    except FormatError as error:
        raise ConfigError(str(error), field=field) from None
