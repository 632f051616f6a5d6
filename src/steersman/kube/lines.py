"""Bytes to lines, for watch streams: one by one, or whole lines that have come together as blocks.

Chunks of a line are kept in a list and joined once, when its end arrives: the cost is linear however the network cuts
a line, where `tail + chunk` would copy a 1.4 MB event once per packet. A line longer than the limit is an error, so
a server that never sends a newline cannot fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["LineSplitter", "LineTooLongError", "split_block"]


class LineTooLongError(ValueError):
    """A line grew beyond the limit."""


class LineSplitter:
    """Feed it chunks, get whole lines without their newline; blank lines are dropped.

    >>> splitter = LineSplitter(limit=100)
    >>> splitter.feed(b"one\\ntw"), splitter.feed(b"o\\n"), splitter.rest
    ([b'one'], [b'two'], 0)
    """

    __slots__ = ("_limit", "_parts", "rest")

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self.rest = 0  # bytes of the unfinished line

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes."""
        return split_block(self.block(chunk))

    def block(self, *chunks: bytes) -> bytes | memoryview:
        """The lines that `chunks` complete, with their newlines, blank ones included, in one piece.

        It is copied once at most, however many chunks it comes in and wherever those are cut.
        """
        whole, end = self._complete(chunks)
        return whole if end == len(whole) else memoryview(whole)[:end]

    def blocks(self, chunks: Iterable[bytes], size: int) -> Iterator[bytes | memoryview]:
        """The same in pieces of about `size` bytes, so that one can be dealt with while it is in the CPU's caches.

        Chunks that are large enough are not copied, those that are small are joined until they are.
        """
        group: list[bytes] = []
        gathered = 0
        for chunk in chunks:
            group.append(chunk)
            gathered += len(chunk)
            if gathered >= size:
                yield from _cut(*self._complete(group), size)
                group, gathered = [], 0
        if group:
            yield from _cut(*self._complete(group), size)

    def _complete(self, chunks: Sequence[bytes]) -> tuple[bytes, int]:
        """What the part that was kept and `chunks` make, and where the last whole line ends; keeps the rest."""
        if not any(b"\n" in chunk for chunk in chunks):
            for chunk in chunks:
                self._keep(chunk)
            return b"", 0
        whole = chunks[0] if len(chunks) == 1 and not self._parts else b"".join((*self._parts, *chunks))
        if self.rest and whole.index(b"\n") > self._limit:
            raise self._too_long()
        self._parts.clear()
        self.rest = 0
        end = whole.rindex(b"\n") + 1
        if end < len(whole):
            self._keep(whole[end:])
        return whole, end

    def _keep(self, part: bytes) -> None:
        self.rest += len(part)
        if self.rest > self._limit:
            raise self._too_long()
        self._parts.append(part)

    def _too_long(self) -> LineTooLongError:
        return LineTooLongError(f"a line is longer than {self._limit} bytes")


def _cut(whole: bytes, end: int, size: int) -> Iterator[bytes | memoryview]:
    """The lines of `whole` up to `end`, in pieces of at least `size` bytes; less than two of them stay one."""
    if not end:
        return
    if end == len(whole) < 2 * size:
        yield whole
        return
    view, start = memoryview(whole), 0
    while end - start >= 2 * size:
        stop = whole.index(b"\n", start + size - 1) + 1
        yield view[start:stop]
        start = stop
    if start < end:
        yield view[start:end]


def split_block(block: bytes | memoryview) -> list[bytes]:
    """The lines of a block, without their newlines; blank ones are dropped."""
    return [line for line in bytes(block).split(b"\n") if line and not line.isspace()]
