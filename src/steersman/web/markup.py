"""HTML as values: elements with attributes and children, written out with every text escaped.

Whatever comes from a cluster is text. There is no way to put markup in as text, so a name, an annotation or an error
message can never become part of the page's structure.

    >>> str(h("a", {"href": "/x?a=1&b=2"}, "<b>"))
    '<a href="/x?a=1&amp;b=2">&lt;b&gt;</a>'

Addresses are written from the page's own root, and handed out relative to where the reader is: below whatever path a
proxy puts in front.

    >>> h("a", {"href": "/map"}).relative_to("/history/7")
    '<a href="../map"></a>'
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Final

_VOID: Final = frozenset({"area", "br", "col", "hr", "img", "input", "link", "meta", "path", "rect", "circle", "use"})
_ADDRESSES: Final = frozenset({"href", "src", "action", "data-root"})

Child = "Element | str | int | float | None | Iterable[Child]"


class Element:
    """One element."""

    __slots__ = ("attributes", "children", "tag")

    def __init__(self, tag: str, attributes: Mapping[str, object], children: Iterable[object]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children = tuple(children)

    def __str__(self) -> str:
        parts: list[str] = []
        _write(self, parts, "/")
        return "".join(parts)

    def relative_to(self, path: str) -> str:
        """The markup, with addresses relative to a page at `path`."""
        parts: list[str] = []
        _write(self, parts, relative_root(path))
        return "".join(parts)


def h(tag: str, attributes: Mapping[str, object] | None = None, /, *children: object) -> Element:
    """An element. An attribute that is None or False is left out, one that is True has no value."""
    return Element(tag, attributes or {}, children)


def relative_root(path: str) -> str:
    """The relative address of the root, from a page at `path`.

    >>> [relative_root(path) for path in ("/", "/map", "/history/7", "/workloads/deployment/shop/web")]
    ['./', './', '../', '../../../']
    """
    return "../" * (path.count("/") - 1) or "./"


def text_of(child: object) -> str:
    """The text of an element, without its markup."""
    if child is None:
        return ""
    if isinstance(child, Element):
        return "".join(text_of(part) for part in child.children)
    if isinstance(child, str | int | float):
        return str(child)
    assert isinstance(child, Iterable)
    return "".join(text_of(part) for part in child)


def _write(child: object, parts: list[str], root: str) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        parts.append(f"<{child.tag}")
        for name, value in child.attributes.items():
            if value is None or value is False:
                continue
            text = str(value)
            if name in _ADDRESSES and text.startswith("/"):
                text = root + text[1:]
            parts.append(f" {name}" if value is True else f' {name}="{html.escape(text)}"')
        parts.append(">")
        if child.tag not in _VOID:
            for part in child.children:
                _write(part, parts, root)
            parts.append(f"</{child.tag}>")
        elif child.tag in {"path", "rect", "circle", "use"}:
            parts[-1] = "/>"
    elif isinstance(child, str | int | float):
        parts.append(html.escape(str(child), quote=False))
    else:
        assert isinstance(child, Iterable)
        for part in child:
            _write(part, parts, root)
