"""Settings people write on workloads, namespaces, sources and in policies: one table, parsed once. Pure.

Each row of `SETTINGS` declares one setting: the field of `LayerSettings` it becomes, its annotation, its field in a
policy, its default in the configuration, and how each text or value is parsed. Reading annotations, reading policies
and merging the layers (`planning.effective_policy`) are loops over this table.

An invalid value is a problem that names the annotation or field; it is ignored and every other setting applies. So a
typo in one annotation never disables another setting, and never affects another workload. Only what forbids restarts
stays in force: a freeze or windows that cannot be parsed hold restarts back until they are corrected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta  # msgspec evaluates the annotations
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.kube.api.durations import parse_duration
from steersman.kube.api.times import parse_time
from steersman.kube.api.validation import dns_label_errors, quoted
from steersman.operators.reload.api.action import RESTART, ReloadAction, parse_action
from steersman.operators.reload.api.config import (
    MOST_RESTARTS,
    Guard,
    OnFailure,
    RestartBudget,
    SourceKind,
    SourceRef,
    Window,
    WorkloadId,
)
from steersman.operators.reload.api.windows import MaintenanceWindows, make_window, parse_windows
from steersman.operators.reload.sources.compare import CompareRule, parse_compare_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from steersman.operators.reload.api.config import ReloadOptions

# Written by users: on workloads and, where marked, on namespaces (N) and sources (S).
RELOAD: Final = "steersman.dev/reload"  # N S: auto | off | configmap/NAME,secret/NAME,…
RELOAD_EXTRA: Final = "steersman.dev/reload-extra"  # configmap/[NS/]NAME,…
RELOAD_IGNORE: Final = "steersman.dev/reload-ignore"  # configmap/NAME[#KEY],…
QUIET_PERIOD: Final = "steersman.dev/quiet-period"  # N
MAX_DELAY: Final = "steersman.dev/max-delay"  # N
BUDGET: Final = "steersman.dev/budget"  # N: 5/1h
WINDOWS: Final = "steersman.dev/windows"  # N: CRON for DURATION [in ZONE]; …
WAVE: Final = "steersman.dev/wave"  # a whole number; lower ones go first
DEPENDS_ON: Final = "steersman.dev/depends-on"  # deployment/NAME,…
ORDER_WITH: Final = "steersman.dev/order-with"  # N: NS,… | *
MAX_CONCURRENT: Final = "steersman.dev/max-concurrent"  # N only: rollouts at once
ON_FAILURE: Final = "steersman.dev/on-failure"  # N: halt | continue
ROLLOUT_DEADLINE: Final = "steersman.dev/rollout-deadline"  # N
GUARD: Final = "steersman.dev/guard"  # N: 10 | 30% | 10,30%
FREEZE: Final = "steersman.dev/freeze"  # N S: until=RFC3339 | true
ACTION: Final = "steersman.dev/action"  # restart | none | http port=8080 path=/-/reload … | evict
APPROVE: Final = "steersman.dev/approve"  # N S: DIGEST,…
SHARE_WITH: Final = "steersman.dev/share-with"  # S only: NS,… | *
COMPARE: Final = "steersman.dev/compare"  # S only: GLOB=json|yaml|properties|certificate|ignore|bytes,…
NOTIFY: Final = "steersman.dev/notify"  # N: NAME,… of reload.notify | none
URGENT: Final = "steersman.dev/urgent"  # S only: "true"

# Written by the operator: the first on the workload itself, the next two on its pod template.
APPLIED: Final = "steersman.dev/applied"
RESTARTED_AT: Final = "steersman.dev/restarted-at"
RESTARTED_FOR: Final = "steersman.dev/restarted-for"
RECREATES: Final = "steersman.dev/recreates"  # on the stand-in of a Job that is being recreated
RECREATED_BY: Final = "steersman.dev/recreated-by"  # on the Job itself: which stand-in, and what it says

PREFIX: Final = "steersman.dev/"  # of all of them

T = TypeVar("T")
KindAliases: TypeAlias = frozenset[tuple[str, str]]  # short and plural names of a kind -> the kind
NO_KIND_ALIASES: Final[KindAliases] = frozenset()
LONGEST_LIST: Final = 100  # entries of a list in an annotation: each costs time at every evaluation
NO_RECEIVERS: Final = "none"  # as receivers of notifications

_GLOB: Final = re.compile(r"[*?\[]")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_APPROVAL: Final = re.compile(r"[A-Za-z0-9_-]{12}")  # `gates.change_digest`: nothing else ever matches
_KINDS: Final = {
    name: kind
    for kind, names in {
        "Deployment": ("deployment", "deployments", "deploy"),
        "StatefulSet": ("statefulset", "statefulsets", "sts"),
        "DaemonSet": ("daemonset", "daemonsets", "ds"),
        "CronJob": ("cronjob", "cronjobs", "cj"),
        "Job": ("job", "jobs"),
        "Rollout": ("rollout", "rollouts", "ro"),
        "DeploymentConfig": ("deploymentconfig", "deploymentconfigs", "dc"),
    }.items()
    for name in names
}
_SIMILAR: Final = 0.75  # how much of a misspelt name must be right
_SHOWN: Final = 100  # characters of an invalid value that a message repeats
_LATEST: Final = 253_402_214_400.0  # the last day of the year 9999; a fraction of a second after it has no name


class Mode(StrEnum):
    """Whether a workload is enrolled."""

    AUTO = "auto"  # for every source it refers to
    OFF = "off"
    NAMED = "named"  # for the sources it names


class SourcePattern(msgspec.Struct, frozen=True):
    """A source by kind and name, and optionally one of its keys; names and keys may be globs."""

    kind: SourceKind
    name: str
    key: str | None = None  # None: the whole source

    @property
    def glob(self) -> bool:
        """Whether the name may match several sources."""
        return _GLOB.search(self.name) is not None

    def matches(self, source: SourceRef) -> bool:
        """Whether kind and name match `source`."""
        return source.kind == self.kind and bool(_expression(self.name).match(source.name))

    def matches_key(self, key: str) -> bool:
        """Whether a key of a matching source matches."""
        return self.key is None or bool(_expression(self.key).match(key))

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.name}{'' if self.key is None else f'#{self.key}'}"


class Freeze(msgspec.Struct, frozen=True):
    """No restarts for now."""

    until: float | None = None  # seconds since the epoch; None: until it is removed
    broken: str = ""  # why it cannot be parsed: it holds until it is corrected

    def holds(self, now: float) -> bool:
        """Whether it is still in force."""
        return self.until is None or now < self.until


class LayerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one layer: a workload, a namespace or a policy; None where it sets nothing."""

    mode: Mode | None = None
    named: tuple[SourcePattern, ...] = ()
    extra: tuple[SourceRef, ...] = ()
    ignore: tuple[SourcePattern, ...] = ()
    quiet: timedelta | None = None
    limit: timedelta | None = None
    freeze: Freeze | None = None
    budget: RestartBudget | None = None
    maintenance_windows: MaintenanceWindows | None = None
    wave: int | None = None
    depends: tuple[WorkloadId, ...] | None = None
    order_with: frozenset[str] | None = None  # namespaces; "*" is all of them
    max_concurrent: int | None = None
    max_concurrent_cluster: int | None = None  # in a ClusterReloadPolicy only
    notify: tuple[str, ...] | None = None  # receivers of notifications; empty: none of them
    on_failure: OnFailure | None = None
    deadline: timedelta | None = None
    guard: Guard | None = None
    action: ReloadAction | None = None
    approved: frozenset[str] = frozenset()  # digests of changes
    problems: tuple[str, ...] = ()  # each begins with the annotation it is about

    def window(self, outer: Window) -> Window:
        """The window of this layer inside that of `outer`."""
        return outer.inner(self.quiet, self.limit)


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings on a source."""

    off: bool = False
    shared_with: frozenset[str] = frozenset()  # namespaces; "*" is all of them
    urgent: bool = False
    compare: tuple[CompareRule, ...] = ()
    freeze: Freeze | None = None
    approved: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def grants(self, namespace: str) -> bool:
        """Whether workloads of another namespace may use it."""
        return "*" in self.shared_with or namespace in self.shared_with


NO_SETTINGS: Final = LayerSettings()
NO_SOURCE_SETTINGS: Final = SourceSettings()


class SettingsReader:
    """Parses the settings of one object and collects what is wrong with them."""

    def __init__(self, namespace: str = "", aliases: KindAliases = NO_KIND_ALIASES) -> None:
        """`namespace`: of the object; `aliases`: names of kinds besides the built-in ones."""
        self.namespace = namespace
        self.aliases = aliases
        self.problems: list[str] = []
        self.where = ""  # the annotation or field that is being parsed

    def read(self, where: str, value: Any, parse: Callable[[Any, SettingsReader], T]) -> T | None:
        """The parsed value; None, and a problem, when it is invalid."""
        self.where = where
        try:
            return parse(value, self)
        except FormatError as error:
            self.problem(str(error))
            return None

    def problem(self, text: str) -> None:
        """Report a problem with the value that is being parsed."""
        self.problems.append(f"{self.where}: {text}")

    def words(self, text: str) -> tuple[str, ...]:
        """The entries of a list in an annotation; of one that is too long the first ones, and a problem."""
        words, problem = split_list(text)
        if problem:
            self.problem(problem)
        return words

    def rows(self, rows: Iterable[Any], parse: Callable[[Any], T]) -> tuple[T, ...]:
        """The valid rows of a list in a policy; each invalid row is a problem with its index."""
        field, found = self.where, []
        for place, row in enumerate(rows):
            try:
                found.append(parse(row))
            except FormatError as error:
                self.problems.append(f"{field}[{place}]: {error}")
        return tuple(found)

    def held(self, value: T, broken: str) -> T:
        """A value that forbids restarts, also when it cannot be parsed: a typo must not cause a restart."""
        if broken:
            self.problem(f"{broken}; no restarts until it is corrected")
        return value


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, and every place it can be written in."""

    field: str  # of LayerSettings
    annotation: str = ""  # on workloads, and on namespaces for all workloads in them
    parse: Callable[[str, SettingsReader], Any] | None = None  # the text of the annotation
    policy: str = ""  # field of a policy's spec, as Python calls it
    parse_policy: Callable[[Any, SettingsReader], Any] | None = None  # the value in the spec; None: taken as it is
    default: Callable[[ReloadOptions], Any] | None = None  # when no layer sets it; None: the layers are added up


