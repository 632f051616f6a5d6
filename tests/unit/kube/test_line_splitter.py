from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.lines import LineSplitter, LineTooLongError


@given(st.lists(st.binary(min_size=1, max_size=40).filter(lambda b: b"\n" not in b and not b.isspace())), st.data())
def test_lines_come_out_the_same_however_the_network_cuts_them(lines, data):
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    splitter = LineSplitter(limit=1000)
    found = [
        line
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
        for line in splitter.feed(text[start:end])
    ]
    assert found == lines
    assert splitter.rest == 0


def test_blank_lines_are_dropped():
    assert LineSplitter(limit=10).feed(b"\n\r\na\n \n") == [b"a"]


def test_an_unfinished_line_is_counted_and_kept():
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"a\nbcd") == [b"a"]
    assert splitter.rest == 3
    assert splitter.feed(b"e\n") == [b"bcde"]


def test_a_line_without_end_is_refused_at_the_limit():
    splitter = LineSplitter(limit=10)
    splitter.feed(b"12345")
    with pytest.raises(LineTooLongError, match="longer than 10 bytes"):
        splitter.feed(b"123456")


def test_a_large_line_in_small_pieces_is_joined_once():
    splitter = LineSplitter(limit=2**24)
    for _ in range(22_000):
        assert splitter.feed(b"x" * 64) == []
    assert len(splitter._parts) == 22_000  # nothing was joined on the way
    assert [len(line) for line in splitter.feed(b"\n")] == [22_000 * 64]


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b)), st.data())
def test_blocks_hold_the_same_bytes_and_end_with_whole_lines(lines, data):
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    splitter = LineSplitter(limit=1000)
    blocks = [splitter.block(text[start:end]) for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert b"".join(blocks) == text
    assert all(bytes(block).endswith(b"\n") for block in blocks if block)


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b)), st.data())
def test_chunks_that_came_together_are_like_one_after_the_other(lines, data):
    text = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    groups = data.draw(st.integers(1, 5))
    splitter = LineSplitter(limit=1000)
    blocks = [splitter.block(*chunks[at : at + groups]) for at in range(0, len(chunks), groups)]
    assert b"".join(blocks) + b"rest" == text
    assert splitter.rest == len(b"rest")


def test_a_line_that_ends_beyond_the_limit_is_refused_though_its_end_is_there():
    splitter = LineSplitter(limit=10)
    splitter.block(b"12345")
    with pytest.raises(LineTooLongError):
        splitter.block(b"123456\nnext\n")


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b)), st.integers(1, 60), st.data())
def test_pieces_hold_the_same_bytes_and_are_about_as_large_as_asked_for(lines, size, data):
    text = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    chunks = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    splitter = LineSplitter(limit=1000)
    pieces = [bytes(piece) for piece in splitter.blocks(chunks, size)]
    assert b"".join(pieces) + b"rest" == text
    assert splitter.rest == len(b"rest")
    assert all(piece.endswith(b"\n") for piece in pieces)
    longest = max(map(len, lines), default=0) + 1
    assert all(len(piece) < 2 * size + longest for piece in pieces)
    assert all(len(piece) >= size for piece in [*LineSplitter(limit=1000).blocks([text], size)][:-1])


def test_a_large_chunk_is_cut_without_a_copy_and_small_ones_are_joined():
    splitter = LineSplitter(limit=1000)
    large = b"0123456\n" * 10
    assert [piece.obj is large for piece in splitter.blocks([large], 32)] == [True, True]
    assert list(splitter.blocks([b"a\n", b"b\n", b"c\n", b"d\n"], 4)) == [b"a\nb\n", b"c\nd\n"]


def test_lines_before_one_that_is_too_long_are_not_lost():
    pieces = LineSplitter(limit=10).blocks([b"one\n", b"x" * 11], 4)
    assert next(pieces) == b"one\n"
    with pytest.raises(LineTooLongError):
        next(pieces)
