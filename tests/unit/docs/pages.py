"""What the documentation shows: code blocks with their place, and links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,})(?P<info>[^`]*)$")
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")


class Block(NamedTuple):
    """One fenced block."""

    page: str  # relative to the repository
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where a person finds it."""
        return f"{self.page}:{self.line}"


def blocks() -> list[Block]:
    """Every fenced block of every page."""
    found = []
    for page in PAGES:
        start, language, mark, lines = 0, "", "", []
        for number, line in enumerate(page.read_text().splitlines(), 1):
            fence = _FENCE.match(line)
            if not mark and fence:
                start, mark, language, lines = number, fence["mark"], fence["info"].strip(), []
            elif mark and line.strip() == mark:
                found.append(Block(str(page.relative_to(ROOT)), start, language, "\n".join(lines)))
                mark = ""
            elif mark:
                lines.append(line)
        assert not mark, f"{page}:{start}: the block is not closed"
    return found


def links() -> list[tuple[Path, str]]:
    """Every relative link and picture outside of code."""
    found = []
    for page in PAGES:
        text = re.sub(r"^( *)(`{3,}).*?^\1\2$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"`[^`\n]*`", "", text)
        for link in _LINK.finditer(text):
            target = link["target"] or link["image"]
            if not re.match(r"[a-z]+:|#", target):
                found.append((page, target))
    return found
