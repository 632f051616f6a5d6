"""How the documentation site is built: `make docs`, warnings are errors."""

from __future__ import annotations

import importlib.metadata
import re

project = "Steersman"
author = "The Steersman authors"
project_copyright = "The Steersman authors, Apache-2.0"
release = importlib.metadata.version("steersman")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = False  # types of third parties are named, not linked: the site builds without a network

html_theme = "furo"
html_title = "Steersman"

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}

default_role = "code"  # our docstrings write `name`, as Markdown does


def _drawings_are_literal(app, what, name, obj, options, lines):  # noqa: ARG001  # the signature is Sphinx's
    """Our docstrings draw tables and show code by indenting; tell reStructuredText that such blocks are literal."""
    shown, drawing, in_list = [], False, False
    for line in lines:
        indented, blank = line.startswith("    "), not line.strip()
        if indented and not drawing and not in_list:
            shown += ["", "::", ""]
            drawing = True
        elif not indented and not blank and drawing:
            shown.append("")
            drawing = False
        if not indented and not blank:
            bullet = bool(re.match(r"\s*(- |>>> |\d+\. )", line))
            if bullet and not in_list:
                shown.append("")
            in_list = bullet or (in_list and line.startswith("  "))
        shown.append(line)
    lines[:] = [*shown, ""]


_TOCTREE = re.compile(r"^<!-- toctree\n(.*?)^-->$", re.MULTILINE | re.DOTALL)


def _toctrees_are_comments(app, docname, source):  # noqa: ARG001  # the signature is Sphinx's
    """Pages list their parts in a comment, which a repository browser does not show; Sphinx needs a directive."""
    source[0] = _TOCTREE.sub(r"```{toctree}\n:hidden:\n:maxdepth: 1\n\1```", source[0])


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", _toctrees_are_comments)
    app.connect("autodoc-process-docstring", _drawings_are_literal)
