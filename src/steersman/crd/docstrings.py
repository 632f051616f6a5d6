"""The docstrings that stand below fields.

Python drops them, so they are read from the source; a class whose source is not at hand simply has none.

    class Spec(Struct):
        image: str
        \"\"\"The image to run.\"\"\"
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import textwrap
from typing import Final

__all__ = ["class_doc", "field_docs"]


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """Field name -> the docstring below it, those of base classes included."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base is not object:
            docs.update(_own_docs(base))
    return docs


def class_doc(cls: type) -> str:
    """The docstring of the class itself, never an inherited one."""
    return _clean(cls.__dict__.get("__doc__") or "")


def _own_docs(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    if not tree.body or not isinstance(tree.body[0], ast.ClassDef):
        return {}
    body = tree.body[0].body
    docs = {}
    for field, below in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            docs[field.target.id] = _clean(below.value.value)
    return docs


_WRAPPED: Final = re.compile(r"(?<=\S)\n(?=[^\s*-])")  # a line that goes on; paragraphs, lists and code stay


def _clean(text: str) -> str:
    """Without indentation, and without line breaks inside a paragraph: what shows the text wraps it."""
    return _WRAPPED.sub(" ", inspect.cleandoc(text).strip())
