"""The operators as chaos runs see them: what users do, what is expected in the end, and what counts as done twice."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.clock import Clock
    from steersman.kube.client.client import Client
    from steersman.runtime.manager.operator_bundle import OperatorBundle
    from tests.support.chaos.checkers import Act, Cause
    from tests.support.chaos.history import History
    from tests.support.chaos.schedule import Choice, Step

__all__ = ["NAMES", "NAMESPACE", "Subject", "subject"]

NAMESPACE = "shop"
NAMES = ("reload", "hourglass", "toolset", "dns")


class Subject:
    """An operator under test; one object per run."""

    name: str
    actions: Sequence[Choice]  # of users
    faults: Sequence[Choice] = ()  # of what only this operator uses
    churn: tuple[str, str, str]  # the actions that create and delete an object, and its kind
    simulated = False  # whether workloads must behave, as on a cluster
    namespace = NAMESPACE
    clock: Clock  # both are set before `prepare`
    history: History

    async def install(self, client: Client) -> None:
        """Install its kinds."""

    async def prepare(self, client: Client) -> None:
        """Create the first objects."""
        raise NotImplementedError

    async def close(self) -> None:
        """Undo what `prepare` did outside the API server."""

    def bundle(self, clock: Clock, registry: Any) -> OperatorBundle:
        """The operator as one process runs it."""
        raise NotImplementedError

    def settings(self) -> str:
        """The same, as the configuration file of `steersman run`."""
        raise NotImplementedError

    async def act(self, client: Client, step: Step) -> bool:
        """Do what a user does; False when there was nothing to do it to."""
        raise NotImplementedError

    async def disturb(self, step: Step, seconds: float) -> None:
        """Inject one of its own faults, and lift it again."""

    async def finish(self, client: Client) -> None:
        """Do what users do in the end, so that nothing waits for them."""

    async def touch(self, client: Client) -> None:
        """Change something that must not matter to the operator."""
        raise NotImplementedError

    async def unmet(self, client: Client, history: History) -> list[str]:
        """What is not yet as it should be."""
        raise NotImplementedError

    def acts(self, history: History) -> list[Act]:
        """What the operator did that must not be done twice."""
        raise NotImplementedError

    def causes(self, history: History) -> list[Cause]:
        """What entitled it to do that."""
        raise NotImplementedError


def subject(name: str) -> Subject:
    """The operator of that name; ValueError says which there are."""
    if name not in NAMES:
        raise ValueError(f'--operators: unknown operator "{name}" (known: {", ".join(NAMES)})')
    made: Subject = getattr(import_module(f"{__name__}.{name}"), f"{name.title()}Subject")()
    return made
