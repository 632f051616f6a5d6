from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.kube.api.times import format_micro_time, format_time, parse_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T12:00:00Z", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("2024-02-29T12:00:00+00:00", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("2024-03-01T01:30:00+13:30", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("2024-02-29T04:30:00-07:30", datetime(2024, 2, 29, 12, tzinfo=UTC)),
        ("2024-02-29T12:00:00.5Z", datetime(2024, 2, 29, 12, 0, 0, 500000, tzinfo=UTC)),
        ("2024-02-29T12:00:00.123456Z", datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)),
        ("2024-02-29T12:00:00.123456999Z", datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_rfc_3339_names_a_point_in_time(text: str, expected: datetime) -> None:
    parsed = parse_time(text)
    assert parsed == expected
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2024-02-30T12:00:00Z",
        "2024-02-29T24:00:00Z",
        "2024-02-29T12:00:60Z",
        "2024-02-29T12:00:00",
        "2024-02-29 12:00:00Z",
        "2024-02-29t12:00:00z",
        "2024-02-29T12:00:00.Z",
        "2024-02-29T12:00:00+0100",
        "2024-02-29T12:00:00+99:00",
        "0001-01-01T00:00:00+01:00",
        "2024-02-29T12:00:00Z\n",
        "٢٠٢٤-02-29T12:00:00Z",  # digits of another script
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(FormatError, match=r"is not an RFC 3339 time \(try 2006-01-02T15:04:05Z\)"):
        parse_time(text)


def test_seconds_are_cut_and_micro_times_always_have_six_decimals() -> None:
    when = datetime(2024, 2, 29, 12, 0, 0, 999999, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(when) == "2024-02-29T11:00:00Z"
    assert format_micro_time(when) == "2024-02-29T11:00:00.999999Z"
    assert format_micro_time(0) == "1970-01-01T00:00:00.000000Z"
    assert format_time(0.9) == "1970-01-01T00:00:00Z"
    assert format_time(datetime(1, 1, 1, tzinfo=UTC)) == "0001-01-01T00:00:00Z"


def test_a_time_without_zone_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        format_time(datetime(2024, 1, 1))  # noqa: DTZ001 - the mistake under test


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_micro_time_reads_back_exactly(when: datetime) -> None:
    assert parse_time(format_micro_time(when)) == when
    assert parse_time(format_time(when)) == when.replace(microsecond=0)
