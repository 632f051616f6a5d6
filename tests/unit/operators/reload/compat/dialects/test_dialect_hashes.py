"""Other programs' hashes, against vectors of theirs and against a Go-like encoder written a second time."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.compat.dialects.hashes import (
    ReloaderHash,
    ShipshapeHash,
    XingHash,
    go_json,
    wave_data,
    wave_hash,
)
from steersman.operators.reload.compat.dialects.reloader import variable_name
from steersman.operators.reload.compat.dialects.shipshape import hash_annotation

CM, SECRET = SourceKind.CONFIGMAP, SourceKind.SECRET
ODD = "é<&>\u2028\b"
EMPTY = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
DATA = st.dictionaries(st.text("abc-._", min_size=1, max_size=4), st.text(max_size=6), max_size=3)


def b64(value):
    return b64encode(value).decode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"key": "value"}, "e43abcf3375244839c012f9633f95862d232a95b00d5bc7348b3098b9fed7f32"),
        (None, EMPTY),
        ({}, EMPTY),
        ({"MESSAGE": "v1"}, "48894775dea35442a62b057702871c840ae212ea351924a6b6077f5d061e70af"),
        ({"k": ODD}, "64e99b9a6c4cc524ea276aff21577fb51100b8b7bb062c9f53507be2208eaee4"),
    ],
)
def test_shipshape_hashes_ascii_json_of_the_data(data, expected):
    assert ShipshapeHash()(CM, data, None) == expected
    assert ShipshapeHash()(CM, data, {"more": "AAA="}) == expected  # binary data is not in it


def test_shipshape_takes_a_value_that_is_null_for_an_empty_one():
    assert ShipshapeHash()(CM, {"k": None}, None) == ShipshapeHash()(CM, {"k": ""}, None)


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (CM, {"key": "value"}, "e43abcf337524483"),
        (SECRET, {"key": b64(b"value")}, "fed7a27106a07691"),
        (CM, None, "74234e98afe7498f 44136fa355b3678a"),
        (CM, {}, "74234e98afe7498f 44136fa355b3678a"),
    ],
)
def test_xing_hashes_json_as_go_writes_it(kind, data, expected):
    assert XingHash()(kind, data, {"more": "AAA="}) == expected


def test_xing_accepts_the_bytes_of_both_generations_of_go_and_writes_the_older():
    older, newer = XingHash()(CM, {"k": ODD}, None).split()
    assert older == "8e49eb5097f79e3f"
    text = '{"k":"é\\u003c\\u0026\\u003e\\u2028\\b"}'
    assert newer == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_backslash_before_a_b_is_not_a_control_character():
    assert go_json({"k": "\\b\b\\f\f"}) == '{"k":"\\\\b\\u0008\\\\f\\u000c"}'
    assert go_json({"k": "\\b\b\\f\f"}, since_1_22=True) == '{"k":"\\\\b\\b\\\\f\\f"}'


def go_string(text, *, since_1_22):
    """Go's encoder, letter by letter."""
    short = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if since_1_22:
        short |= {"\b": "\\b", "\f": "\\f"}
    out = []
    for letter in text:
        if letter in short:
            out.append(short[letter])
        elif letter < " " or letter in "<>&\u2028\u2029":
            out.append(f"\\u{ord(letter):04x}")
        else:
            out.append(letter)
    return f'"{"".join(out)}"'


LETTERS = st.text(
    st.one_of(st.characters(exclude_categories=("Cs",)), st.sampled_from('\b\f\\bf<>&\u2028\u2029\x7f\x00"'))
)


@given(st.dictionaries(LETTERS, LETTERS, max_size=4), st.booleans())
def test_json_is_that_of_an_encoder_that_goes_letter_by_letter(data, since_1_22):
    pairs = [
        f"{go_string(key, since_1_22=since_1_22)}:{go_string(data[key], since_1_22=since_1_22)}"
        for key in sorted(data, key=str.encode)
    ]
    assert go_json(data, since_1_22=since_1_22) == f"{{{','.join(pairs)}}}"


