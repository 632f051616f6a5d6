from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.kube.api.durations import format_duration, format_go_duration, parse_duration, parse_go_duration

US = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", timedelta(0)),
        ("-0", timedelta(0)),
        ("5s", timedelta(seconds=5)),
        ("1478s", timedelta(seconds=1478)),
        ("-5s", timedelta(seconds=-5)),
        ("+5s", timedelta(seconds=5)),
        ("5.6s", timedelta(seconds=5.6)),
        ("5.s", timedelta(seconds=5)),
        (".5s", timedelta(seconds=0.5)),
        ("1.004s", timedelta(seconds=1.004)),
        ("100.00100s", timedelta(seconds=100.001)),
        ("11us", 11 * US),
        ("12µs", 12 * US),
        ("12\N{GREEK SMALL LETTER MU}s", 12 * US),
        ("13ms", timedelta(milliseconds=13)),
        ("15m", timedelta(minutes=15)),
        ("16h", timedelta(hours=16)),
        ("3h30m", timedelta(hours=3, minutes=30)),
        ("-1.5h", timedelta(hours=-1.5)),
        ("10.5s4m", timedelta(minutes=4, seconds=10.5)),
        ("1h2m3s4ms5us600ns", timedelta(hours=1, minutes=2, seconds=3, milliseconds=4, microseconds=6)),
        ("39h9m14.425s", timedelta(hours=39, minutes=9, seconds=14.425)),
        ("499ns", timedelta(0)),
        ("500ns", US),
        ("0.3333333333333333333h", timedelta(minutes=20)),
        ("9007199254.740993s", timedelta(microseconds=9007199254740993)),
        ("2562047h47m16.854775s", timedelta(microseconds=9223372036854775)),
    ],
)
def test_go_durations_are_read(text: str, expected: timedelta) -> None:
    assert parse_go_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("3", 'time: missing unit in duration "3"'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".", 'time: invalid duration "."'),
        ("-.", 'time: invalid duration "-."'),
        (".s", 'time: invalid duration ".s"'),
        ("5 sec", 'time: unknown unit " sec" in duration "5 sec"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("9223372036854.775808s0.1us", 'time: invalid duration "9223372036854.775808s0.1us"'),
        ('1"\u00fc', 'time: unknown unit "\\"\\xc3\\xbc" in duration "1\\"\\xc3\\xbc"'),
    ],
)
def test_what_go_refuses_gets_the_error_of_go(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_go_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("duration", "go", "short"),
    [
        (timedelta(0), "0s", "0s"),
        (US, "1µs", "1µs"),
        (1100 * US, "1.1ms", "1.1ms"),
        (timedelta(milliseconds=500), "500ms", "500ms"),
        (timedelta(seconds=2.2), "2.2s", "2.2s"),
        (timedelta(seconds=10), "10s", "10s"),
        (timedelta(minutes=1), "1m0s", "1m"),
        (timedelta(minutes=3, seconds=10), "3m10s", "3m10s"),
        (timedelta(hours=1), "1h0m0s", "1h"),
        (timedelta(hours=1, seconds=5), "1h0m5s", "1h0m5s"),
        (timedelta(hours=1, minutes=30), "1h30m0s", "1h30m"),
        (timedelta(hours=10, minutes=10), "10h10m0s", "10h10m"),
        (timedelta(seconds=-90), "-1m30s", "-1m30s"),
        (-US, "-1µs", "-1µs"),
    ],
)
def test_durations_print_as_go_does_and_shorter_for_people(duration: timedelta, go: str, short: str) -> None:
    assert format_go_duration(duration) == go
    assert format_duration(duration) == short


@given(st.timedeltas(min_value=timedelta(days=-100000), max_value=timedelta(days=100000)))
def test_what_is_printed_reads_back_exactly(duration: timedelta) -> None:
    assert parse_go_duration(format_go_duration(duration)) == duration
    assert parse_go_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("5 sec", '"5 sec" is not a duration (try 5s)'),
        ("5", '"5" is not a duration (try 5s)'),
        (5, "5 is not a duration (try 5s)"),
        (1.5, "1.5 is not a duration (try 1.5s)"),
        (True, "True is not a duration (try 500ms, 30s or 1h30m)"),
        (None, "None is not a duration (try 500ms, 30s or 1h30m)"),
        ("2 days", '"2 days" is not a duration (try 48h)'),
        ("1.5d", '"1.5d" is not a duration (try 36h)'),
        ("1w", '"1w" is not a duration (try 168h)'),
        ("1 hour, 30 minutes", '"1 hour, 30 minutes" is not a duration (try 1h30m)'),
        ("10 Min", '"10 Min" is not a duration (try 10m)'),
        ("500 ms", '"500 ms" is not a duration (try 500ms)'),
        ("soon", '"soon" is not a duration (try 500ms, 30s or 1h30m)'),
        ("3 moons", '"3 moons" is not a duration (try 500ms, 30s or 1h30m)'),
        ("", '"" is not a duration (try 500ms, 30s or 1h30m)'),
        ("-5s", '"-5s" is negative (try 5s)'),
        ("99999999h", '"99999999h" is too long for a duration (try 2562047h or less)'),
        ("9999999 weeks", '"9999999 weeks" is too long for a duration (try 2562047h or less)'),
    ],
)
def test_an_error_for_people_says_what_to_write_instead(value: object, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_duration(value)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["0", "0s", "500ms", "1h30m", "1.5h"])
def test_people_may_write_what_go_reads(text: str) -> None:
    assert parse_duration(text) == parse_go_duration(text)


@given(st.text(max_size=8))
def test_any_text_is_a_duration_or_a_format_error_with_a_way_out(text: str) -> None:
    try:
        duration = parse_duration(text)
    except FormatError as error:
        assert "(try " in str(error)  # noqa: PT017 - both outcomes are fine, this one must help
    else:
        assert duration >= timedelta(0)


def test_a_duration_of_many_parts_or_digits_is_read_or_refused_without_delay() -> None:
    assert parse_go_duration("1s" * 50_000) == timedelta(seconds=50_000)
    assert parse_go_duration("0" * 5_000 + "1s") == timedelta(seconds=1)
    with pytest.raises(FormatError, match="is too long for a duration"):
        parse_duration("9" * 5_000 + "s")
