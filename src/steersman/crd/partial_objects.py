"""Objects that lack required fields, as the API server sends them to conversions during a server-side apply. Pure.

There it asks for what one manager owns, in the version of another: an object that was never stored, and never will be.
A conversion sees an empty value where a required field is missing, as a conversion in Go does.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect as mi

from steersman.kube.api.objects import Resource, decode

__all__ = ["decode_partial"]

R = TypeVar("R", bound=Resource)
_PARSED: Final[dict[type[mi.Type], Any]] = {
    mi.BytesType: bytes,
    mi.DateTimeType: dt.datetime,
    mi.DateType: dt.date,
    mi.DecimalType: decimal.Decimal,
    mi.TimeDeltaType: dt.timedelta,
    mi.UUIDType: uuid.UUID,
}
_EMPTY: Final[dict[type[mi.Type], Any]] = {
    mi.BoolType: False,
    mi.DictType: {},
    mi.FloatType: 0.0,
    mi.IntType: 0,
    mi.ListType: [],
    mi.StrType: "",
}


def decode_partial(data: dict[str, Any], cls: type[R]) -> R:
    """`data` as an object of `cls`, also when required fields are missing; other errors are those of decoding."""
    try:
        return decode(msgspec.json.encode(data), cls)
    except msgspec.ValidationError as error:
        if "missing required field" not in str(error):
            raise
    made: R = _value(mi.type_info(cls), data)
    return made


def _value(info: mi.Type, data: Any) -> Any:
    if isinstance(info, mi.Metadata):
        return _value(info.type, data)
    if isinstance(info, mi.UnionType):
        fitting = (each for each in info.types if isinstance(each, mi.StructType | mi.Metadata | mi.ListType))
        return None if data is None else _value(next(fitting, mi.AnyType()), data)
    if isinstance(info, mi.StructType) and isinstance(data, dict):
        fields = {
            field.name: _value(field.type, data[field.encode_name]) if field.encode_name in data else _empty(field.type)
            for field in info.fields
            if field.encode_name in data or field.required
        }
        return info.cls(**fields)
    if isinstance(info, mi.ListType) and isinstance(data, list):
        return [_value(info.item_type, item) for item in data]
    if isinstance(info, mi.DictType) and isinstance(data, dict):
        return {key: _value(info.value_type, item) for key, item in data.items()}
    if isinstance(info, mi.EnumType):
        return info.cls(data)
    return msgspec.convert(data, _PARSED[type(info)]) if type(info) in _PARSED else data


def _empty(info: mi.Type) -> Any:
    if isinstance(info, mi.Metadata):
        return _empty(info.type)
    if isinstance(info, mi.StructType):
        return _value(info, {})
    if isinstance(info, mi.LiteralType):
        return info.values[0]
    if isinstance(info, mi.EnumType):
        return next(iter(info.cls))
    empty = _EMPTY.get(type(info))
    return type(empty)() if empty is not None else None