@given(DATA.filter(bool))
def test_xing_is_the_beginning_of_shipshape_for_plain_text(data):
    plain = {key: "".join(c for c in value if c.isascii() and c.isalnum()) for key, value in data.items()}
    assert XingHash()(CM, plain, None) == ShipshapeHash()(CM, plain, None)[:16]


@pytest.mark.parametrize(
    ("kind", "data", "binary", "expected"),
    [
        (CM, {"key": "value"}, None, "dc30e0faa89a70dec1033016a2309bbeb9efcbd0"),
        (SECRET, {"key": b64(b"value")}, None, "dc30e0faa89a70dec1033016a2309bbeb9efcbd0"),
        (CM, {"b": "2", "a": "1"}, None, "f83e99e324ba68ccc373a58ef1eb42f8ab88646a"),
        (CM, {"a": "1;b=2"}, None, "f83e99e324ba68ccc373a58ef1eb42f8ab88646a"),
        (CM, None, None, "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        (CM, None, {"a": b64(b"1")}, hashlib.sha1(b"a=MQ==").hexdigest()),
        (SECRET, {"a": b64(b"\xff\x00")}, None, hashlib.sha1(b"a=\xff\x00").hexdigest()),
    ],
)
def test_reloader_hashes_sorted_pairs_joined_by_semicolons(kind, data, binary, expected):
    assert ReloaderHash()(kind, data, binary) == expected


def test_reloader_sorts_pairs_and_not_keys():
    # "a-b=1" sorts before "a=2", although "a" sorts before "a-b"
    assert ReloaderHash()(CM, {"a": "2", "a-b": "1"}, None) == hashlib.sha1(b"a-b=1;a=2").hexdigest()


def test_wave_hashes_names_keys_and_base64_of_everything_together():
    app = wave_data(CM, {"key": "value"}, None, None)
    assert wave_hash({"app": app}, {}) == "d4fa1e15ef57e736fe5342bb2af3b32002bab29be3bc75cda6655b02d5a3cbbb"
    assert wave_data(CM, {"a": "1", "b": "2"}, {"c": "Mw=="}, {"a", "c"}) == {"a": "MQ==", "c": "Mw=="}
    assert wave_data(SECRET, {"a": "MQ=="}, None, None) == {"a": "MQ=="}


@pytest.mark.parametrize("junk", [{"k": 1}, {"k": ["x"]}, {"k": {"a": "b"}}, {"k": None}, {"k": "\ud800"}])
@pytest.mark.parametrize("hashed", [XingHash(), ReloaderHash()])
def test_values_that_are_no_text_have_a_hash_too(hashed, junk):
    assert hashed(CM, junk, junk)
    assert hashed(SECRET, junk, None)


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("web", "shipshape.io/restartedAt", "shipshape.io/config-hash-web"),
        ("web", "restartedAt", "config-hash-web"),
        ("a b/c", "x.io/at", "x.io/config-hash-a-b-c"),
        ("--.web.--", "x.io/at", "x.io/config-hash-web"),
        ("...", "x.io/at", "x.io/config-hash-configmap"),
        ("a" * 51, "x.io/at", f"x.io/config-hash-{'a' * 51}"),
        ("a" * 52, "x.io/at", f"x.io/config-hash-{'a' * 40}-6c1b3dc7a7"),
        ("a" * 39 + "-" + "b" * 30, "x.io/at", None),
    ],
)
def test_shipshape_names_a_hash_after_its_configmap_and_shortens_long_names(name, key, expected):
    made = hash_annotation(name, key)
    if expected is None:
        expected = f"x.io/config-hash-{'a' * 39}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
    assert made == expected
    assert len(made.rpartition("/")[2]) <= 63


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (CM, "foo-bar", "STAKATER_FOO_BAR_CONFIGMAP"),
        (CM, "foo.bar", "STAKATER_FOO_BAR_CONFIGMAP"),
        (CM, "foo--bar", "STAKATER_FOO_BAR_CONFIGMAP"),
        (SECRET, "-foo-", "STAKATER_FOO__SECRET"),
        (SourceKind.PROVIDER_CLASS, "vault", "STAKATER_VAULT_SECRETPROVIDERCLASS"),
    ],
)
def test_reloader_names_a_variable_after_its_source(kind, name, expected):
    assert variable_name(SourceRef(kind, "shop", name)) == expected
