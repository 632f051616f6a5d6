"""A runbook: what an alert or a problem means, and what to do. The Markdown of `docs/runbooks`, drawn.

Only what runbooks use is understood: headings, paragraphs, lists, fenced blocks, `code` and links; links to other files
are shown as text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from steersman.web.assets import runbooks
from steersman.web.markup import Element, h
from steersman.web.pages.layout import document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from steersman.web.snapshot_cache import SnapshotCache

_INLINE: Final = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\[(?P<text>[^]]*)\]\((?P<link>[^)]*)\)")


def page(cache: SnapshotCache, path: dict[str, str], _query: Any) -> Element | None:
    """Draw it."""
    text = runbooks().get(path["name"])
    if text is None:
        return None
    return document(
        "runbook", path["name"], h("article", {"class": "runbook card"}, list(drawn(text))), cache=cache, refresh=""
    )


def drawn(text: str) -> Iterator[Element]:
    """The blocks of a runbook."""
    items: list[Element] = []
    for block in _blocks(text.splitlines()):
        first = block[0]
        if first.startswith("- "):
            items.append(h("li", {}, *_inline(" ".join([first[2:], *(line.strip() for line in block[1:])]))))
            continue
        if items:
            yield h("ul", {}, items)
            items = []
        if first.startswith("```"):
            yield h("pre", {"tabindex": "0"}, h("code", {}, "\n".join(block[1:])))
        elif first.startswith("#"):
            yield h("h1" if first.startswith("# ") else "h2", {}, first.lstrip("# "))
        else:
            yield h("p", {}, *_inline(" ".join(block)))
    if items:
        yield h("ul", {}, items)


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines that belong together: a fence, a list item with the lines below it, a paragraph, a heading."""
    block: list[str] = []
    for line in lines:
        fenced = bool(block) and block[0].startswith("```")
        if fenced and not line.startswith("```"):
            block.append(line)
        elif fenced or not line.strip():
            yield from [block] if block else []
            block = []
        elif line.startswith(("- ", "#", "```")) or (block and block[0].startswith("#")):
            yield from [block] if block else []
            block = [line]
        else:
            block.append(line)
    yield from [block] if block else []


def _inline(text: str) -> Iterator[Element | str]:
    end = 0
    for found in _INLINE.finditer(text):
        yield text[end : found.start()]
        end = found.end()
        if found["code"] is not None:
            yield h("code", {}, found["code"])
        elif found["bold"] is not None:
            yield h("b", {}, found["bold"])
        else:
            link = found["link"].removeprefix("./").removesuffix(".md")
            yield h("a", {"href": f"/runbooks/{link}"}, found["text"] or link) if link in runbooks() else found["text"]
    yield text[end:]
