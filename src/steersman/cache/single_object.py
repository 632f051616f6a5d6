"""Single objects by name, where a whole collection may not be read or is too much to read.

    set_interest(user, refs) ──► one list+watch per name of interest ──► the same store, the same handlers

A name is *known* when its own first list is through: from then on the store says truly whether the object exists. It is
forgotten, with its object, when no user wants it. So names come and go with the objects that refer to them, and between
two watches of one name nothing is lost: each is a list+watch of its own.

Every name costs a connection, so there are at most `LIMIT` of them; what is wanted beyond that stays unknown, and
`problem` says why. Nothing here decides *whether* names are followed: see `steersman.cache.informer`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

    from steersman.cache.reflector import Reflector
    from steersman.kube.api.gvk import NamespacedName

__all__ = ["LIMIT", "NamedObjects"]

T = TypeVar("T")

LIMIT: Final = 1000  # names followed at once, by one informer


class NamedObjects(Generic[T]):
    """The names that are wanted, and what follows each of them."""

    def __init__(
        self,
        make: Callable[[NamespacedName, Callable[[], None]], Reflector[T]],
        forget: Callable[[NamespacedName], object],
        *,
        needed: Callable[[NamespacedName], bool],
        limit: int = LIMIT,
    ) -> None:
        """`make` gives the list+watch of one name, which calls its second argument when its status changes.

        `forget` drops the object of a name that no user wants; `needed` says whether a name must be followed by itself.
        """
        self.on_name_resolved: list[
            Callable[[NamespacedName], None]
        ] = []  # called when a name is known, or may not be read
        self._make = make
        self._forget = forget
        self._needed = needed
        self._limit = limit
        self._wanted: dict[Hashable, frozenset[NamespacedName]] = {}
        self._users: dict[NamespacedName, set[Hashable]] = {}
        self._followed: dict[NamespacedName, Reflector[T]] = {}
        self._moved = asyncio.Event()

    def set_interest(self, user: Hashable, refs: Collection[NamespacedName]) -> None:
        """From now on `user` wants these names and no others."""
        wanted, before = frozenset(refs), self._wanted.get(user, frozenset())
        if wanted == before:
            return
        for ref in before - wanted:
            self._users[ref].discard(user)
            if not self._users[ref]:
                del self._users[ref]
        for ref in wanted - before:
            self._users.setdefault(ref, set()).add(user)
        if wanted:
            self._wanted[user] = wanted
        else:
            del self._wanted[user]
        self.check()

    def check(self) -> None:
        """What is wanted or needed may have changed."""
        self._moved.set()

    def is_synced_for(self, ref: NamespacedName) -> bool:
        """Whether the store says truly if this object exists."""
        following = self._followed.get(ref)
        return following is not None and following.status.synced and not following.status.refused

    def problem(self, ref: NamespacedName) -> str | None:
        """Why a wanted name is not known and will not be soon."""
        following = self._followed.get(ref)
        if following is not None:
            return str(following.status.error) if following.status.refused else None
        crowded = ref in self._users and self._needed(ref) and len(self._followed) >= self._limit
        return f"more than {self._limit} names would have to be watched one by one" if crowded else None

    def problems(self) -> list[str]:
        """What is wrong with the names, also where it may pass soon."""
        failing = [
            f"{ref}: {reflector.status.error}"
            for ref, reflector in self._followed.items()
            if reflector.status.error is not None
        ]
        crowd = sum(ref not in self._followed and self.problem(ref) is not None for ref in self._users)
        return failing + ([f"{crowd} names too many to watch one by one (at most {self._limit})"] if crowd else [])

    @property
    def refused(self) -> bool:
        """Whether a name may not be read."""
        return any(reflector.status.refused for reflector in self._followed.values())

    def __len__(self) -> int:
        return len(self._followed)

    async def run(self) -> None:
        """Follow what is wanted until cancelled."""
        tasks: dict[NamespacedName, asyncio.Task[None]] = {}
        try:
            while True:
                self._moved.clear()
                needed = [ref for ref in self._users if self._needed(ref)]
                await self._stop([ref for ref in tasks if ref not in set(needed)], tasks)
                for ref in needed:
                    if ref not in tasks and len(tasks) < self._limit:
                        self._followed[ref] = following = self._following(ref)
                        tasks[ref] = asyncio.create_task(following.run(), name=f"reflector {following.name} {ref}")
                waiting = asyncio.create_task(self._moved.wait())
                try:
                    await asyncio.wait([waiting, *tasks.values()], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
                for task in tasks.values():
                    if task.done():
                        task.result()  # a defect: the supervisor restarts us
        finally:
            await self._stop(list(tasks), tasks)

    def _following(self, ref: NamespacedName) -> Reflector[T]:
        return self._make(ref, lambda: self._resolved(ref))

    def _resolved(self, ref: NamespacedName) -> None:
        for callback in self.on_name_resolved:
            callback(ref)

    async def _stop(self, refs: Iterable[NamespacedName], tasks: dict[NamespacedName, asyncio.Task[None]]) -> None:
        ending = {ref: tasks.pop(ref) for ref in refs}
        for ref, task in ending.items():
            task.cancel()
            self._followed.pop(ref, None)
        await asyncio.gather(*ending.values(), return_exceptions=True)
        for ref in ending:
            if ref not in self._users and self._needed(ref):  # else the object is the collection's
                self._forget(ref)
