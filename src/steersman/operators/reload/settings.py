"""What people wrote on a workload, a namespace or a source, read once. Pure.

A value that makes no sense is a problem that names the annotation; it is left out and everything else still counts. So
a typo in one annotation never switches off another one, and never another workload. What says no stays a no: a freeze
or windows that cannot be read hold restarts back until they are right.
"""

from __future__ import annotations

import re
from datetime import timedelta  # msgspec reads the annotations
from difflib import get_close_matches
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from steersman.errors import FormatError
from steersman.kube.durations import parse_duration
from steersman.kube.names import quoted
from steersman.kube.times import parse_time
from steersman.operators.reload.comparison import Comparison, parse_compare_rows, parse_comparisons
from steersman.operators.reload.features import CompareConfig
from steersman.operators.reload.means import Means, parse_means
from steersman.operators.reload.timetable import Timetable, parse_timetable
from steersman.operators.reload.types import (
    ACTION,
    APPLIED,
    APPROVE,
    BUDGET,
    COMPARE,
    DEPENDS_ON,
    FREEZE,
    GUARD,
    MAX_CONCURRENT,
    MAX_DELAY,
    MOST_RESTARTS,
    NATIVE_ANNOTATIONS,
    NOTIFY,
    ON_FAILURE,
    PREFIX,
    QUIET_PERIOD,
    RECREATED_BY,
    RECREATES,
    RELOAD,
    RELOAD_EXTRA,
    RELOAD_IGNORE,
    RESTARTED_AT,
    RESTARTED_FOR,
    ROLLOUT_DEADLINE,
    SHARE_WITH,
    URGENT,
    WAVE,
    WINDOWS,
    Budget,
    Guard,
    OnFailure,
    SourceKind,
    SourceRef,
    Window,
    WorkloadId,
)
from steersman.operators.reload.wordlists import words_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "NO_WORDS",
    "Freeze",
    "KindWords",
    "Mode",
    "Pattern",
    "Settings",
    "SourceSettings",
    "read_budget",
    "read_dependency",
    "read_freeze",
    "read_guard",
    "read_namespace_settings",
    "read_pattern",
    "read_settings",
    "read_source_settings",
]

T = TypeVar("T")
KindWords: TypeAlias = frozenset[tuple[str, str]]  # what people call a kind -> its name
NO_WORDS: Final[KindWords] = frozenset()

_GLOB: Final = re.compile(r"[*?\[]")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_APPROVAL: Final = re.compile(r"[A-Za-z0-9_-]{12}")  # `gates.change_digest`: anything else never fits
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
_TRY: Final = {RELOAD: " (try auto or off)", RELOAD_IGNORE: " or in a policy"}
NOBODY: Final = "none"  # as receivers of messages
_WRITTEN: Final = {APPLIED, RESTARTED_AT, RESTARTED_FOR, RECREATES, RECREATED_BY}  # by us, never by people
_SPELLINGS: Final = sorted(name.removeprefix(PREFIX) for name in NATIVE_ANNOTATIONS - _WRITTEN)
_NEAR: Final = 0.75  # how much of a name must be right
_SHOWN: Final = 100  # characters of a bad value that a message repeats
_LATEST: Final = 253_402_214_400.0  # the last day of the year 9999; a fraction of a second after it has no name


class Mode(StrEnum):
    """Whether a workload takes part."""

    AUTO = "auto"  # every source it refers to
    OFF = "off"
    NAMED = "named"  # the sources it names


class Pattern(msgspec.Struct, frozen=True):
    """A source by kind and name, and perhaps one of its keys; names and keys may be globs."""

    kind: SourceKind
    name: str
    key: str | None = None  # None: the whole source

    @property
    def glob(self) -> bool:
        """Whether the name stands for several."""
        return _GLOB.search(self.name) is not None

    def matches(self, source: SourceRef) -> bool:
        """Whether this is about `source`, as far as kind and name say."""
        return source.kind == self.kind and bool(_expression(self.name).match(source.name))

    def matches_key(self, key: str) -> bool:
        """Whether this is about a key of a source it matches."""
        return self.key is None or bool(_expression(self.key).match(key))

    def __str__(self) -> str:
        return f"{self.kind.value}/{self.name}{'' if self.key is None else f'#{self.key}'}"


