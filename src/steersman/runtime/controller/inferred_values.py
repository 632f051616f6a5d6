"""What the source reader knows of a value without running anything.

A value is a context, a client, a kind, objects of certain kinds, an instance of a class, a tuple of such, this very
Python value, or unknown (None). `joined` is the value of a name that is assigned in several branches.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from steersman.kube.api.gvk import Kind
from steersman.kube.api.objects import Resource
from steersman.kube.client.client import Client
from steersman.runtime.reconcile.blocking_context import BlockingContext
from steersman.runtime.reconcile.context import ClusterContext
from steersman.runtime.reconcile.daemon_context import DaemonContext

if TYPE_CHECKING:
    from collections.abc import Iterable


class ContextValue(msgspec.Struct, frozen=True):
    """The context of a reconciler, for one cluster."""

    cluster: str = ""


class ClientValue(msgspec.Struct, frozen=True):
    """A client of one cluster."""

    cluster: str = ""


class CacheValue(msgspec.Struct, frozen=True):
    """`ctx.cache`."""


class ClustersValue(msgspec.Struct, frozen=True):
    """`ctx.clusters`."""


class MethodValue(msgspec.Struct, frozen=True):
    """A method of a context or a client."""

    of: ContextValue | ClientValue
    name: str


class KindValue(msgspec.Struct, frozen=True):
    """A kind, as a class or a Kind: one of these."""

    kinds: frozenset[Kind]


class ObjectValue(msgspec.Struct, frozen=True):
    """An object, or several, of these kinds; others are possible when not all alternatives are known."""

    kinds: frozenset[Kind]
    is_complete: bool = True


class InstanceValue(msgspec.Struct, frozen=True):
    """An instance of a class, or several."""

    type: Any


class TupleValue(msgspec.Struct, frozen=True):
    """A tuple."""

    values: tuple[Any, ...]


class KnownValue(msgspec.Struct, frozen=True, eq=False):
    """This very value."""

    value: Any


class BoundValue(msgspec.Struct, frozen=True, eq=False):
    """A function with its first arguments."""

    function: Any
    arguments: tuple[Any, ...]


class InnerValue(msgspec.Struct, frozen=True, eq=False):
    """A function that is defined inside the one that is read."""

    node: Any
    frame: Any


_CONTEXTS: Final = (ClusterContext, BlockingContext, DaemonContext)


def value_of(obj: Any) -> Any:
    """What is known of a value that exists."""
    if isinstance(obj, Kind):
        return KindValue(frozenset({obj}))
    if isinstance(obj, type) and isinstance(kind := getattr(obj, "KIND", None), Kind):
        return KindValue(frozenset({kind}))
    if isinstance(obj, Client):
        return ClientValue()
    return KnownValue(obj)


def value_of_type(hint: Any) -> Any:
    """What is known of a value of this type; of a container, what is known of its items."""
    if isinstance(hint, type) and get_origin(hint) is None:
        if issubclass(hint, _CONTEXTS):
            return ContextValue()
        if issubclass(hint, Client):
            return ClientValue()
        if isinstance(kind := getattr(hint, "KIND", None), Kind):
            return ObjectValue(frozenset({kind}))
        return None if hint.__module__ in {"builtins", "typing"} or hint is Resource else InstanceValue(hint)
    origin, options = get_origin(hint), [option for option in get_args(hint) if option not in (type(None), ...)]
    if origin is type:
        return None
    found = [value_of_type(option) for option in options]
    if origin is tuple and ... not in get_args(hint):
        return TupleValue(tuple(found))
    if origin in (Union, types.UnionType):
        return joined(found)
    return joined([value for value in found if value is not None])


def joined(values: Iterable[Any]) -> Any:
    """What is known of a value that is one of these."""
    found = []
    for value in values:
        if isinstance(value, TupleValue):
            found.append(joined(value.values))
        elif not (isinstance(value, KnownValue) and value.value is None):
            found.append(value)
    objects = [value for value in found if isinstance(value, ObjectValue)]
    if objects:
        kinds = frozenset[Kind]().union(*(value.kinds for value in objects))
        return ObjectValue(kinds, len(objects) == len(found) and all(value.is_complete for value in objects))
    if found and all(isinstance(value, KindValue) for value in found):
        return KindValue(frozenset[Kind]().union(*(value.kinds for value in found)))
    return found[0] if found and all(value == found[0] for value in found) else None


def items_of(value: Any) -> Any:
    """What is known of each item of a value."""
    if isinstance(value, TupleValue):
        return joined(value.values)
    if isinstance(value, KnownValue) and isinstance(value.value, (list, tuple, set, frozenset, dict)):
        return joined([value_of(item) for item in value.value])
    return value


def unbound(value: Any) -> tuple[Any, list[Any]]:
    """A function, and the arguments that are bound to it already."""
    if isinstance(value, BoundValue):
        return value.function, list(value.arguments)
    function = value.value if isinstance(value, KnownValue) else None
    if isinstance(function, functools.partial):
        inner, first = unbound(KnownValue(function.func))
        return inner, [*first, *map(value_of, function.args)]
    if isinstance(function, types.MethodType):
        return function.__func__, [value_of(function.__self__)]
    if function is None or isinstance(function, (types.FunctionType, type)):
        return function, []
    method = inspect.getattr_static(type(function), "__call__", None)
    return (method, [value_of(function)]) if isinstance(method, types.FunctionType) else (function, [])


def attribute_of(obj: Any, name: str) -> Any:
    """An attribute of a value that exists; properties are not run."""
    if isinstance(inspect.getattr_static(type(obj), name, None), (property, functools.cached_property)):
        return None
    try:
        return value_of(getattr(obj, name))
    except Exception:  # noqa: BLE001  a module may load lazily, a descriptor may do anything
        return None


def hints_of(obj: Any) -> dict[str, Any]:
    """The annotations of a function or a class; empty when they cannot be evaluated."""
    try:
        return get_type_hints(obj)
    except Exception:  # noqa: BLE001  an annotation may be any expression
        return {}
