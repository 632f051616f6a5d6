"""Pages of documentation: their blocks, their links, and the steps a reader takes through one. Pure.

A page in Markdown holds fenced blocks. Blocks without a language or in `console` are commands for a shell: in a session
(`$ `) what follows a command is what it prints, elsewhere every line is a command. Comments, which no reader sees, say
the rest:

    <!-- walk: file deploy/web.yaml -->           the next block is the content of this file
    <!-- walk: exits 3 -->                        the next command ends so; several: one per command of the block
    <!-- walk: not run, it needs a registry -->   the commands of the next block are left out, for this reason
    <!-- walk                                     what a reader has done already
    $ kubectl create namespace shop
    -->

Invariant: every command of a page is either a step or left out with a reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Block", "Command", "File", "LeftOut", "PageError", "Step", "agree", "blocks_of", "links_of", "steps_of"]

COMMANDS: Final = ("", "console")  # languages of blocks that are typed into a shell

_FENCE: Final = re.compile(r"^ *(?P<mark>`{3,})(?P<info>[^`]*)$")
_LINK: Final = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
_MARK: Final = re.compile(r"^<!-- walk: (?P<text>.*) -->$")
_HIDDEN: Final = "<!-- walk"
_HEREDOC: Final = re.compile(r"<<-?\s*(['\"]?)(?P<word>\w+)\1")


class PageError(ValueError):
    """A page cannot be read; says where."""


class Block(NamedTuple):
    """One fenced block, or one that only the walk sees."""

    page: str  # relative to the repository
    line: int
    language: str
    text: str
    marks: tuple[str, ...] = ()  # what comments before it say
    hidden: bool = False

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.page}:{self.line}"


class File(NamedTuple):
    """Write a file."""

    place: str
    path: str
    text: str


class Command(NamedTuple):
    """Type a command."""

    place: str
    text: str
    shown: str = ""  # what the page says it prints; empty: nothing is said
    code: int = 0


class LeftOut(NamedTuple):
    """Commands that are not run."""

    place: str
    text: str
    reason: str


Step = File | Command | LeftOut


def blocks_of(page: Path, root: Path) -> list[Block]:
    """Every block of a page, in order."""
    name = str(page.relative_to(root))
    found: list[Block] = []
    marks: list[str] = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if fence := _FENCE.match(line):
            text = _until(lines, fence["mark"], f"{name}:{number}")
            found.append(Block(name, number, fence["info"].strip(), text, tuple(marks)))
            marks = []
        elif line == _HIDDEN:
            found.append(Block(name, number, "console", _until(lines, "-->", f"{name}:{number}"), hidden=True))
        elif mark := _MARK.match(line):
            marks.append(mark["text"])
        elif line.startswith(_HIDDEN):
            raise PageError(f"{name}:{number}: a mark is `<!-- walk: … -->`, alone on its line")
    if marks:
        raise PageError(f"{name}: `{marks[0]}` is followed by no block")
    return found


def _until(lines: Iterator[tuple[int, str]], end: str, place: str) -> str:
    inside: list[str] = []
    for _, line in lines:
        if line.strip() == end:
            return "\n".join(inside)
        inside.append(line)
    raise PageError(f"{place}: the block is not closed")


def steps_of(block: Block) -> Iterator[Step]:
    """What a reader does with a block: nothing, when it is only to be read."""
    codes, reason = [0], None
    for mark in block.marks:
        word, _, rest = mark.partition(" ")
        if word == "file" and rest:
            yield File(block.place, rest, block.text + "\n")
        elif word == "exits" and rest:
            codes = [int(code) for code in rest.split()]
        elif mark.startswith("not run, "):
            reason = mark.removeprefix("not run, ")
        else:
            raise PageError(f"{block.place}: `walk: {mark}` means nothing (file PATH, exits CODE, not run, REASON)")
    if block.language not in COMMANDS or any(mark.startswith("file ") for mark in block.marks):
        return
    if reason is not None:
        yield LeftOut(block.place, block.text, reason)
        return
    typed = list(_typed(block))
    codes = codes * len(typed) if len(codes) == 1 else codes
    for (text, shown), code in zip(typed, codes, strict=True):
        yield Command(block.place, text, shown, code)


def _typed(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a block with what it prints."""
    lines = block.text.splitlines()
    session = any(line.startswith("$ ") for line in lines)
    command, shown, place = "", [], 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if session and not line.startswith("$ "):
            if not command:
                raise PageError(f"{block.place}: `{line}` is printed before there is a command")
            shown.append(line)
            continue
        if command:
            yield command, "\n".join(shown)
        shown, command = [], line.removeprefix("$ ")
        while command.endswith("\\") and place < len(lines):
            command += f"\n{lines[place]}"
            place += 1
        if heredoc := _HEREDOC.search(command):
            while place < len(lines):
                command += f"\n{lines[place]}"
                place += 1
                if lines[place - 1] == heredoc["word"]:
                    break
    if command:
        yield command, "\n".join(shown)


def links_of(page: Path) -> list[str]:
    """Every relative link and picture outside of code."""
    text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    targets = [link["target"] or link["image"] for link in _LINK.finditer(text)]
    return [target for target in targets if not re.match(r"[a-z]+:|#", target)]


# -- what is printed -------------------------------------------------------------------------------------------------

_CHANGING: Final = (  # what no two runs have in common, in the order they are looked for
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"(?<=-)[a-z0-9]{8,10}-[a-z0-9]{5}\b"), "POD"),
    (re.compile(r"(?<![\w.-])(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{12}(?![\w.-])"), "DIGEST"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min|h)(?= ago\b)"), "TIME"),
    (re.compile(r"\b127(\.\d+){3}:\d+"), "ADDRESS"),
    (re.compile(r"(?<= )(\d+[smhd])+$", re.MULTILINE), "AGE"),  # the last column of `kubectl get`
)


def agree(shown: str, printed: str) -> str:
    """How what is printed differs from what a page shows; empty: times, digests and widths aside, it does not."""
    told, found = _stable(shown), _stable(printed)
    for number, line in enumerate(told):
        if number >= len(found):
            return f"line {number + 1} is missing: {line}"
        if found[number] != line:
            return f"line {number + 1} is shown as: {line}\n{' ' * 12}but printed as: {found[number]}"
    return f"line {len(told) + 1} is not shown: {found[len(told)]}" if len(found) > len(told) else ""


def _stable(text: str) -> list[str]:
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]
