"""Reading protobuf: the wire format, and the few messages that are scalars in JSON."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.discovery.protobuf import decode

MAGIC = b"k8s\x00"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def body(api_version: str, kind: str, content: bytes) -> bytes:
    return MAGIC + text(1, text(1, api_version) + text(2, kind)) + text(2, content)


def test_an_envelope_names_the_type_of_its_object():
    assert decode(body("v1", "Namespace", text(1, text(1, "shop")))) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "shop"},
    }


def test_maps_keep_keys_without_a_value():
    entries = text(2, text(1, "k") + text(2, "v")) + text(2, text(1, "empty"))
    assert decode(body("v1", "ConfigMap", entries))["data"] == {"k": "v", "empty": ""}


def test_bytes_are_base64():
    assert decode(body("v1", "ConfigMap", text(3, text(1, "b") + text(2, b"\x00\x01"))))["binaryData"] == {"b": "AAE="}


def test_a_source_of_a_volume_has_no_level_of_its_own():
    volume = text(1, "v") + text(2, text(19, text(1, text(1, "settings"))))
    spec = decode(body("v1", "Pod", text(2, text(1, volume))))["spec"]
    assert spec == {"volumes": [{"name": "v", "configMap": {"name": "settings"}}]}


@pytest.mark.parametrize(
    ("packed", "value"),
    [(number(1, 0) + number(2, 80), 80), (number(1, 1) + text(3, "50%"), "50%"), (b"", 0), (number(2, -1), -1)],
)
def test_a_number_or_a_text(packed: bytes, value: int | str):
    budget = decode(body("policy/v1", "PodDisruptionBudget", text(2, text(1, packed))))
    assert budget["spec"]["minAvailable"] == value


@pytest.mark.parametrize(
    ("packed", "value"),
    [(number(1, 1767323045), "2026-01-02T03:04:05Z"), (b"", None), (number(1, -1), "1969-12-31T23:59:59Z")],
)
def test_times_are_whole_seconds_and_none_is_null(packed: bytes, value: str | None):
    assert decode(body("v1", "Namespace", text(1, text(8, packed))))["metadata"] == {"creationTimestamp": value}


def test_moments_have_microseconds():
    lease = decode(
        body("coordination.k8s.io/v1", "Lease", text(2, text(4, number(1, 1767323045) + number(2, 123456000))))
    )
    assert lease["spec"] == {"renewTime": "2026-01-02T03:04:05.123456Z"}


@given(st.integers(-(2**31), 2**31 - 1))
def test_integers_keep_their_sign(value: int):
    assert decode(body("apps/v1", "Deployment", text(2, number(1, value))))["spec"] == {"replicas": value}


def test_unknown_fields_are_skipped_whatever_they_hold():
    noise = number(900, 7) + text(901, "x") + varint(902 << 3 | 1) + bytes(8) + varint(903 << 3 | 5) + bytes(4)
    assert decode(body("v1", "Namespace", noise + text(1, text(1, "shop"))))["metadata"] == {"name": "shop"}


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"{}", "expected prefix"),
        (body("v1", "Nothing", b""), 'no kind "Nothing" is registered for version "v1"'),
        (MAGIC + text(1, b"")[:-1] + b"\x05", "unexpected EOF"),
        (MAGIC + varint(1 << 3 | 3), "illegal wireType 3"),
        (MAGIC + number(1, 1), "does not have the type"),
        (body("v1", "Namespace", number(1, 1)), "does not have the type"),
        (body("apps/v1", "Deployment", text(2, text(1, "many"))), "does not have the type"),
        (MAGIC + b"\x80" * 12, "integer overflow"),
    ],
)
def test_what_cannot_be_read_says_why(packed: bytes, why: str):
    with pytest.raises(ValueError, match=why):
        decode(packed)


@given(st.binary(max_size=60))
def test_noise_is_refused_and_never_worse(noise: bytes):
    with contextlib.suppress(ValueError):
        decode(MAGIC + noise)