class Freeze(msgspec.Struct, frozen=True):
    """No restart for now."""

    until: float | None = None  # seconds since the epoch; None: until somebody lifts it
    broken: str = ""  # why it cannot be read: it holds until it is right

    def holds(self, now: float) -> bool:
        """Whether it is still in force."""
        return self.until is None or now < self.until


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload or a namespace asks for; None where it asks for nothing."""

    mode: Mode | None = None
    named: tuple[Pattern, ...] = ()
    extra: tuple[SourceRef, ...] = ()
    ignore: tuple[Pattern, ...] = ()
    quiet: timedelta | None = None
    limit: timedelta | None = None
    freeze: Freeze | None = None
    budget: Budget | None = None
    timetable: Timetable | None = None
    wave: int | None = None
    depends: tuple[WorkloadId, ...] | None = None
    max_concurrent: int | None = None
    max_concurrent_cluster: int | None = None  # of a cluster's policy only
    notify: tuple[str, ...] | None = None  # receivers of messages; none of them: nobody
    on_failure: OnFailure | None = None
    deadline: timedelta | None = None
    guard: Guard | None = None
    means: Means | None = None
    compare: tuple[CompareConfig, ...] = ()  # how keys of sources are compared
    approved: frozenset[str] = frozenset()  # digests of changes
    problems: tuple[str, ...] = ()  # each names the annotation it is about

    def window(self, outer: Window) -> Window:
        """The window, where these settings say nothing that of `outer`."""
        return outer.inner(self.quiet, self.limit)


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a source says about itself."""

    off: bool = False
    shared_with: frozenset[str] = frozenset()  # namespaces; "*" is all of them
    urgent: bool = False
    compare: tuple[Comparison, ...] = ()
    freeze: Freeze | None = None
    approved: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def grants(self, namespace: str) -> bool:
        """Whether workloads of another namespace may use it."""
        return "*" in self.shared_with or namespace in self.shared_with


NO_SETTINGS: Final = Settings()
NO_SOURCE_SETTINGS: Final = SourceSettings()


def read_settings(annotations: Mapping[str, str], namespace: str, words: KindWords = NO_WORDS) -> Settings:
    """The settings in the annotations of a workload (or of a namespace) in `namespace`.

    `words` are names of kinds besides those that are built in.
    """
    if not annotations:
        return NO_SETTINGS
    reader = _Reader(annotations)
    mode, named = reader.read(RELOAD, lambda text: _mode(reader.bounded(RELOAD, text))) or (None, ())
    found = Settings(
        mode=mode,
        named=named,
        extra=reader.read_list(RELOAD_EXTRA, lambda word: SourceRef.parse(word, namespace)) or (),
        ignore=reader.read_list(RELOAD_IGNORE, read_pattern) or (),
        quiet=reader.read(QUIET_PERIOD, parse_duration),
        limit=reader.read(MAX_DELAY, parse_duration),
        freeze=reader.read_freeze(),
        budget=reader.read(BUDGET, read_budget),
        timetable=reader.read_timetable(),
        wave=reader.read(WAVE, lambda text: _number(text, "a wave", "0, 1 or 2")),
        depends=reader.read_list(DEPENDS_ON, lambda word: read_dependency(word, namespace, words)),
        notify=reader.read(NOTIFY, lambda text: () if text.strip() == NOBODY else tuple(_words(text))),
        max_concurrent=reader.read(MAX_CONCURRENT, lambda text: _number(text, "a limit", "1", least=0)),
        on_failure=reader.read(ON_FAILURE, _on_failure),
        deadline=reader.read(ROLLOUT_DEADLINE, parse_duration),
        guard=reader.read(GUARD, read_guard),
        means=reader.read(ACTION, parse_means),
        compare=reader.read(COMPARE, lambda text: parse_compare_rows(reader.bounded(COMPARE, text))) or (),
        approved=reader.read(APPROVE, _approvals) or frozenset(),
    )
    return replace(found, problems=tuple(reader.problems)) if reader.problems else found


def read_namespace_settings(annotations: Mapping[str, str], name: str, words: KindWords = NO_WORDS) -> Settings:
    """The settings in the annotations of a namespace, for all workloads in it: what they use each says for itself."""
    found = read_settings(annotations, name, words)
    lost = {RELOAD: found.named, RELOAD_EXTRA: found.extra, RELOAD_IGNORE: found.ignore}
    problems = [f"{one}: sources are named on a workload{_TRY.get(one, '')}" for one, named in lost.items() if named]
    if not problems:
        return found
    mode = None if found.named else found.mode
    return replace(found, mode=mode, named=(), extra=(), ignore=(), problems=(*found.problems, *problems))


def read_source_settings(annotations: Mapping[str, str]) -> SourceSettings:
    """The settings in the annotations of a source."""
    if not annotations:
        return NO_SOURCE_SETTINGS
    reader = _Reader(annotations)
    found = SourceSettings(
        off=bool(reader.read(RELOAD, _off)),
        shared_with=reader.read(SHARE_WITH, lambda text: frozenset(_words(text))) or frozenset(),
        compare=reader.read(COMPARE, lambda text: parse_comparisons(reader.bounded(COMPARE, text), "the source")) or (),
        urgent=bool(reader.read(URGENT, _flag)),
        freeze=reader.read_freeze(),
        approved=reader.read(APPROVE, _approvals) or frozenset(),
    )
    return replace(found, problems=tuple(reader.problems)) if reader.problems else found


