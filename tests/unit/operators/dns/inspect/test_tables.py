"""What `steersman status` shows of zones and servers."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

from steersman.operators.dns.inspect.tables import tables_of
from steersman.runtime.controller.watches import WatchSelection


def test_no_column_is_called_state_because_the_command_adds_that_one(monkeypatch):
    empty = SimpleNamespace(snapshot=lambda: nullcontext([]))
    monkeypatch.setattr(WatchSelection, "informer", lambda *_: empty)
    for table in tables_of(SimpleNamespace(caches=None), None):
        assert "state" not in table.columns
        assert len(set(table.columns)) == len(table.columns)
