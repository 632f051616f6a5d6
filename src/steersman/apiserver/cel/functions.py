"""The function libraries of Kubernetes that CEL itself does not have: lists, sets, regex, quantity, ip, cidr.

A `CELFunction` has overloads for the checker, with full types, and is evaluated by one Python function. Values of the
types that Kubernetes adds are maps with one entry while an expression runs: `{"kubernetes.Quantity": "1500"}`; equal
values have equal maps. Functions are pure; a `ValueError` of theirs is the error of the expression.
"""

from __future__ import annotations

import ipaddress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from steersman.apiserver.crd.compiled_schema import PatternError, compile_pattern
from steersman.errors import FormatError
from steersman.kube.api.quantities import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Type = Any  # as in `expressions`
Overload = tuple[bool, tuple[Type, ...], Type]  # called on a value, parameters with that value first, result

QUANTITY: Final = "kubernetes.Quantity"
IP: Final = "net.IP"
CIDR: Final = "net.CIDR"
_ADDED = frozenset((QUANTITY, IP, CIDR))
_ANY = ("list", "dyn")
_NUMBERS = ("int", "uint", "double")
_ORDERED = (*_NUMBERS, "string", "bytes", "bool")
# What Kubernetes has and this server has not; a definition that uses one is rejected with its name.
_MISSING = (
    "url isURL semver isSemver format authorizer first last flatten sortBy transformList transformMap transformMapEntry"
)
UNSUPPORTED: Final = frozenset(_MISSING.split())


class CELFunction(NamedTuple):
    """One name, all its overloads, and how it is evaluated."""

    name: str
    evaluate: Callable[..., Any]
    declared: tuple[Overload, ...]

    def overloads(self, *, untyped: bool) -> Iterator[Overload]:
        """As the checker needs them, or (`untyped`) reduced to what can be told apart when an expression runs."""
        if not untyped:
            yield from self.declared
            return
        for is_member, parameters in dict.fromkeys((member, _kinds(kinds)) for member, kinds, _ in self.declared):
            yield is_member, parameters, "dyn"


def _kinds(parameters: tuple[Type, ...]) -> tuple[Type, ...]:
    return tuple(
        ("map", "dyn") if kind in _ADDED else ("list", "dyn") if isinstance(kind, tuple) else kind
        for kind in parameters
    )


def _on(*parameters: Type, result: Type) -> Overload:
    return True, parameters, result


def _of(*parameters: Type, result: Type) -> Overload:
    return False, parameters, result


def _is_sorted(items: list[Any]) -> bool:
    return all(first <= second for first, second in pairwise(items))


def _total(items: list[Any]) -> Any:
    total = sum(items)
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise ValueError("integer overflow")
    return total


