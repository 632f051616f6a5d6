"""Values that are cheap to write and dear to read: they cost their bytes, and whoever uses them is told."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import contextmanager

import msgspec
import pytest

from steersman.kube.client.codec import codec_for
from steersman.operators.reload.api.config import SourceKind, SourceRef
from steersman.operators.reload.sources.compare import MOST_MATCHES, canonical, parse_compare_rules
from steersman.operators.reload.sources.digest import ConfigMapSource, hash_forms, key_digest, source_transform
from steersman.operators.reload.sources.digest_cache import CanonicalDigestCache
from tests.support.reload.miniature import World, configmap, env_from, workload

APP = SourceRef(SourceKind.CONFIGMAP, "shop", "app")
COMPARE = "steersman.dev/compare"
KIB = 1024
REPEATED = (f"a: &a {'x' * 60 * KIB}\nb: [" + ",".join(["*a"] * 20_000) + "]").encode()  # stands for 1.2 GB
NESTED = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))]).encode()
MERGED = "\n".join(
    ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 40))]
).encode()
LONG_NUMBER = b"a: 1" + b":1" * (60 * KIB)  # base 60: converting it takes time that grows with its square
MANY = b"[" + b"{a: b}," * (18 * KIB) + b"]"
ATTACKS = {"repeated": REPEATED, "nested": NESTED, "merged": MERGED, "number": LONG_NUMBER, "many": MANY}


def decoded(resource_version="5", **data):
    meta = {"name": "app", "namespace": "shop", "uid": "u", "resourceVersion": resource_version}
    body = {"metadata": {**meta, "annotations": {COMPARE: "*=yaml"}}, "data": data}
    return codec_for(ConfigMapSource).object(msgspec.json.encode(body))


@contextmanager
def memory(mib: int):
    """The block allocates no more than this at any moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mib * KIB * KIB


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_value_that_costs_too_much_is_compared_byte_by_byte(attack):
    assert len(attack) < 130 * KIB
    with memory(mib=64):
        assert canonical("yaml", attack) == attack


def test_json_that_costs_too_much_is_compared_byte_by_byte():
    attack = b"[" + b"[]," * (300 * KIB) + b"[]]"
    with memory(mib=8):
        assert canonical("json", attack) == attack


def test_many_small_values_cost_no_more_than_one_large_one():
    data = {f"k{n}": REPEATED[:2000].decode() + "x]" for n in range(500)}
    data |= {f"m{n}": "a: &a [" + "x," * 200 + "]\nb: [" + "*a," * 200 + "]" for n in range(60)}
    source = decoded(**data)
    with memory(mib=96):
        forms, beyond = hash_forms(source, [parse_compare_rules("*=yaml")])
    assert len(forms["yaml"]) == 560
    assert 0 < len(beyond & {f"m{n}" for n in range(60)}) < 60  # the first are read, and then nothing is left


def test_what_no_workload_compares_is_never_parsed():
    transform = source_transform(frozenset({COMPARE}), demand=CanonicalDigestCache())
    with memory(mib=8):
        kept = transform(decoded(a=REPEATED.decode(), b="a: 1"))
    assert kept.forms == {}
    assert kept.digests.keys() == {"a", "b"}


def test_yaml_is_not_parsed_while_it_is_decoded_even_when_a_workload_asks():
    forms = CanonicalDigestCache()
    forms.want("web", {APP: {"*.json=json,*=yaml"}})
    transform = source_transform(frozenset({COMPARE}), demand=forms)
    kept = transform(decoded(**{"a.yaml": "b: 1", "b.json": "{}"}))
    assert set(kept.forms) == {"json"}  # which takes no longer than hashing it
    kept = transform(decoded(**{"a.yaml": "b: 1", "b.json": f'"{"x" * 70 * KIB}"'}))
    assert kept.forms == {}


class Server:
    """Shows one version of a source."""

    def __init__(self, found):
        self.found = found

    async def list(self, *_args, **_more):
        return type("Listing", (), {"items": [self.found]})


async def test_the_event_loop_goes_on_while_a_large_value_is_parsed():
    forms = CanonicalDigestCache()
    forms.want("web", {APP: {"*=yaml"}})
    transform = source_transform(frozenset({COMPARE}), demand=forms)
    found = decoded(a="".join(f"key{n}: {n}\n" for n in range(8000)))
    turns, done = 0, False

    async def others():
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    assert await forms.read(Server(found), APP, transform(found), transform)
    done = True
    await running
    assert turns > 50


async def test_a_version_that_is_ahead_of_the_watch_is_used_once_the_watch_brings_it():
    forms = CanonicalDigestCache()
    forms.want("web", {APP: {"*=yaml"}})
    transform = source_transform(frozenset({COMPARE}), demand=forms)
    assert not await forms.read(Server(decoded("6", a="b: 1")), APP, transform(decoded("5", a="b: 1")), transform)
    by_watch = transform(decoded("6", a="b: 1"))
    shown = forms.shown(by_watch, APP)
    assert shown.forms["yaml"].keys() == {"a"}


async def test_a_value_beyond_its_budget_is_complete_with_the_digest_of_its_bytes():
    forms = CanonicalDigestCache()
    forms.want("web", {APP: {"*=yaml"}})
    transform = source_transform(frozenset({COMPARE}), demand=forms)
    found = decoded(a=REPEATED.decode(), b="x: 1")
    held = transform(found)
    assert await forms.read(Server(found), APP, held, transform)
    shown = forms.shown(held, APP)
    assert shown.beyond == {"a"}
    assert shown.forms["yaml"]["a"] == key_digest(REPEATED)
    assert shown.forms["yaml"]["b"] != shown.digests["b"]


def test_who_uses_a_value_beyond_its_budget_is_reported_once_and_every_change_of_it_counts():
    world = World()
    big = REPEATED.decode()
    world.put(configmap("app", annotations={COMPARE: "*=yaml"}, a=big, b="x: 1"))
    world.put(workload("web", uses=[env_from("app")]))
    told = world.evaluate("Deployment", "web").plan.problems
    assert told == ("configmap/app: a: too large to parse; compared byte by byte",)
    world.run()
    world.put(configmap("app", annotations={COMPARE: "*=yaml"}, a=f"{big} ", b="x: 1"))
    assert world.evaluate("Deployment", "web").plan.problems == told  # the same words: people hear it once
    world.run()
    assert world.run(after=60) == {"deployment/web": "restart"}


def test_more_keys_and_globs_than_can_be_matched_are_compared_byte_by_byte():
    world = World()
    globs = ",".join(f"*{n}=json" for n in range(60))
    keys = {f"k{n}": "{}" for n in range(MOST_MATCHES // 60 + 1)}
    world.put(configmap("app", annotations={COMPARE: globs}, **keys))
    world.put(workload("web", uses=[env_from("app")]))
    look = world.evaluate("Deployment", "web")
    assert look.plan.problems == ("configmap/app: too many keys to match with 60 globs; compared byte by byte",)
    assert not look.snapshot.incomplete