@lru_cache(maxsize=1024)
def split_list(text: str) -> tuple[tuple[str, ...], str]:
    """The entries of a comma-separated list, at most `LONGEST_LIST`, and what is wrong when there are more.

    Any user who may annotate a workload may write a list, and an evaluation takes time for each entry.

    >>> split_list("a, b,,c ")
    (('a', 'b', 'c'), '')
    """
    return bounded_list(_words(text))


def bounded_list(words: list[str]) -> tuple[tuple[str, ...], str]:
    """The first `LONGEST_LIST` entries, and what is wrong when there are more."""
    excess = len(words) > LONGEST_LIST
    problem = f"it has {len(words)} entries, of which the first {LONGEST_LIST} count" if excess else ""
    return tuple(words[:LONGEST_LIST]), problem


def read_settings(
    annotations: Mapping[str, str], namespace: str, aliases: KindAliases = NO_KIND_ALIASES
) -> LayerSettings:
    """The settings on a workload or a namespace; `aliases` are names of kinds besides the built-in ones."""
    if not annotations:
        return NO_SETTINGS
    reader = SettingsReader(namespace, aliases)
    reader.problems += _misspelt(annotations)
    found: dict[str, Any] = {}
    if (text := annotations.get(RELOAD)) is not None:
        found["mode"], found["named"] = reader.read(RELOAD, text, _mode) or (None, ())
    for setting in SETTINGS:
        if setting.parse is not None and (text := annotations.get(setting.annotation)) is not None:
            value = reader.read(setting.annotation, text, setting.parse)
            if value is not None:
                found[setting.field] = value
    if COMPARE in annotations:
        reader.problems.append(
            f"{COMPARE}: read on ConfigMaps and Secrets only; ignored here (annotate the source, or set reload.compare)"
        )
    return LayerSettings(**found, problems=tuple(reader.problems))


