from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.kube.api.quantities import Notation, Quantity

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "nanos", "notation"),
    [
        ("0", 0, "DecimalSI"),
        ("0n", 0, "DecimalSI"),
        ("0Ki", 0, "BinarySI"),
        ("0e3", 0, "DecimalExponent"),
        ("1", 10**9, "DecimalSI"),
        ("1Ki", 1024 * 10**9, "BinarySI"),
        ("8Ki", 8 * 1024 * 10**9, "BinarySI"),
        ("7Mi", 7 * 1024**2 * 10**9, "BinarySI"),
        ("6Gi", 6 * 1024**3 * 10**9, "BinarySI"),
        ("5Ti", 5 * 1024**4 * 10**9, "BinarySI"),
        ("4Pi", 4 * 1024**5 * 10**9, "BinarySI"),
        ("3Ei", 3 * 1024**6 * 10**9, "BinarySI"),
        ("5n", 5, "DecimalSI"),
        ("4u", 4 * 10**3, "DecimalSI"),
        ("3m", 3 * 10**6, "DecimalSI"),
        ("8k", 8 * 10**12, "DecimalSI"),
        ("7M", 7 * 10**15, "DecimalSI"),
        ("6G", 6 * 10**18, "DecimalSI"),
        ("5T", 5 * 10**21, "DecimalSI"),
        ("2P", 2 * 10**24, "DecimalSI"),
        ("1E", 10**27, "DecimalSI"),
        ("12E", 12 * 10**27, "DecimalSI"),
        ("1E-3", 10**6, "DecimalExponent"),
        ("1e3", 10**12, "DecimalExponent"),
        ("1E18", 10**27, "DecimalExponent"),
        ("1.3E+6", 13 * 10**14, "DecimalExponent"),
        ("100.035k", 100035 * 10**9, "DecimalSI"),
        ("0.0005k", 5 * 10**8, "DecimalSI"),
        ("0.50000", 5 * 10**8, "DecimalSI"),
        ("0.5e-2", 5 * 10**6, "DecimalExponent"),
        ("6.987654321G", 6987654321 * 10**9, "DecimalSI"),
        (".001", 10**6, "DecimalSI"),
        ("1.", 10**9, "DecimalSI"),
        ("1.G", 10**18, "DecimalSI"),
        ("+1", 10**9, "DecimalSI"),
        ("-9.01", -901 * 10**7, "DecimalSI"),
        # finer than a nano: rounded away from zero
        ("3.001n", 4, "DecimalSI"),
        ("-3.001n", -4, "DecimalSI"),
        ("1.1E-9", 2, "DecimalExponent"),
        ("0.0000000001", 1, "DecimalSI"),
        ("0.5e-9", 1, "DecimalExponent"),
        ("0.00000012345", 124, "DecimalSI"),
        ("1e-1000000000", 1, "DecimalExponent"),
        # binary amounts are capped, and fractions of one become decimal
        ("9Ei", MAX * 10**9, "BinarySI"),
        ("9223372036854775807Ki", MAX * 10**9, "BinarySI"),
        ("-9Ei", -MAX * 10**9, "BinarySI"),
        ("100.035Ki", 10243584 * 10**7, "BinarySI"),
        ("0.5Mi", 512 * 1024 * 10**9, "BinarySI"),
        ("0.025Ti", 274877906944 * 10**8, "BinarySI"),
        ("0.000000000001Ki", 2, "DecimalSI"),
        # what a server takes without complaint
        (".", 0, "DecimalSI"),
        ("-", 0, "DecimalSI"),
        ("Ki", 0, "BinarySI"),
    ],
)
def test_a_quantity_is_an_exact_number_of_nanos(text: str, nanos: int, notation: str) -> None:
    quantity = Quantity.parse(text)
    assert quantity.nanos == nanos
    assert quantity.notation is Notation(notation)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1Ki", "1Ki"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1023Ki", "1023Ki"),
        ("1024", "1024"),
        ("1000M", "1G"),
        (".001Ki", "1024m"),
        (".000001Ki", "1024u"),
        (".000000000001Ki", "2n"),
        ("512.5Ki", "524800"),
        ("100.035Ki", "102435840m"),
        ("0.5Ki", "512"),
        ("1.5", "1500m"),
        ("0.1", "100m"),
        ("1100m", "1100m"),
        ("1000m", "1"),
        ("0.00050k", "500m"),
        ("10e3", "10e3"),
        ("1e4", "10e3"),
        ("1e14", "100e12"),
        ("1.2e3", "1200"),
        ("1000e3", "1e6"),
        ("1e30", "1e30"),
        ("12345678901234567890123e5", "1234567890123456789012300e3"),
        ("-1000", "-1k"),
        ("-0", "0"),
        ("0Gi", "0"),
        ("9Ei", "9223372036854775807"),
        ("0.0", "0"),
        # spellings that the server takes for canonical
        ("+1", "+1"),
        ("1.500", "1.500"),
        ("1E3", "1E3"),
        ("1e0", "1e0"),
        ("007", "007"),
        ("+3Mi", "+3Mi"),
        ("+8Mi", "8Mi"),
    ],
)
def test_a_quantity_prints_as_on_a_server(text: str, printed: str) -> None:
    assert str(Quantity.parse(text)) == printed


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("1.500", "1500m"), ("+1", "1"), ("1E3", "1e3"), ("1e0", "1"), ("1000E", "1000E"), ("2000Ki", "2000Ki")],
)
def test_the_canonical_form_does_not_depend_on_the_spelling(text: str, canonical: str) -> None:
    assert Quantity.parse(text).canonical == canonical


WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_SUFFIX = "unable to parse quantity's suffix"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", WRONG_FORMAT),
        ("  ", WRONG_FORMAT),
        ("1.1.M", WRONG_FORMAT),
        ("1 000", WRONG_FORMAT),
        ("0x10", WRONG_FORMAT),
        ("nan", WRONG_FORMAT),
        ("1+1.0M", WRONG_FORMAT),
        ("1Ki1", WRONG_SUFFIX),
        ("1K", WRONG_SUFFIX),
        ("1i", WRONG_SUFFIX),
        ("0.1mi", WRONG_SUFFIX),
        ("1ee3", WRONG_SUFFIX),
        ("1e", WRONG_SUFFIX),
        ("1+5", WRONG_SUFFIX),
        ("1e99999999999999999999", WRONG_SUFFIX),
        (".Ei", "unable to parse numeric part of quantity"),
        ("1e1001", "a quantity cannot have an exponent above 1000"),
        ("9" * 5000, "a quantity cannot have more than 1000 digits"),
        (f"0.{'1' * 5000}", "a quantity cannot have more than 1000 digits"),
    ],
)
def test_text_that_is_not_a_quantity_gets_the_error_of_kube_apiserver(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        Quantity.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(("number", "printed"), [(1, "1"), (0.5, "500m"), (1e-07, "100e-9"), (2000, "2k")])
def test_a_json_number_is_a_quantity_too(number: float, printed: str) -> None:
    assert str(Quantity.parse(number)) == printed


@pytest.mark.parametrize(
    ("text", "exponent", "scaled"),
    [
        ("9.01", 0, 10),
        ("-9.01", 0, -10),
        ("9.01", -2, 901),
        ("9.01", 2, 1),
        ("1", -12, 10**12),
        ("0", 5, 0),
        ("1Ki", 3, 2),
    ],
)
def test_scaling_rounds_away_from_zero(text: str, exponent: int, scaled: int) -> None:
    assert Quantity.parse(text).scaled(exponent) == scaled


def test_the_same_amount_is_equal_however_it_is_written() -> None:
    amounts = [Quantity.parse(text) for text in ("1Gi", "1024Mi", "1073741824", "1073741824e0")]
    assert len(set(amounts)) == 1
    assert Quantity.parse("10000T") > Quantity.parse("100Gi") > Quantity.parse("50m") >= Quantity.parse("0.05")
    assert amounts[0] != "1Gi"


def test_the_first_amount_that_is_not_zero_gives_a_sum_its_notation() -> None:
    assert str(Quantity.ZERO + Quantity.parse("2Ki")) == "2Ki"
    assert str(Quantity.parse("0") - Quantity.parse("2Ki")) == "-2Ki"
    assert str(Quantity.parse("2Ki") + Quantity.parse("1k")) == "3048"
    assert str(Quantity.parse("1k") + Quantity.parse("2Ki")) == "3048"
    assert str(Quantity.parse("1Ki") + Quantity.parse("1024")) == "2Ki"
    assert str(sum([Quantity.parse("100m")] * 10, Quantity.ZERO)) == "1"


def test_a_quantity_counts_as_a_number() -> None:
    quantity = Quantity.parse("1500m")
    assert int(quantity) == 2
    assert float(quantity) == 1.5
    assert str(-quantity * 2) == "-3"
    assert quantity
    assert not Quantity.parse("0Ki")


suffixes = st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "e3", "E-3"])
numbers = st.from_regex(r"-?[0-9]{1,12}(\.[0-9]{1,9})?", fullmatch=True)
quantities = st.builds(lambda number, suffix: Quantity.parse(number + suffix), numbers, suffixes)


@given(quantities)
def test_printing_loses_nothing_and_canonical_text_is_stable(quantity: Quantity) -> None:
    assert Quantity.parse(str(quantity)) == quantity
    assert Quantity.parse(quantity.canonical) == quantity
    assert Quantity.parse(quantity.canonical).canonical == quantity.canonical


@given(quantities, quantities)
def test_sums_and_order_are_exact(one: Quantity, other: Quantity) -> None:
    assert (one + other) - other == one
    assert (one < other) is (one.nanos < other.nanos)
    assert (one - other == Quantity.ZERO) is (one == other)
