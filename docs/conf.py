"""How the documentation site is built: `make docs`, warnings are errors."""

from __future__ import annotations

import importlib.metadata

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
html_static_path = ["_static"]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}