class _Reader:
    """Reads annotations one by one and notes what is wrong."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._annotations = annotations
        self.problems: list[str] = list(_misspelt(annotations))

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        text = self._annotations.get(name)
        if text is None:
            return None
        try:
            return parse(text)
        except FormatError as error:
            self.problems.append(f"{name}: {error}")
            return None

    def read_list(self, name: str, parse: Callable[[str], T]) -> tuple[T, ...] | None:
        return self.read(name, lambda text: tuple(parse(word) for word in _words(self.bounded(name, text))))

    def bounded(self, name: str, text: str) -> str:
        """The text of a list, of one that is too long the beginning."""
        words, problem = words_in(text)
        if not problem:
            return text
        self.problems.append(f"{name}: {problem}")
        return ",".join(words)

    def read_freeze(self) -> Freeze | None:
        found = self.read(FREEZE, read_freeze)
        if found is not None and found.broken:
            self.problems.append(f"{FREEZE}: {found.broken}; until it is right, nothing is restarted")
        return found

    def read_timetable(self) -> Timetable | None:
        if not self._annotations.get(WINDOWS, "x").replace(";", " ").strip():
            self.problems.append(f"{WINDOWS}: it is empty and says nothing (try 0 2 * * * for 2h, or leave it out)")
            return None
        found = self.read(WINDOWS, parse_timetable)
        if found is not None and found.broken:
            self.problems.append(f"{WINDOWS}: {found.broken}; until it is right, nothing is restarted")
        return found


def _misspelt(annotations: Mapping[str, str]) -> Iterator[str]:
    """Names of ours that are none, but nearly; others may belong to somebody else."""
    for name in annotations:
        if name.startswith(PREFIX) and name not in NATIVE_ANNOTATIONS:
            near = get_close_matches(name.removeprefix(PREFIX), _SPELLINGS, n=1, cutoff=_NEAR)
            if near:
                yield f"{_short(name)[1:-1]}: there is no such annotation (did you mean {PREFIX}{near[0]}?)"


def _mode(text: str) -> tuple[Mode, tuple[Pattern, ...]]:
    word = text.strip().lower()
    if word in (Mode.AUTO, Mode.OFF):
        return Mode(word), ()
    if "/" not in text:
        raise FormatError(f"{_short(text)} is neither auto, off nor a list of sources (try auto or configmap/NAME)")
    return Mode.NAMED, _patterns(text)


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false", ""):
        raise FormatError(f"{_short(text)} is neither true nor false")
    return word == "true"


def _off(text: str) -> bool:
    if text.strip().lower() != Mode.OFF:
        raise FormatError(f"{_short(text)} means nothing on a source (try off)")
    return True


def _approvals(text: str) -> frozenset[str]:
    words = _words(text)
    for word in words:
        if not _APPROVAL.fullmatch(word):
            raise FormatError(
                f"{_short(word)} is not the digest of a change (try steersman reload approve configmap/NAME)"
            )
    return frozenset(words)


def _patterns(text: str) -> tuple[Pattern, ...]:
    return tuple(read_pattern(word) for word in _words(text))


def read_pattern(text: str) -> Pattern:
    """`configmap/NAME`, perhaps with `#KEY`; both may be globs."""
    source, sign, key = text.partition("#")
    kind, slash, name = source.partition("/")
    if kind not in tuple(SourceKind) or not slash or not name or "/" in name or (sign and not key):
        raise FormatError(f"{_short(text)} is not a source (try configmap/NAME, secret/NAME or configmap/NAME#KEY)")
    if _unclosed(name) or _unclosed(key):
        raise FormatError(f"{_short(text)} has a [ without a ] (try configmap/web-*, or [ab] for one of these letters)")
    return Pattern(SourceKind(kind), name, key if sign else None)


def _unclosed(glob: str) -> bool:
    """Whether a set of characters has no end, so that its [ would stand for itself."""
    opens = glob.find("[")
    while opens >= 0:
        first = opens + 1 + glob.startswith("!", opens + 1)
        closes = glob.find("]", first + 1)  # a ] that comes first is a member
        if closes < 0:
            return True
        opens = glob.find("[", closes)
    return False


def read_freeze(text: str) -> Freeze | None:
    """`true` or `until=` a time or a day, which ends where the day begins in UTC; `false` is none.

    What cannot be read holds: whoever asked for a freeze did not ask for a restart because of a typo.
    """
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


def read_budget(text: str) -> Budget:
    """`5/1h`; 0 is no limit."""
    count, slash, per = text.partition("/")
    number = _number(count, "a budget", "5/1h", least=0)
    if number > MOST_RESTARTS:
        raise FormatError(f"{number} restarts are more than are remembered (at most {MOST_RESTARTS}; 0 is no limit)")
    length = parse_duration(per.strip()) if slash else timedelta(hours=1)
    if not length:
        raise FormatError(f"{_short(text)} is not a budget (try 5/1h)")
    return Budget(restarts=number, per=length)


def read_guard(text: str) -> Guard:
    """`10`, `30%` or `10,30%`; 0 is no limit."""
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


def read_dependency(text: str, namespace: str, words: KindWords = NO_WORDS) -> WorkloadId:
    """`deployment/NAME` in `namespace`; `words` are names of kinds besides those that are built in."""
    kind, slash, name = text.strip().partition("/")
    known = _KINDS.get(kind.lower()) or dict(words).get(kind.lower())
    if known is None or not slash or not name or "/" in name:
        raise FormatError(f"{_short(text)} is not a workload (try deployment/NAME or statefulset/NAME)")
    return WorkloadId(known, namespace, name)


def _on_failure(text: str) -> OnFailure:
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
