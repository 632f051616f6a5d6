"""Cluster IPs and node ports."""

from __future__ import annotations

import ipaddress
from random import Random
from typing import Any

import pytest

from steersman.apiserver.status_errors import StatusError
from steersman.apiserver.storage.store import Store
from steersman.apiserver.write.service_allocator import NETWORK, PORTS, SERVICE, ServiceAllocator
from steersman.testing.clock import VirtualClock


class Shop:
    """Services and the pools they draw from."""

    def __init__(self) -> None:
        self.store = Store(VirtualClock())
        self.service_allocator = ServiceAllocator(self.store, Random(1))

    def put(self, name: str, **spec: Any) -> dict[str, Any]:
        table = self.store.table(SERVICE)
        old = table.records.get(f"ns/{name}")
        service = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80, "protocol": "TCP"}], **spec}}
        stored = self.service_allocator.allocate(service, old.obj if old else None)
        self.store.put(table, f"ns/{name}", stored)
        spec_now: dict[str, Any] = stored["spec"]
        return spec_now

    def drop(self, name: str) -> None:
        self.store.remove(self.store.table(SERVICE), f"ns/{name}")


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_every_service_gets_an_address_of_its_own(shop: Shop):
    given = [shop.put(f"s{number}")["clusterIP"] for number in range(200)]
    assert len(set(given)) == 200
    assert all(ipaddress.ip_address(address) in NETWORK for address in given)


def test_an_address_that_is_asked_for_is_given_once_and_free_again_after_the_service(shop: Shop):
    assert shop.put("a", clusterIP="10.0.0.9")["clusterIPs"] == ["10.0.0.9"]
    with pytest.raises(StatusError, match="provided IP is already allocated"):
        shop.put("b", clusterIP="10.0.0.9")
    shop.drop("a")
    assert shop.put("b", clusterIP="10.0.0.9")["clusterIP"] == "10.0.0.9"


def test_an_address_outside_the_range_is_refused(shop: Shop):
    with pytest.raises(StatusError, match="does not match the current range"):
        shop.put("a", clusterIP="1.2.3.4")


def test_a_replace_that_says_nothing_keeps_address_and_port(shop: Shop):
    first = shop.put("a", type="NodePort")
    again = shop.put("a", type="NodePort")
    assert (again["clusterIP"], again["ports"]) == (first["clusterIP"], first["ports"])
    assert first["ports"][0]["nodePort"] in PORTS


def test_a_service_that_needs_no_port_any_more_gives_it_back(shop: Shop):
    port = shop.put("a", type="NodePort")["ports"][0]["nodePort"]
    assert "nodePort" not in shop.put("a", type="ClusterIP")["ports"][0]
    assert shop.put("b", type="NodePort", ports=[{"port": 80, "nodePort": port}])["ports"][0]["nodePort"] == port


def test_a_port_is_given_once(shop: Shop):
    shop.put("a", type="NodePort", ports=[{"port": 80, "nodePort": 30999}])
    with pytest.raises(StatusError, match="provided port is already allocated"):
        shop.put("b", type="NodePort", ports=[{"port": 80, "nodePort": 30999}])
    with pytest.raises(StatusError, match="not in the valid range"):
        shop.put("c", type="NodePort", ports=[{"port": 80, "nodePort": 80}])


def test_headless_and_external_services_hold_no_address(shop: Shop):
    headless = shop.put("a", clusterIP="None", selector={"a": "b"})
    assert (headless["clusterIPs"], headless["ipFamilyPolicy"]) == (["None"], "SingleStack")
    assert "clusterIP" not in shop.put("b", type="ExternalName", externalName="x.y", ports=[])
