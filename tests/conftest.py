"""What every test run has in common.

Hypothesis never judges by the clock, so that a busy machine fails no test. Coverage is shown before pytest's own
summary, which stays the last word.
"""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steersman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steersman")

TARGET = 90  # percent of lines and branches of the package


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of a measured run writes down what it saw: it will be ended without a chance to do so."""
    if hasattr(session.config, "workerinput"):
        _finish_measuring()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """When the run was measured (`coverage run -m pytest`), say what it covered and which modules fell short."""
    if not _finish_measuring():
        return
    from coverage import Coverage

    everything, table = Coverage(messages=False), io.StringIO()
    everything.combine()
    percent = everything.report(file=table, precision=1, sort="cover", skip_empty=True)
    terminalreporter.section("coverage")
    for line in table.getvalue().splitlines():
        name, covered = line.split(" ")[0], line.split(" ")[-1]
        if name.endswith(".py") and float(covered.rstrip("%")) < TARGET:
            terminalreporter.write_line(f"{covered:>7}  {name}")
    terminalreporter.write_line(f"{percent:6.1f}%  of lines and branches in all (target {TARGET} %)")


def _finish_measuring() -> bool:
    """Stop and save, if this process is being measured at all."""
    if "coverage" not in sys.modules:
        return False
    from coverage import Coverage

    measuring: Coverage | None = Coverage.current()
    if measuring is None:
        return False
    measuring.stop()
    measuring.save()
    return True