def read_namespace_settings(
    annotations: Mapping[str, str], name: str, aliases: KindAliases = NO_KIND_ALIASES
) -> LayerSettings:
    """The settings in the annotations of a namespace, for all workloads in it; sources are named on workloads only."""
    found = read_settings(annotations, name, aliases)
    misplaced = {RELOAD: found.named, RELOAD_EXTRA: found.extra, RELOAD_IGNORE: found.ignore}
    instead = {RELOAD: " (try auto or off)", RELOAD_IGNORE: " or in a policy"}
    problems = [
        f"{annotation}: sources are named on a workload{instead.get(annotation, '')}"
        for annotation, sources in misplaced.items()
        if sources
    ]
    if not problems:
        return found
    mode = None if found.named else found.mode
    return replace(found, mode=mode, named=(), extra=(), ignore=(), problems=(*found.problems, *problems))


def read_source_settings(annotations: Mapping[str, str]) -> SourceSettings:
    """The settings in the annotations of a source."""
    if not annotations:
        return NO_SOURCE_SETTINGS
    reader = SettingsReader()
    reader.problems += _misspelt(annotations)
    found = {
        field: value
        for annotation, field, parse in _SOURCE_SETTINGS
        if (text := annotations.get(annotation)) is not None
        and (value := reader.read(annotation, text, parse)) is not None
    }
    return SourceSettings(**found, problems=tuple(reader.problems))


