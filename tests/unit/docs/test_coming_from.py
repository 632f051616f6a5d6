"""The pages for newcomers from kopf and controller-runtime have a row for everything those projects document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"

# The index of kopf's documentation (docs/index.rst), without "About Kopf" and its developer manual.
KOPF = """
install concepts walkthrough/problem walkthrough/prerequisites walkthrough/resources walkthrough/starting
walkthrough/creation walkthrough/updates walkthrough/diffs walkthrough/deletion walkthrough/cleanup
handlers daemons timers kwargs async loading resources filters patches results errors scopes memos indexing admission
startup shutdown probing authentication configuration peering cli
events hierarchies testing embedding
docker deployment continuity idempotence reconciliation tips-and-tricks troubleshooting
"""

# The packages of controller-runtime that others can import.
CONTROLLER_RUNTIME = """
pkg/builder pkg/cache pkg/cache/informertest pkg/certwatcher pkg/certwatcher/metrics pkg/client pkg/client/apiutil
pkg/client/config pkg/client/fake pkg/client/interceptor pkg/cluster pkg/config pkg/controller
pkg/controller/controllertest pkg/controller/controllerutil pkg/controller/priorityqueue pkg/conversion pkg/envtest
pkg/envtest/komega pkg/event pkg/finalizer pkg/handler pkg/healthz pkg/leaderelection pkg/leaderelection/fake pkg/log
pkg/log/zap pkg/manager pkg/manager/signals pkg/metrics pkg/metrics/filters pkg/metrics/server pkg/predicate
pkg/reconcile pkg/recorder pkg/scheme pkg/source pkg/webhook pkg/webhook/admission pkg/webhook/admission/metrics
pkg/webhook/authentication pkg/webhook/conversion pkg/webhook/conversion/metrics
"""


def rows(page: str) -> list[list[str]]:
    """The cells of every row below the heads of the tables."""
    lines = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize(
    ("page", "documented"),
    [("coming-from-kopf.md", KOPF), ("coming-from-controller-runtime.md", CONTROLLER_RUNTIME)],
)
def test_every_feature_has_a_row_and_every_row_an_answer(page, documented):
    table = rows(page)
    assert all(len(row) == 3 and all(row) for row in table), [row for row in table if len(row) != 3 or not all(row)]
    assert {name for subject, _, _ in table for name in re.findall(r"`([^`]+)`", subject)} == set(documented.split())


@pytest.mark.parametrize("page", ["coming-from-kopf.md", "coming-from-controller-runtime.md"])
def test_what_is_not_there_has_a_reason_or_another_way(page):
    missing = [answer for _, _, answer in rows(page) if "not there" in answer]
    assert missing
    for answer in missing:
        assert re.search(r"not there[^.;|]*(?:, because |: |; )", answer), answer


@pytest.mark.parametrize("page", ["coming-from-kopf.md", "coming-from-controller-runtime.md"])
def test_names_of_the_sdk_on_the_page_exist(page):
    import steersman

    answers = " ".join(answer for _, _, answer in rows(page))
    for name in set(re.findall(r"\bsm\.(\w+)", answers)):
        assert hasattr(steersman, name), name
    context = set(re.findall(r"\bctx\.(\w+)", answers))
    assert {name for name in context if not hasattr(steersman.Context, name)} <= {"cache", "log", "memory"}
    rows_of = set(re.findall(r"`\.(\w+)\(", answers))
    assert {name for name in rows_of if not hasattr(steersman.Controller, name)} <= {"list", "by_index"}
