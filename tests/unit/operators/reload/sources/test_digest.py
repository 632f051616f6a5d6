"""Digests: equal exactly when the used data is equal, and never a value in memory."""

from __future__ import annotations

import gc
from base64 import b64encode

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from steersman.kube.client.codec import codec_for
from steersman.operators.reload.api.annotations import NATIVE_ANNOTATIONS
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.sources.digest import (
    ConfigMapSource,
    SecretSource,
    edge_digest,
    short_digest,
    source_transform,
)

APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")

keys = st.text(st.sampled_from("ab.-_"), min_size=1, max_size=4)
datas = st.dictionaries(keys, st.text(max_size=6), max_size=4)


def read(cls=ConfigMapSource, *, hashes=(), **body):
    wire = msgspec.json.encode({"metadata": {"name": "app", "namespace": "shop", **body.pop("metadata", {})}, **body})
    return source_transform(NATIVE_ANNOTATIONS, hashes)(codec_for(cls).object(wire))


@given(datas, datas)
def test_digests_are_equal_exactly_when_the_data_is(one, other):
    first, second = (edge_digest(APP, read(data=data).digests) for data in (one, other))
    assert (first == second) == (one == other)


@given(datas, datas, st.sets(keys))
def test_only_the_used_keys_count(one, other, used):
    first, second = (edge_digest(APP, read(data=data).digests, used) for data in (one, other))
    same = {k: v for k, v in one.items() if k in used} == {k: v for k, v in other.items() if k in used}
    assert (first == second) == same


def test_text_cannot_move_from_one_key_to_another_unnoticed():
    assert edge_digest(APP, read(data={"a": "1;b=2"}).digests) != edge_digest(
        APP, read(data={"a": "1", "b": "2"}).digests
    )
    assert edge_digest(APP, read(data={"ab": "c"}).digests) != edge_digest(APP, read(data={"a": "bc"}).digests)


def test_binary_data_counts_and_is_not_the_same_as_text():
    text, binary = read(data={"a": "x"}), read(binaryData={"a": b64encode(b"x").decode()})
    assert text.digests.keys() == binary.digests.keys() == {"a"}
    assert text.digests != binary.digests


def test_absent_null_and_empty_data_are_the_same():
    assert read().digests == read(data=None).digests == read(data={}, binaryData=None).digests == {}


def test_a_secret_is_hashed_by_its_bytes():
    padded = read(SecretSource, data={"a": b64encode(b"hello").decode()})
    assert padded.digests == read(SecretSource, data={"a": "aGVsbG8="}).digests
    assert padded.digests == read(data={"a": "hello"}).digests


def test_what_is_no_base64_is_still_compared():
    assert read(SecretSource, data={"a": "%%%"}).digests != read(SecretSource, data={"a": "%%"}).digests


def test_equal_data_in_two_places_does_not_look_equal():
    digests = read(data={"a": "x"}).digests
    other = SourceRef(SourceKind.CONFIGMAP, "shop", "other")
    assert edge_digest(APP, digests) != edge_digest(other, digests)
    assert short_digest(APP, "a", digests["a"]) != short_digest(other, "a", digests["a"])


def test_no_value_stays_in_memory_not_even_in_an_annotation():
    value = "correct-horse-battery-staple"
    encoded = b64encode(value.encode()).decode()
    kept = read(
        SecretSource,
        data={"password": encoded},
        metadata={
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": encoded,
                "steersman.dev/reload": "off",
            }
        },
    )
    seen, todo = set(), [kept]
    while todo:
        obj = todo.pop()
        if id(obj) in seen or isinstance(obj, type):
            continue
        seen.add(id(obj))
        assert not (isinstance(obj, str) and (value in obj or encoded in obj))
        assert not (isinstance(obj, bytes) and value.encode() in obj)
        todo += (
            gc.get_referents(obj)
            if not isinstance(obj, msgspec.Struct)
            else [getattr(obj, name) for name in obj.__struct_fields__]
        )
    assert kept.settings.off
    assert value not in repr(kept)


def test_other_hashes_are_computed_while_the_values_are_there():
    class Count:
        name = "count"

        def __call__(self, kind, data, binary):
            return f"{kind.value} {sorted(data.items())} {binary}"

    assert read(hashes=(Count(),), data={"a": "x"}).hashes == {"count": "configmap [('a', 'x')] None"}


def test_the_digest_of_version_one_stays_what_it_is():
    """Changing it would restart every workload of every cluster once."""
    digest = edge_digest(APP, read(data={"mode": "a"}).digests)
    assert digest == "69LSw0v2Ad-kbIABCC8Bt3NVU0Uoua_9L4VnkhfKwCc"
