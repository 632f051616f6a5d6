"""Who has a driver, and until when; and what is forgotten of servers that are gone."""

from __future__ import annotations

import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import DriverError, PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.pods import ContainerStatus, Pod, PodCondition, PodStatus
from steersman.operators.dns.api.servers import Bind9Instance, ServerEndpoint
from steersman.operators.dns.bind.pool import CLOSE_AFTER, DriverPool
from steersman.operators.dns.bind.servers import Keys, servers_of
from steersman.operators.dns.wire.tsig import Key

KEY = Key("k", "hmac-sha256", b"secret")
KEYS = Keys(KEY, KEY, KEY)


def instance(name="a"):
    return Bind9Instance(
        metadata=ObjectMeta(name=name, namespace="default"), spec=Bind9Instance.Spec(cluster_ref="", role="primary")
    )


def pod(name, address, *, ready="", restarts=0):
    rows = [PodCondition(type="ContainersReady", status="True", last_transition_time=ready)] if ready else []
    status = PodStatus(
        phase="Running",
        pod_ip=address,
        conditions=rows,
        container_statuses=[ContainerStatus(name="bind9", restart_count=restarts)],
    )
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"), status=status)


def servers(*pods, of="a"):
    return servers_of(instance(of), None, KEYS, pods)


async def test_the_fleet_hangs_up_on_servers_that_an_instance_no_longer_has_and_on_no_other():
    fleet = DriverPool(clock=SYSTEM_CLOCK, timeout=1.0)
    old, kept = servers(pod("one", "192.0.2.1"), pod("two", "192.0.2.2"))
    (other,) = servers(pod("three", "192.0.2.3"), of="b")
    drivers = {server.name: fleet.driver(server) for server in (old, kept, other)}
    fleet.keep(NamespacedName("a", "default"), [kept])
    assert fleet.servers == [kept, other]
    assert fleet.driver(kept) is drivers["two"]
    fleet.keep(NamespacedName("a", "default"), [])
    assert fleet.servers == [other]
    fleet.close()
    assert fleet.servers == []
    with pytest.raises(DriverError):
        fleet.driver(kept)


async def test_a_server_that_is_again_as_it_was_keeps_its_driver_and_the_one_between_is_let_go(clock):
    fleet = DriverPool(clock=clock, timeout=1.0)
    (first,), (second,) = (servers(pod("one", "192.0.2.1", restarts=n, ready="2026-01-01T00:00:00Z")) for n in (0, 1))
    assert first.id == second.id
    driver = fleet.driver(first)
    fleet.driver(second)
    assert fleet.driver(first) is driver
    await clock.advance(CLOSE_AFTER)
    assert fleet.servers == [first]
    fleet.close()


async def test_a_server_whose_containers_became_ready_is_asked_at_once_however_often_it_failed_before():
    fleet = DriverPool(clock=SYSTEM_CLOCK, timeout=1.0)
    (starting,) = servers(pod("one", "192.0.2.1"))
    (ready,) = servers(pod("one", "192.0.2.1", ready="2026-01-01T00:00:00Z"))
    (again,) = servers(pod("one", "192.0.2.1", ready="2026-01-01T00:00:00Z", restarts=1))
    assert starting.id == ready.id == again.id
    assert len({id(fleet.driver(server)) for server in (starting, ready, again, again)}) == 3
    fleet.close()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"endpoints": [ServerEndpoint(address="192.0.2.1"), ServerEndpoint(address="dead")]},
            "spec.endpoints[1].address",
        ),
        ({"endpoints": [ServerEndpoint(address="1.2.3")]}, "spec.endpoints[0].address"),
        ({"primary_servers": ["::::"]}, "spec.primaryServers[0]"),
    ],
)
def test_a_server_without_a_real_address_is_reported_by_the_field(spec, field):
    meta = ObjectMeta(name="a", namespace="default")
    wrong = Bind9Instance(metadata=meta, spec=Bind9Instance.Spec(cluster_ref="", role="secondary", **spec))
    with pytest.raises(PlanError) as refused:
        servers_of(wrong, None, KEYS, ())
    assert (refused.value.reason, refused.value.field) == ("ConfigurationInvalid", field)
