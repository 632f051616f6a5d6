"""Cluster IPs and node ports: what a Service gets out of the server's pools.

An address belongs to the service that holds it as long as the service exists and needs one; it never changes under a
service. Which are taken follows from the stored services alone, so nothing can leak.
"""

from __future__ import annotations

import ipaddress
from copy import copy
from typing import TYPE_CHECKING, Any

from steersman.apiserver import status_errors
from steersman.apiserver.validation import field_errors
from steersman.kube.api.gvk import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from steersman.apiserver.storage.store import ResourceTable, Store, StoreEvent

JSON = dict[str, Any]
SERVICE = Kind(version="v1", kind="Service", plural="services")
NETWORK = ipaddress.ip_network("10.0.0.0/16")
PORTS = range(30000, 32768)
_DYNAMIC_FIRST = 256  # lower addresses are left to those who ask for one by name


class ServiceAllocator:
    """Assigns cluster IPs and node ports; knows which are taken from the stored services."""

    def __init__(self, store: Store, random: Random) -> None:
        self._random = random
        self._addresses: set[str] = set()
        self._ports: set[int] = set()
        store.listen(self._observe)

    def with_random(self, random: Random) -> ServiceAllocator:
        """The same pools, with another choice among what is free."""
        other = copy(self)
        other._random = random  # noqa: SLF001  of the same class
        return other

    def _observe(self, table: ResourceTable, event: StoreEvent) -> None:
        if table.kind.qualified != SERVICE.qualified:
            return
        if event.previous is not None:
            self._addresses.difference_update(_addresses(event.previous.obj))
            self._ports.difference_update(_ports(event.previous.obj))
        if event.type != "DELETED":
            self._addresses.update(_addresses(event.record.obj))
            self._ports.update(_ports(event.record.obj))

    def allocate(self, service: JSON, old: JSON | None, *, dry_run: bool = False) -> JSON:
        """`service` with what it needs; raises 422 when it asks for what it cannot have.

        A dry run does not look for what is free: it shows the first address, and ports beyond the range.
        """
        spec = service.get("spec") or {}
        before = (old or {}).get("spec") or {}
        spec = _without_leftovers(_kept(spec, before), before)
        spec = self._with_address(service, spec, before, dry_run=dry_run)
        return {**service, "spec": self._with_ports(service, spec, before, dry_run=dry_run)}

    def _with_address(self, service: JSON, spec: JSON, before: JSON, *, dry_run: bool) -> JSON:
        if spec.get("type") == "ExternalName":
            dropped = {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"}
            return {key: value for key, value in spec.items() if key not in dropped}
        address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
        if not address:
            address = str(NETWORK[0]) if dry_run else self._free_address()
        elif address not in {"None", before.get("clusterIP")}:
            self._check_address(service, address, before)
        out = {**spec, "clusterIP": address, "clusterIPs": spec.get("clusterIPs") or [address]}
        dual = address == "None" and not spec.get("selector")
        out.setdefault("ipFamilies", ["IPv4", "IPv6"] if dual else ["IPv4"])
        out.setdefault("ipFamilyPolicy", "RequireDualStack" if dual else "SingleStack")
        return out

    def _free_address(self) -> str:
        for _ in range(1000):
            address = str(NETWORK[self._random.randrange(_DYNAMIC_FIRST, NETWORK.num_addresses - 1)])
            if address not in self._addresses:
                return address
        raise status_errors.internal("failed to allocate a cluster IP: the range is full")

    def _check_address(self, service: JSON, address: str, before: JSON) -> None:
        if before.get("clusterIP"):
            return  # an address cannot change; validation says so
        try:
            inside = ipaddress.ip_address(address) in NETWORK
        except ValueError:
            return  # not an address; validation says so
        if not inside:
            why = "the provided network does not match the current range"
        elif address in self._addresses:
            why = "provided IP is already allocated"
        else:
            return
        cause = field_errors.invalid("spec.clusterIPs", [address], f"failed to allocate IP {address}: {why}")
        raise status_errors.invalid(SERVICE, service["metadata"].get("name", ""), [cause])

    def _with_ports(self, service: JSON, spec: JSON, before: JSON, *, dry_run: bool) -> JSON:
        ports = spec.get("ports") or []
        needed = spec.get("type") == "NodePort" or (
            spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
        )
        if not needed:
            if spec.get("type") == "LoadBalancer" or before.get("type") not in {"NodePort", "LoadBalancer"}:
                return spec
            return {**spec, "ports": [{k: v for k, v in port.items() if k != "nodePort"} for port in ports]}
        own = set(_ports({"spec": before}))
        taken = self._ports - own
        # The first time a service needs node ports, the same port of two protocols gets one number.
        shared = {} if own else {port["port"]: port["nodePort"] for port in reversed(ports) if port.get("nodePort")}
        out: list[JSON] = []
        for index, port in enumerate(ports):
            wanted: int | None = port.get("nodePort") or shared.get(port["port"])
            if asked := port.get("nodePort"):
                self._check_port(service, index, asked, taken)
            elif wanted is None and dry_run:
                wanted = max((p["nodePort"] for p in out), default=PORTS.stop) + 1
            elif wanted is None:
                wanted = self._free_port(taken | {p["nodePort"] for p in (*out, *ports) if p.get("nodePort")})
            if not own:
                shared.setdefault(port["port"], wanted)
            out.append({**port, "nodePort": wanted})
        return {**spec, "ports": out}

    def _check_port(self, service: JSON, index: int, port: int, taken: set[int]) -> None:
        if port not in PORTS:
            why = "provided port is not in the valid range. The range of valid ports is 30000-32767"
        elif port in taken:
            why = "provided port is already allocated"
        else:
            return
        cause = field_errors.invalid(f"spec.ports[{index}].nodePort", port, why)
        raise status_errors.invalid(SERVICE, service["metadata"].get("name", ""), [cause])

    def _free_port(self, taken: set[int]) -> int:
        free = [port for port in PORTS if port not in taken]
        if not free:
            raise status_errors.internal("failed to allocate a nodePort: range is full")
        return self._random.choice(free)


def _kept(spec: JSON, before: JSON) -> JSON:
    """A replace that leaves allocated values out keeps them, as long as the type still needs them."""
    if not before or "ExternalName" in {spec.get("type"), before.get("type")}:
        return spec
    out = dict(spec)
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        out["clusterIPs"] = [spec["clusterIP"]]
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if not out.get(field) and before.get(field) and not (field != "clusterIP" and spec.get("clusterIP") == "None"):
            out[field] = before[field]
    if {spec.get("type"), before.get("type")} <= {"NodePort", "LoadBalancer"}:
        held = {
            (p.get("protocol"), p.get("port")): p["nodePort"] for p in before.get("ports") or () if p.get("nodePort")
        }
        out["ports"] = [
            port
            if port.get("nodePort") or (port.get("protocol"), port.get("port")) not in held
            else {**port, "nodePort": held[port.get("protocol"), port.get("port")]}
            for port in out.get("ports") or ()
        ]
    return out


def _without_leftovers(spec: JSON, before: JSON) -> JSON:
    """After a change of type, what only the old type needs goes away, unless the writer has touched it."""
    external, balanced = {"NodePort", "LoadBalancer"}, {"LoadBalancer"}
    unneeded = {
        field
        for field, types in (
            ("allocateLoadBalancerNodePorts", balanced),
            ("loadBalancerClass", balanced),
            ("externalTrafficPolicy", external),
        )
        if before.get("type") in types and spec.get("type") not in types and spec.get(field) == before.get(field)
    }
    if spec.get("externalIPs"):
        unneeded.discard("externalTrafficPolicy")
    return {key: value for key, value in spec.items() if key not in unneeded} if unneeded else spec


def _addresses(service: JSON) -> Iterator[str]:
    return (address for address in service["spec"].get("clusterIPs") or () if address != "None")


def _ports(service: JSON) -> Iterator[int]:
    return (port["nodePort"] for port in (service.get("spec") or {}).get("ports") or () if port.get("nodePort"))
