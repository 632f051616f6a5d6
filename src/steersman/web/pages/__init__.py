"""The page, as a table: path, title, and the function that draws it.

Every view is drawn here, on the server, from the same values that the JSON API answers with. So it reads without
JavaScript, and the modules in `static/` only bring it to life: they fetch a view again when it is out of date, count
seconds, and draw the map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from steersman.web.markup import Element
from steersman.web.pages import health, history, now, operators, runbook, source_map, workload
from steersman.web.pages.layout import problem_page, sign_in_page

__all__ = ["PAGES", "Page", "problem_page", "sign_in_page"]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One view."""

    path: str
    name: str
    make: Callable[[Any, dict[str, str], Any], Element | None]  # cache, path, query; None: not found


PAGES: Final = (
    Page(path="/", name="now", make=now.page),
    Page(path="/map", name="map", make=source_map.page),
    Page(path="/history", name="history", make=history.page),
    Page(path="/history/{id}", name="entry", make=history.entry_page),
    Page(path="/workloads/{kind}/{namespace}/{name}", name="workload", make=workload.page),
    Page(path="/operators", name="operators", make=operators.page),
    Page(path="/runbooks/{name}", name="runbook", make=runbook.page),
    Page(path="/health", name="health", make=health.page),
    Page(path="/vitals", name="health", make=health.page),  # where an operator answers at /health, as the toolset API
)