def _misspelt(annotations: Mapping[str, str]) -> Iterator[str]:
    """Annotations with our prefix that are unknown but similar to a known one; others may belong to another program."""
    for name in annotations:
        if name.startswith(PREFIX) and name not in NATIVE_ANNOTATIONS:
            similar = get_close_matches(name.removeprefix(PREFIX), _SPELLINGS, n=1, cutoff=_SIMILAR)
            if similar:
                yield f"{_short(name)[1:-1]}: unknown annotation (did you mean {PREFIX}{similar[0]}?)"


def misspelt_dialect(annotations: Iterable[str], kept: frozenset[str]) -> tuple[str, ...]:
    """Annotations that resemble those of a dialect; `kept` are the annotations of all dialects, and ours."""
    return tuple(
        f"{_short(name)[1:-1]}: unknown annotation (did you mean {meant}?)"
        for name in annotations
        if name not in kept and not name.startswith(PREFIX) and (meant := _meant(name, kept))
    )


@lru_cache(maxsize=4096)
def _meant(name: str, kept: frozenset[str]) -> str:
    """The annotation that `name` resembles, empty when there is none.

    Its domain and the rest must each resemble: other annotations of the same domain are not mistakes.

    >>> _meant("reloader.stakater.com/autos", frozenset({"reloader.stakater.com/auto", "reloader.stakater.com/match"}))
    'reloader.stakater.com/auto'
    """
    domain, _, rest = name.rpartition("/")
    parts = [known.rpartition("/") for known in kept if not known.startswith(PREFIX) and not known.endswith("*")]
    for close in get_close_matches(domain, sorted({part[0] for part in parts}), cutoff=_SIMILAR):
        if found := get_close_matches(rest, sorted(part[2] for part in parts if part[0] == close), 1, _SIMILAR):
            return f"{close}/{found[0]}" if close else found[0]
    return ""


# -- parsers of annotations --------------------------------------------------------------------------------------------


