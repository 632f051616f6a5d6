"""What a controller reads at one moment."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steersman.cache.store import ObjectStore
from steersman.clock import SYSTEM_CLOCK
from steersman.kube.api.types.core import ConfigMap, Secret
from steersman.runtime.cluster import ClusterSnapshot, WatchedResource


def shelf(kind, opened):
    store = ObjectStore(clock=SYSTEM_CLOCK)

    def snapshot():
        opened.append(kind)
        return store.snapshot()

    return WatchedResource(kind, None, SimpleNamespace(snapshot=snapshot, kind=kind.KIND))


def test_a_reader_that_may_wait_has_everything_as_it_was_at_the_start():
    opened = []
    with ClusterSnapshot([shelf(ConfigMap, opened), shelf(Secret, opened)], user="test"):
        assert opened == [ConfigMap, Secret]


def test_a_reader_that_does_not_wait_has_only_what_is_asked_for_and_once():
    opened = []
    with ClusterSnapshot([shelf(ConfigMap, opened), shelf(Secret, opened)], user="test", brief=True) as cache:
        assert opened == []
        assert cache[Secret] is cache[Secret]
    assert opened == [Secret]


def test_what_was_not_asked_for_in_time_is_closed_too():
    with ClusterSnapshot([shelf(Secret, [])], user="test", brief=True) as cache:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        cache[Secret]
