"""Bounds of limit ranges, where containers and their sum differ."""

from __future__ import annotations

from steersman.apiserver.quota.limit_ranges import limit_violations, with_default_limits
from tests.support.manifests import container, pod


def sized(name, **resources):
    return container(name, resources=resources)


def limited(**item):
    return {"spec": {"limits": [item]}}


def test_the_limits_of_a_pod_may_be_too_low_though_its_requests_are_not():
    body = pod(spec={"containers": [sized("a", requests={"cpu": "2"}), sized("b", limits={"cpu": "100m"})]})
    found = limit_violations(limited(type="Pod", min={"cpu": "1"}), "pods", body)
    assert found == ["minimum cpu usage per Pod is 1, but limit is 100m"]


def test_every_container_is_held_to_the_bounds_also_those_that_run_first():
    body = pod(spec={"containers": [sized("a")], "initContainers": [sized("b")]})
    assert len(limit_violations(limited(type="Container", max={"cpu": "1"}), "pods", body)) == 2


def test_a_pod_whose_containers_name_everything_is_left_as_it_is():
    body = pod(spec={"containers": [sized("a", limits={"cpu": "1"}, requests={"cpu": "1"})]})
    assert with_default_limits(limited(type="Container", default={"cpu": "2"}), body) is body
