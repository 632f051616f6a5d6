"""Bytes to lines, for watch streams: one by one, or all whole lines that have come as one block.

Chunks of a line are kept in a list and joined once, when its end arrives: the cost is linear however the network cuts
a line, where `tail + chunk` would copy a 1.4 MB event once per packet. A line longer than the limit is an error, so
a server that never sends a newline cannot fill the memory.
"""

from __future__ import annotations

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
        if not any(b"\n" in chunk for chunk in chunks):
            for chunk in chunks:
                self._keep(chunk)
            return b""
        whole = chunks[0] if len(chunks) == 1 and not self._parts else b"".join((*self._parts, *chunks))
        if self.rest and whole.index(b"\n") > self._limit:
            raise self._too_long()
        self._parts.clear()
        self.rest = 0
        end = whole.rindex(b"\n") + 1
        if end == len(whole):
            return whole
        self._keep(whole[end:])
        return memoryview(whole)[:end]

    def _keep(self, part: bytes) -> None:
        self.rest += len(part)
        if self.rest > self._limit:
            raise self._too_long()
        self._parts.append(part)

    def _too_long(self) -> LineTooLongError:
        return LineTooLongError(f"a line is longer than {self._limit} bytes")


def split_block(block: bytes | memoryview) -> list[bytes]:
    """The lines of a block, without their newlines; blank ones are dropped."""
    return [line for line in bytes(block).split(b"\n") if line and not line.isspace()]