def _mode(text: str, reader: SettingsReader) -> tuple[Mode, tuple[SourcePattern, ...]]:
    word = text.strip().lower()
    if word in (Mode.AUTO, Mode.OFF):
        return Mode(word), ()
    if "/" not in text:
        raise FormatError(f"{_short(text)} is neither auto, off nor a list of sources (try auto or configmap/NAME)")
    return Mode.NAMED, tuple(map(parse_pattern, reader.words(text)))


def _flag(text: str, _reader: SettingsReader) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false", ""):
        raise FormatError(f"{_short(text)} is neither true nor false")
    return word == "true"


def _off(text: str, _reader: SettingsReader) -> bool:
    if text.strip().lower() != Mode.OFF:
        raise FormatError(f"{_short(text)} has no meaning on a source (try off)")
    return True


def _approvals(text: str, _reader: SettingsReader) -> frozenset[str]:
    words = _words(text)
    for word in words:
        if not _APPROVAL.fullmatch(word):
            hint = "try steersman reload approve configmap/NAME"
            raise FormatError(f"{_short(word)} is not the digest of a change ({hint})")
    return frozenset(words)


def parse_pattern(text: str) -> SourcePattern:
    """`configmap/NAME`, optionally with `#KEY`; both may be globs."""
    source, sign, key = text.partition("#")
    kind, slash, name = source.partition("/")
    if kind not in tuple(SourceKind) or not slash or not name or "/" in name or (sign and not key):
        raise FormatError(f"{_short(text)} is not a source (try configmap/NAME, secret/NAME or configmap/NAME#KEY)")
    if _unclosed(name) or _unclosed(key):
        raise FormatError(f"{_short(text)} has a [ without a ] (try configmap/web-*, or [ab] for one of these letters)")
    return SourcePattern(SourceKind(kind), name, key if sign else None)


def _unclosed(glob: str) -> bool:
    """Whether a set of characters has no end, so that its [ would match itself."""
    opens = glob.find("[")
    while opens >= 0:
        first = opens + 1 + glob.startswith("!", opens + 1)
        closes = glob.find("]", first + 1)  # a ] that comes first is a member
        if closes < 0:
            return True
        opens = glob.find("[", closes)
    return False


def _freeze(text: str, reader: SettingsReader) -> Freeze | None:
    found = parse_freeze(text)
    return None if found is None else reader.held(found, found.broken)


def parse_freeze(text: str) -> Freeze | None:
    """`true` or `until=` a time or a day, which ends where the day begins in UTC; `false` is none."""
    word = text.strip()
    if word.lower() in ("", "false"):
        return None
    if word.lower() == "true":
        return Freeze()
    when = word.removeprefix("until=")
    if when == word:
        return Freeze(broken=f"{_short(text)} is not a freeze (try true or until=2006-01-02T15:04:05Z)")
    try:
        until = parse_time(f"{when}T00:00:00Z" if _DAY.fullmatch(when) else when).timestamp()
    except FormatError:
        return Freeze(broken=f"until={_short(when)} is not an RFC 3339 time (try until=2006-01-02T15:04:05Z)")
    return Freeze(min(until, _LATEST))


def _windows(text: str, reader: SettingsReader) -> MaintenanceWindows:
    if not text.replace(";", " ").strip():
        raise FormatError("it is empty and has no effect (try 0 2 * * * for 2h, or remove it)")
    found = parse_windows(text)
    return reader.held(found, found.broken)


def parse_budget(text: str) -> RestartBudget:
    """`5/1h`; 0 means no limit."""
    count, slash, per = text.partition("/")
    number = _number(count, "a budget", "5/1h", least=0)
    if number > MOST_RESTARTS:
        raise FormatError(f"{number} restarts are more than are recorded (at most {MOST_RESTARTS}; 0 means no limit)")
    length = parse_duration(per.strip()) if slash else timedelta(hours=1)
    if not length:
        raise FormatError(f"{_short(text)} is not a budget (try 5/1h)")
    return RestartBudget(restarts=number, per=length)


