"""Round trips between versions: every object of a spoke survives the way to the hub and back.

    def test_a_site_of_v1_loses_nothing():
        assert_round_trips(SiteV1)

Objects are made by Hypothesis from the types themselves, so they hold what the schema of the definition allows: bounds,
patterns, formats, enumerations and unique lists. CEL rules are not known here; `objects` takes a narrower strategy.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect as mi

from steersman.crd.conversion import convert
from steersman.errors import ConfigError
from steersman.kube.api.objects import ObjectMeta, Resource, decode, to_wire
from steersman.kube.client.three_way import explicit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["assert_round_trips", "objects_of"]

R = TypeVar("R", bound=Resource)
TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=20)
INT64: Final = (-(2**63), 2**63 - 1)
FEW: Final = 4  # items of lists and maps, unless more are required
FORMATS: Final = {
    "byte": st.binary(max_size=12).map(lambda data: base64.b64encode(data).decode()),
    "date": st.dates().map(str),
    "date-time": st.datetimes(min_value=dt.datetime(1970, 1, 1)).map(lambda time: f"{time:%Y-%m-%dT%H:%M:%SZ}"),  # noqa: DTZ001
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "password": TEXT,
    "uuid": st.uuids().map(str),
}
JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(*INT64) | TEXT,
    lambda inner: st.lists(inner, max_size=FEW) | st.dictionaries(TEXT, inner, max_size=FEW),
    max_leaves=FEW,
)
SCALARS: Final[dict[type[mi.Type], st.SearchStrategy[Any]]] = {
    mi.AnyType: JSON_VALUES,
    mi.BoolType: st.booleans(),
    mi.NoneType: st.none(),
    mi.BytesType: st.binary(max_size=12),
    mi.DateTimeType: st.datetimes(timezones=st.just(dt.UTC)),
    mi.DateType: st.dates(),
    mi.TimeDeltaType: st.timedeltas(dt.timedelta(0), dt.timedelta(days=1000)),
    mi.UUIDType: st.uuids(),
    mi.DecimalType: st.decimals(allow_nan=False, allow_infinity=False),
}


def assert_round_trips(
    source: type[R],
    *,
    via: type[Resource] | None = None,
    objects: st.SearchStrategy[R] | None = None,
    max_examples: int = 200,
) -> None:
    """Fail with the smallest object of `source` that does not come back from `via`, which is its hub by default.

    With a hub as `source` and a spoke as `via`, every object of the hub survives the way to the spoke and back.
    """
    other = via or source.HUB
    if other is None:
        raise ConfigError(f"{source.__name__} has no hub: name a spoke, or the version to go by as via=")
    versions: list[type[Resource]] = [source, other]

    @settings(
        max_examples=max_examples,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(objects_of(source) if objects is None else objects)
    def survives(obj: R) -> None:
        between = convert(versions, to_wire(obj), other.KIND.api_version)
        back = decode(msgspec.json.encode(convert(versions, between, source.KIND.api_version)), source)
        lost = _difference(explicit(obj), explicit(back))
        assert lost is None, f"{source.__name__} → {other.__name__} → {source.__name__}: {lost}"

    survives()


def objects_of(cls: type[R]) -> st.SearchStrategy[R]:
    """Objects of a Resource class, with labels and annotations, as its definition allows them."""
    namespace = "default" if cls.KIND.namespaced else ""
    pairs = st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=FEW)
    metadata = st.builds(
        ObjectMeta, name=st.just("object"), namespace=st.just(namespace), labels=pairs, annotations=pairs
    )
    return cast("st.SearchStrategy[R]", _struct(mi.type_info(cls), cls.__name__, metadata=metadata))


def _values(info: mi.Type, path: str) -> st.SearchStrategy[Any]:
    """The values of a type; `path` is where it stands, for errors."""
    if (scalars := SCALARS.get(type(info))) is not None:
        return scalars
    if (make := _MAKERS.get(type(info))) is not None:
        return make(info, path)
    raise ConfigError(f"{path}: no values are known for {type(info).__name__}: pass objects= with a strategy")


def _struct(info: Any, path: str, **given_fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in info.fields:
        values = given_fields.get(field.name)
        if values is None:
            values = _values(field.type, f"{path}.{field.encode_name}")
        (required if field.required or field.name in given_fields else optional)[field.name] = values
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: info.cls(**fields))


def _marked(info: mi.Metadata, path: str) -> st.SearchStrategy[Any]:
    schema: dict[str, Any] = info.extra_json_schema or {}
    inner = info.type
    if (name := schema.get("format")) is not None:
        if isinstance(inner, mi.IntType) and name in ("int32", "int64"):
            bits = int(name.removeprefix("int")) - 1
            return _values(inner, path).filter(lambda number: -(2**bits) <= number < 2**bits)
        if isinstance(inner, mi.StrType):
            if name not in FORMATS:
                raise ConfigError(f"{path}: no values are known for the format {name}: pass objects= with a strategy")
            return FORMATS[name]
    if isinstance(inner, mi.ListType) and (sort := schema.get("x-kubernetes-list-type")) in ("set", "map"):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        return _items(inner, path, _identity(keys) if sort == "map" else _encoded)
    return _values(inner, path)


def _items(info: Any, path: str, unique_by: Callable[[Any], Any] | None = None) -> st.SearchStrategy[Any]:
    """Lists and their relatives. Structs that name their LIST_KEYS are unique by these, as in the schema."""
    item = info.item_type
    if isinstance(item, mi.StructType) and (keys := getattr(item.cls, "LIST_KEYS", ())) and unique_by is None:
        unique_by = _identity(keys)
    if isinstance(info, (mi.SetType, mi.FrozenSetType)):
        unique_by = _encoded
    least = info.min_length or 0
    values = st.lists(
        _values(item, f"{path}[]"), min_size=least, max_size=_most(info.max_length, least), unique_by=unique_by
    )
    makers = {mi.SetType: set, mi.FrozenSetType: frozenset, mi.VarTupleType: tuple}
    return values.map(makers.get(type(info), list))


def _entries(info: mi.DictType, path: str) -> st.SearchStrategy[Any]:
    keys, values, least = _values(info.key_type, path), _values(info.value_type, f"{path}.*"), info.min_length or 0
    return st.dictionaries(keys, values, min_size=least, max_size=_most(info.max_length, least))


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _identity(keys: Any) -> Callable[[Any], bytes]:
    def identity(item: Any) -> bytes:
        fields = explicit(item)
        return _encoded([fields.get(key) for key in keys])

    return identity


def _most(limit: int | None, least: int) -> int:
    few = max(FEW, least)
    return few if limit is None else min(limit, few)


def _numbers(info: mi.IntType | mi.FloatType, _path: str) -> st.SearchStrategy[Any]:
    if isinstance(info, mi.FloatType):
        least, most = (info.ge if info.gt is None else info.gt), (info.le if info.lt is None else info.lt)
        bounds: dict[str, Any] = {"exclude_min": info.gt is not None, "exclude_max": info.lt is not None}
        return st.floats(least, most, allow_nan=False, allow_infinity=False, **bounds)
    least = max(bound for bound in (INT64[0], info.ge, None if info.gt is None else info.gt + 1) if bound is not None)
    most = min(bound for bound in (INT64[1], info.le, None if info.lt is None else info.lt - 1) if bound is not None)
    if not (step := info.multiple_of):
        return st.integers(least, most)
    return st.integers(-(-least // step), most // step).map(lambda number: number * step)


def _texts(info: mi.StrType, _path: str) -> st.SearchStrategy[str]:
    least, most = info.min_length or 0, info.max_length
    if info.pattern is None:
        return st.text(st.characters(codec="utf-8"), min_size=least, max_size=max(20, least) if most is None else most)

    def fits(text: str) -> bool:
        return not text.endswith("\n") and least <= len(text) and (most is None or len(text) <= most)

    return st.from_regex(re.compile(info.pattern), alphabet=st.characters(codec="utf-8")).filter(fits)


_MAKERS: Final[dict[type[mi.Type], Callable[[Any, str], st.SearchStrategy[Any]]]] = {
    mi.Metadata: _marked,
    mi.UnionType: lambda info, path: st.one_of([_values(each, path) for each in info.types]),
    **dict.fromkeys((mi.StructType, mi.DataclassType, mi.TypedDictType), _struct),
    **dict.fromkeys((mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType), _items),
    mi.TupleType: lambda info, path: st.tuples(*(_values(each, f"{path}[]") for each in info.item_types)),
    mi.DictType: _entries,
    mi.LiteralType: lambda info, _: st.sampled_from(list(info.values)),
    mi.EnumType: lambda info, _: st.sampled_from(list(info.cls)),
    **dict.fromkeys((mi.IntType, mi.FloatType), _numbers),
    mi.StrType: _texts,
}


def _difference(before: Any, after: Any, path: str = "") -> str | None:
    """Where two values differ first; None when they do not."""
    if before == after:
        return None
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                return _difference(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                return _difference(old, new, f"{path}[{number}]")
    return f"{path} is {after!r}, and was {before!r}"
