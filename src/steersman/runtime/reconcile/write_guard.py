"""The write guard: what every write of a manager passes, from whichever code and by whichever method.

    context, raw client, status, events ─► client ─┐
    tasks, routes, other clusters       ─► client ─┼─► guard: dry run? fence? ─► counted, logged ─► the API server
    HTTP calls, rndc, notifications     ─► effect ─┘

Invariant: nothing leaves this process in a dry run, nor while the process does not lead, nor, where processes share the
namespaces, for a key of a namespace that is not its own. The guard is asked when the connection is there, immediately
before each attempt, also of a repeated request and in the middle of a reconcile: a process that was stopped beyond its
lease finds the fence closed. What it cannot do: call back a request that is on its way.

- In a dry run, writes to Kubernetes become server-side dry runs; what has no dry run raises `NotInDryRun`.
- An *effect* is a change outside Kubernetes, which has a name. In a dry run `effect` answers False and logs it.
- Behind a closed fence both raise `NotLeading`.
- The client of a reconcile's context writes for its key, in whatever thread or task it is used. For whom everything
  else is written is in a context variable that the runner sets: it follows a reconcile into its tasks, and an event
  into the queue of the recorder. Everything else that a manager starts (tasks, routes, watches and their mappings) has
  a scope without a key, for which the fence asks for what concerns no namespace.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steersman.errors import SteersmanError
from steersman.kube.transport.write_requests import dry_run_of
from steersman.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from steersman.kube.transport.write_requests import WriteRequest

__all__ = [
    "DRY_RUN",
    "NOT_LEADER",
    "NOT_OWNER",
    "BoundGuard",
    "NotInDryRun",
    "NotLeading",
    "WriteGuard",
    "WriteScope",
    "effect",
    "scope",
    "within",
]

DRY_RUN: Final = "dry_run"
NOT_LEADER: Final = "not_leader"
NOT_OWNER: Final = "not_owner"
_WHY: Final = {
    NOT_LEADER: "this process no longer leads: nothing is written",
    NOT_OWNER: "this process no longer works on that namespace: nothing is written",
}

log = Logger(__name__)


class NotLeading(SteersmanError):  # noqa: N818  a state, not a fault
    """A write, or an effect, after the term of this process was over."""


class NotInDryRun(SteersmanError):  # noqa: N818  a state, not a fault
    """A request that acts the moment it is sent, such as one for a token."""


class WriteScope(NamedTuple):
    """The key that something is written for."""

    guard: WriteGuard
    key: Any = None  # of the reconcile; None: of a task, or of nothing in particular


_SCOPE: ContextVar[WriteScope | None] = ContextVar("steersman_write_scope", default=None)


class WriteGuard:
    """Decides about the writes of one manager; see the module's docstring."""

    def __init__(self, *, dry_run: bool = False) -> None:
        self.dry_run = dry_run
        self.fence: Callable[[Any], str] = lambda _key: ""  # why nothing may be written for a key now; empty: it may
        self.withheld = {DRY_RUN: 0, NOT_LEADER: 0, NOT_OWNER: 0}

    # -- what a guarded client asks (steersman.kube.transport.write_requests) ------------------------------------------

    def prepare(self, write: WriteRequest) -> WriteRequest:
        """The write as it is to be sent."""
        self.admit(write)
        if not self.dry_run:
            return write
        self.withheld[DRY_RUN] += 1
        pretended = dry_run_of(write)
        sent = "no" if pretended is None else "with dryRun=All, so nothing is stored"
        log.info("dry run", write=f"{write.method} {write.path}", sent=sent)
        if pretended is None:
            raise NotInDryRun(f"{write.method} {write.path} has no dry run: it is not sent")
        return pretended

    def admit(self, write: WriteRequest) -> None:
        """Raise when nothing may be written now."""
        if reason := self.fence(self._key()):
            self._refuse(reason, f"{write.method} {write.path}")

    # -- effects outside Kubernetes ------------------------------------------------------------------------------------

    def effect(self, name: str, target: str = "") -> bool:
        """Whether to have an effect outside Kubernetes now; ask immediately before every attempt."""
        if reason := self.fence(self._key()):
            self._refuse(reason, f"{name} {target}".rstrip())
        if self.dry_run:
            self.withheld[DRY_RUN] += 1
            log.info("dry run", effect=name, target=target, sent="no")
        return not self.dry_run

    def event(self, reason: str, message: str) -> bool:
        """Whether to record an Event: in a dry run the log has it instead. The fence is asked when it is sent."""
        if self.dry_run:
            self.withheld[DRY_RUN] += 1
            log.info("dry run", write=f"Event {reason}: {message}", sent="no")
        return not self.dry_run

    # -- scopes --------------------------------------------------------------------------------------------------------

    def acting_for(self, key: Any) -> within:
        """As a context manager: what is written within is written for `key`."""
        return within(WriteScope(self, key))

    def bound_to(self, key: Any) -> BoundGuard:
        """The same guard, for what is written for `key` wherever that happens."""
        return BoundGuard(WriteScope(self, key))

    def _key(self) -> Any:
        current = _SCOPE.get()
        return None if current is None or current.guard is not self else current.key

    def _refuse(self, reason: str, what: str) -> None:
        self.withheld[reason] += 1
        key = self._key()
        log.warning("write refused", reason=reason, write=what, **({} if key is None else {"key": str(key)}))
        raise NotLeading(_WHY[reason])


class BoundGuard:
    """A guard for one key: a thread that the reconcile started has no context variables of it."""

    def __init__(self, scope: WriteScope) -> None:
        self._scope = scope

    def prepare(self, write: WriteRequest) -> WriteRequest:
        """As `WriteGuard.prepare`."""
        with within(self._scope):
            return self._scope.guard.prepare(write)

    def admit(self, write: WriteRequest) -> None:
        """As `WriteGuard.admit`."""
        with within(self._scope):
            self._scope.guard.admit(write)

    def effect(self, name: str, target: str = "") -> bool:
        """As `WriteGuard.effect`."""
        with within(self._scope):
            return self._scope.guard.effect(name, target)


def scope() -> WriteScope | None:
    """The scope of this code, for `within` where the rest of its work is done later."""
    return _SCOPE.get()


class within:  # noqa: N801  a context manager that every reconcile enters: a generator costs twice as much
    """Work in a scope that `scope` gave."""

    __slots__ = ("_entered", "_token")

    def __init__(self, entered: WriteScope | None) -> None:
        self._entered = entered

    def __enter__(self) -> None:
        self._token = _SCOPE.set(self._entered)

    def __exit__(self, *exc: object) -> None:
        _SCOPE.reset(self._token)


def effect(name: str, target: str = "") -> bool:
    """As `Context.effect`, for code that has no context at hand; True where no manager runs it, as in a command."""
    current = _SCOPE.get()
    return True if current is None else current.guard.effect(name, target)