def parse_guard(text: str) -> Guard:
    """`10`, `30%` or `10,30%`; 0 means no limit."""
    workloads, percent = 0, 0.0
    for word in _words(text):
        if not word.endswith("%"):
            workloads = _number(word, "a guard", "10 or 30%", least=0)
            continue
        try:
            percent = float(word[:-1])
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise FormatError(f"{_short(text)} is not a guard (try 10 or 30%)")
    return Guard(workloads=workloads, percent=percent)


def parse_dependency(text: str, reader: SettingsReader) -> WorkloadId:
    """`deployment/NAME`, in the namespace of the object that is read."""
    kind, slash, name = text.strip().partition("/")
    known = _KINDS.get(kind.lower()) or dict(reader.aliases).get(kind.lower())
    if known is None or not slash or not name or "/" in name:
        raise FormatError(f"{_short(text)} is not a workload (try deployment/NAME or statefulset/NAME)")
    return WorkloadId(known, reader.namespace, name)


def parse_namespaces(words: Iterable[str]) -> frozenset[str]:
    """Names of namespaces, or `*` for all of them."""
    found = frozenset(words)
    for word in sorted(found):
        if word != "*" and dns_label_errors(word):
            raise FormatError(f"{_short(word)} is not a namespace (try shop, or * for all)")
    return found


def _on_failure(text: str, _reader: SettingsReader) -> OnFailure:
    try:
        return OnFailure(text.strip().lower())
    except ValueError:
        raise FormatError(f"{_short(text)} is neither halt nor continue") from None


