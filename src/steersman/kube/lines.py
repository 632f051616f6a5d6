"""Bytes to lines, for watch streams.

Chunks of a line are kept in a list and joined once, when its end arrives: the cost is linear however the network cuts
a line, where `tail + chunk` would copy a 1.4 MB event once per packet. A line longer than the limit is an error, so
a server that never sends a newline cannot fill the memory.
"""

from __future__ import annotations

__all__ = ["LineSplitter", "LineTooLongError"]


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
        head, newline, remainder = chunk.partition(b"\n")
        if not newline:
            self._keep(chunk)
            return []
        self._keep(head)
        lines = [b"".join(self._parts) if len(self._parts) > 1 else head]
        lines += remainder.split(b"\n")
        last = lines.pop()
        self._parts.clear()
        self.rest = 0
        if last:
            self._keep(last)
        return [line for line in lines if line and not line.isspace()]

    def _keep(self, part: bytes) -> None:
        self.rest += len(part)
        if self.rest > self._limit:
            raise LineTooLongError(f"a line is longer than {self._limit} bytes")
        self._parts.append(part)
