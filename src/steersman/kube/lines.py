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

    def block(self, chunk: bytes) -> bytes:
        """The lines that `chunk` completes, with their newlines, blank ones included, in one piece."""
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(chunk)
            return b""
        block = chunk if end == len(chunk) else chunk[:end]
        if self._parts:
            self._keep(chunk[: chunk.index(b"\n")])  # for its length
            self._parts[-1] = block
            block = b"".join(self._parts)
            self._parts.clear()
        self.rest = 0
        if end < len(chunk):
            self._keep(chunk[end:])
        return block

    def _keep(self, part: bytes) -> None:
        self.rest += len(part)
        if self.rest > self._limit:
            raise LineTooLongError(f"a line is longer than {self._limit} bytes")
        self._parts.append(part)


def split_block(block: bytes) -> list[bytes]:
    """The lines of a block, without their newlines; blank ones are dropped."""
    return [line for line in block.split(b"\n") if line and not line.isspace()]