def _least(items: list[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return min(items)


def _greatest(items: list[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return max(items)


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0 or start > end or end > len(items):
        raise ValueError(f"cannot slice({start}, {end}), list has {len(items)} items")
    return items[start:end]


def _same(left: Any, right: Any) -> bool:
    """Equality of CEL, where a boolean is not a number."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _holds(items: list[Any], item: Any) -> bool:
    return any(_same(item, other) for other in items)


def _distinct(items: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if not _holds(found, item):
            found.append(item)
    return found


def _contains_all(items: list[Any], wanted: list[Any]) -> bool:
    return all(_holds(items, item) for item in wanted)


def _intersects(left: list[Any], right: list[Any]) -> bool:
    return any(_holds(right, item) for item in left)


def _equivalent(left: list[Any], right: list[Any]) -> bool:
    return _contains_all(left, right) and _contains_all(right, left)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    try:
        found = [match.group() for match in compile_pattern(pattern).finditer(text)]
    except PatternError as error:
        raise ValueError(f"illegal regex: {error}") from None
    return found if limit < 0 else found[:limit]


def _find(text: str, pattern: str) -> str:
    return next(iter(_find_all(text, pattern)), "")


def _amount(value: dict[str, str] | int) -> int:
    return value * 10**9 if isinstance(value, int) else int(value[QUANTITY])


def _quantity(text: str) -> dict[str, str]:
    return {QUANTITY: str(Quantity.parse(text).nanos)}


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except FormatError:
        return False
    return True


def _is_integer(value: dict[str, str]) -> bool:
    whole, rest = divmod(_amount(value), 10**9)
    return rest == 0 and -(2**63) <= whole < 2**63


def _as_integer(value: dict[str, str]) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _amount(value) // 10**9


def _compare(left: dict[str, str], right: dict[str, str]) -> int:
    difference = _amount(left) - _amount(right)
    return (difference > 0) - (difference < 0)


def _added(left: dict[str, str], right: dict[str, str] | int) -> dict[str, str]:
    return {QUANTITY: str(_amount(left) + _amount(right))}


def _subtracted(left: dict[str, str], right: dict[str, str] | int) -> dict[str, str]:
    return {QUANTITY: str(_amount(left) - _amount(right))}


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _address(value: dict[str, str] | str) -> Address:
    text = value if isinstance(value, str) else value[IP]
    address = ipaddress.ip_address(text)
    if "%" in text or (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None):
        raise ValueError(f"IP address {text!r} has a zone or is an IPv4-mapped IPv6 address")
    return address


def _prefix(value: dict[str, str] | str) -> tuple[Address, Network]:
    text = value if isinstance(value, str) else value[CIDR]
    address, slash, length = text.partition("/")
    if not slash or not length.isdigit() or (length[0] == "0" and length != "0"):
        raise ValueError(f"network address parse error: {text!r} needs a prefix length")
    return _address(address), ipaddress.ip_network(text, strict=False)


def _parses(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def parses(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return parses


def _ip(value: dict[str, str] | str) -> dict[str, str]:
    """Of a text, or the address of a CIDR."""
    return {IP: str(_address(value) if isinstance(value, str) else _prefix(value)[0])}


def _cidr(text: str) -> dict[str, str]:
    address, network = _prefix(text)
    return {CIDR: f"{address}/{network.prefixlen}"}


def _is_canonical(text: str) -> bool:
    return str(_address(text)) == text


def _is_global_unicast(value: dict[str, str]) -> bool:
    address = _address(value)
    broadcast = str(address) == "255.255.255.255"
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and not broadcast


def _is_link_local_multicast(value: dict[str, str]) -> bool:
    address = _address(value)
    if address.version == 4:
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.is_multicast and address.packed[1] & 0x0F == 0x02


def _contains_ip(value: dict[str, str], address: dict[str, str] | str) -> bool:
    return _address(address) in _prefix(value)[1]


def _contains_cidr(value: dict[str, str], other: dict[str, str] | str) -> bool:
    outer, inner = _prefix(value)[1], _prefix(other)[1]
    return outer.version == inner.version and outer.prefixlen <= inner.prefixlen and inner.network_address in outer


def _masked(value: dict[str, str]) -> dict[str, str]:
    return {CIDR: str(_prefix(value)[1])}


def _lists(*items: str, result: Type = "") -> tuple[Overload, ...]:
    """An overload per type of item; the result is an item when not given."""
    return tuple(_on(("list", item), result=result or item) for item in items)


FUNCTIONS: Final = (
    CELFunction("isSorted", _is_sorted, _lists(*_ORDERED, "duration", "timestamp", result="bool")),
    CELFunction("sum", _total, _lists(*_NUMBERS)),
    CELFunction("min", _least, _lists(*_ORDERED)),
    CELFunction("max", _greatest, _lists(*_ORDERED)),
    CELFunction("slice", _slice, (_on(_ANY, "int", "int", result=_ANY),)),
    CELFunction("distinct", _distinct, (_on(_ANY, result=_ANY),)),
    CELFunction("sort", sorted, tuple(_on(("list", item), result=("list", item)) for item in _ORDERED)),
    CELFunction("lists.range", lambda count: list(range(count)), (_of("int", result=("list", "int")),)),
    CELFunction("sets.contains", _contains_all, (_of(_ANY, _ANY, result="bool"),)),
    CELFunction("sets.intersects", _intersects, (_of(_ANY, _ANY, result="bool"),)),
    CELFunction("sets.equivalent", _equivalent, (_of(_ANY, _ANY, result="bool"),)),
    CELFunction("find", _find, (_on("string", "string", result="string"),)),
    CELFunction(
        "findAll",
        _find_all,
        (
            _on("string", "string", result=("list", "string")),
            _on("string", "string", "int", result=("list", "string")),
        ),
    ),
    CELFunction("quantity", _quantity, (_of("string", result=QUANTITY),)),
    CELFunction("isQuantity", _is_quantity, (_of("string", result="bool"),)),
    CELFunction("isInteger", _is_integer, (_on(QUANTITY, result="bool"),)),
    CELFunction("asInteger", _as_integer, (_on(QUANTITY, result="int"),)),
    CELFunction("asApproximateFloat", lambda value: _amount(value) / 10**9, (_on(QUANTITY, result="double"),)),
    CELFunction("sign", lambda value: _compare(value, {QUANTITY: "0"}), (_on(QUANTITY, result="int"),)),
    CELFunction("isLessThan", lambda a, b: _compare(a, b) < 0, (_on(QUANTITY, QUANTITY, result="bool"),)),
    CELFunction("isGreaterThan", lambda a, b: _compare(a, b) > 0, (_on(QUANTITY, QUANTITY, result="bool"),)),
    CELFunction("compareTo", _compare, (_on(QUANTITY, QUANTITY, result="int"),)),
    CELFunction("add", _added, (_on(QUANTITY, QUANTITY, result=QUANTITY), _on(QUANTITY, "int", result=QUANTITY))),
    CELFunction("sub", _subtracted, (_on(QUANTITY, QUANTITY, result=QUANTITY), _on(QUANTITY, "int", result=QUANTITY))),
    CELFunction("ip", _ip, (_of("string", result=IP), _on(CIDR, result=IP))),
    CELFunction("isIP", _parses(_address), (_of("string", result="bool"),)),
    CELFunction("ip.isCanonical", _is_canonical, (_of("string", result="bool"),)),
    CELFunction("family", lambda value: _address(value).version, (_on(IP, result="int"),)),
    CELFunction("isUnspecified", lambda value: _address(value).is_unspecified, (_on(IP, result="bool"),)),
    CELFunction("isLoopback", lambda value: _address(value).is_loopback, (_on(IP, result="bool"),)),
    CELFunction("isLinkLocalMulticast", _is_link_local_multicast, (_on(IP, result="bool"),)),
    CELFunction("isLinkLocalUnicast", lambda value: _address(value).is_link_local, (_on(IP, result="bool"),)),
    CELFunction("isGlobalUnicast", _is_global_unicast, (_on(IP, result="bool"),)),
    CELFunction("cidr", _cidr, (_of("string", result=CIDR),)),
    CELFunction("isCIDR", _parses(_prefix), (_of("string", result="bool"),)),
    CELFunction("containsIP", _contains_ip, (_on(CIDR, IP, result="bool"), _on(CIDR, "string", result="bool"))),
    CELFunction("containsCIDR", _contains_cidr, (_on(CIDR, CIDR, result="bool"), _on(CIDR, "string", result="bool"))),
    CELFunction("masked", _masked, (_on(CIDR, result=CIDR),)),
    CELFunction("prefixLength", lambda value: _prefix(value)[1].prefixlen, (_on(CIDR, result="int"),)),
)
