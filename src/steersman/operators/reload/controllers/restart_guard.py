"""The write guard of the reload operator: whether its controllers may restart anything now.

The runtime's guard knows dry runs and leadership. This one knows other controllers: while a conflicting controller
leads, or in shadow mode, which only compares with another controller, workloads are evaluated and nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class RestartGuard:
    """See the module. Without reasons controllers write."""

    def __init__(self, *, shadow: bool = False) -> None:
        """`shadow`: nothing is ever written, and plans go on as if it had been."""
        self.shadow = shadow
        self._reasons: list[Callable[[str | None], str | None]] = []  # in a namespace; None: in all of them
        self._events: list[asyncio.Event] = []

    def block_while(self, reason: Callable[[str | None], str | None], *, after: asyncio.Event) -> None:
        """Write nothing while there is a reason, and evaluate nothing before `after` is set."""
        self._reasons.append(reason)
        self.wait_for(after)

    def wait_for(self, event: asyncio.Event) -> None:
        """Evaluate nothing before `event` is set."""
        self._events.append(event)

    async def ready(self) -> None:
        """Return when it is known whether anything may be written."""
        for event in self._events:
            await event.wait()

    def blocked_by(self, namespace: str | None = None) -> str | None:
        """Why nothing may be written in `namespace`; None: why nothing may be written at all."""
        if self.shadow:
            return "shadow mode: this process only compares"
        return next((why for reason in self._reasons if (why := reason(namespace)) is not None), None)