def _number(text: str, what: str, example: str, *, least: int | None = None) -> int:
    word = text.strip()
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 9) or (least is not None and int(word) < least):
        raise FormatError(f"{_short(text)} is not {what} (try {example})")
    return int(word)


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _short(text: str) -> str:
    return quoted(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


@lru_cache(maxsize=4096)
def _expression(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


# -- parsers of policies -----------------------------------------------------------------------------------------------


def _policy_budget(budget: Any, reader: SettingsReader) -> RestartBudget | None:
    field = reader.where
    per = reader.read(f"{field}.per", budget.per, _duration)
    if per is not None and not per:
        reader.problem("must be longer than 0 (try 1h)")
    if budget.restarts > MOST_RESTARTS:  # not in the schema: there may be policies from before this limit
        reader.where = f"{field}.restarts"
        reader.problem(f"{budget.restarts} are more than are recorded (at most {MOST_RESTARTS}; 0 means no limit)")
        return None
    return RestartBudget(restarts=budget.restarts, per=per) if per else None


def _policy_windows(rows: list[Any], reader: SettingsReader) -> MaintenanceWindows:
    before = len(reader.problems)
    windows = reader.rows(rows, lambda row: make_window(row.cron, row.duration, row.time_zone))
    broken = reader.problems[before:]
    return MaintenanceWindows(broken=broken[0]) if broken else MaintenanceWindows(windows=windows)


def _duration(text: str, _reader: SettingsReader) -> timedelta:
    return parse_duration(text)


SETTINGS: Final = (
    Setting(field="quiet", annotation=QUIET_PERIOD, parse=_duration, policy="quiet_period", parse_policy=_duration),
    Setting(field="limit", annotation=MAX_DELAY, parse=_duration, policy="max_delay", parse_policy=_duration),
    Setting(field="freeze", annotation=FREEZE, parse=_freeze, policy="freeze", parse_policy=_freeze),
    Setting(
        field="budget",
        annotation=BUDGET,
        parse=lambda text, _: parse_budget(text),
        policy="budget",
        parse_policy=_policy_budget,
        default=lambda options: options.budget,
    ),
    Setting(
        field="maintenance_windows",
        annotation=WINDOWS,
        parse=_windows,
        policy="windows",
        parse_policy=_policy_windows,
        default=lambda options: options.maintenance_windows,
    ),
    Setting(
        field="wave",
        annotation=WAVE,
        parse=lambda text, _: _number(text, "a wave", "0, 1 or 2"),
        policy="wave",
        default=lambda _: 0,
    ),
    Setting(
        field="depends",
        annotation=DEPENDS_ON,
        parse=lambda text, reader: tuple(parse_dependency(word, reader) for word in reader.words(text)),
        policy="depends_on",
        parse_policy=lambda rows, reader: reader.rows(rows, lambda word: parse_dependency(word, reader)),
        default=lambda _: (),
    ),
    Setting(
        field="order_with",
        annotation=ORDER_WITH,
        parse=lambda text, reader: parse_namespaces(reader.words(text)),
        policy="order_with",
        parse_policy=lambda rows, _: parse_namespaces(rows),
        default=lambda options: options.order_with,
    ),
    Setting(
        field="max_concurrent",
        annotation=MAX_CONCURRENT,
        parse=lambda text, _: _number(text, "a limit", "1", least=0),
        policy="max_concurrent",
        default=lambda options: options.max_concurrent_per_namespace,
    ),
    Setting(
        field="max_concurrent_cluster",
        policy="max_concurrent_in_cluster",
        default=lambda options: options.max_concurrent,
    ),
    Setting(
        field="notify",
        annotation=NOTIFY,
        parse=lambda text, _: () if text.strip() == NO_RECEIVERS else tuple(_words(text)),
        policy="notify",
        parse_policy=lambda names, _: tuple(names),
        default=lambda _: None,
    ),
    Setting(
        field="on_failure",
        annotation=ON_FAILURE,
        parse=_on_failure,
        policy="on_failure",
        parse_policy=_on_failure,
        default=lambda options: options.on_failure,
    ),
    Setting(
        field="deadline",
        annotation=ROLLOUT_DEADLINE,
        parse=_duration,
        policy="rollout_deadline",
        parse_policy=_duration,
        default=lambda options: options.deadline,
    ),
    Setting(
        field="guard",
        annotation=GUARD,
        parse=lambda text, _: parse_guard(text),
        policy="guard",
        parse_policy=lambda guard, _: Guard(workloads=guard.workloads, percent=guard.percent),
        default=lambda options: options.guard,
    ),
    Setting(
        field="action",
        annotation=ACTION,
        parse=lambda text, _: parse_action(text),
        policy="action",
        parse_policy=lambda text, _: parse_action(text),
        default=lambda _: RESTART,
    ),
    Setting(
        field="ignore",
        annotation=RELOAD_IGNORE,
        parse=lambda text, reader: tuple(map(parse_pattern, reader.words(text))),
        policy="ignore",
        parse_policy=lambda rows, reader: reader.rows(rows, parse_pattern),
    ),
    Setting(
        field="extra",
        annotation=RELOAD_EXTRA,
        parse=lambda text, reader: tuple(SourceRef.parse(word, reader.namespace) for word in reader.words(text)),
    ),
    Setting(field="approved", annotation=APPROVE, parse=_approvals),
)

_SOURCE_SETTINGS: Final[tuple[tuple[str, str, Callable[[str, SettingsReader], Any]], ...]] = (
    (RELOAD, "off", _off),
    (SHARE_WITH, "shared_with", lambda text, _: frozenset(_words(text))),
    (COMPARE, "compare", lambda text, reader: parse_compare_rules(",".join(reader.words(text)), "the source")),
    (URGENT, "urgent", _flag),
    (FREEZE, "freeze", _freeze),
    (APPROVE, "approved", _approvals),
)

_SET_BY_USERS: Final = frozenset(
    {RELOAD, *(row.annotation for row in SETTINGS if row.annotation), *(key for key, _, _ in _SOURCE_SETTINGS)}
)
NATIVE_ANNOTATIONS: Final = _SET_BY_USERS | {APPLIED, RESTARTED_AT, RESTARTED_FOR, RECREATES, RECREATED_BY}
_SPELLINGS: Final = sorted(name.removeprefix(PREFIX) for name in _SET_BY_USERS)
