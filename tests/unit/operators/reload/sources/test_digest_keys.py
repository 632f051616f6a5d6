"""Keyed digests: without the key they tell nothing, and no key that comes, goes or is lost restarts anything."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from steersman.errors import ConfigError
from steersman.kube.api.errors import AlreadyExists, ConnectionFailed, Forbidden, NotFound
from steersman.kube.api.types.core import Secret
from steersman.operators.reload.api.annotations import APPLIED
from steersman.operators.reload.api.config import Guard, ReloadConfig, ReloadOptions, SourceKind, SourceRef
from steersman.operators.reload.controllers.digest_key_store import REFRESH_SECONDS, KeyStore, read_ring
from steersman.operators.reload.controllers.rbac import own_rules
from steersman.operators.reload.planning.plan import KEY_LOST, UNCOMPARABLE
from steersman.operators.reload.sources.digest import edge_digest, key_digest, short_digest
from steersman.operators.reload.sources.digest_keys import (
    KEY_BYTES,
    NO_KEYS,
    DigestKey,
    Keyring,
    keys_in,
    keys_to_store,
)
from steersman.runtime.reconcile.write_guard import NotLeading
from tests.support.reload.miniature import World, configmap, env, env_from, secret, workload

OLD, NEW = (DigestKey.of(letter * KEY_BYTES) for letter in (b"o", b"n"))
PIN = SourceRef(SourceKind.SECRET, "shop", "door")


def seeded(keys, *, options=None, sources=1):
    """A workload that uses Secrets with a PIN of six digits, looked at once."""
    world = World(options, keys=keys)
    names = ["door"] if sources == 1 else [f"door-{number}" for number in range(sources)]
    for name in names:
        world.put(secret(name, pin="493027"))
    world.put(workload("web", uses=[env_from(name, kind="secret") for name in names]))
    assert world.run() == {"deployment/web": "seed"}
    return world


def state(world):
    return json.loads(world.get("Deployment", "web")["metadata"]["annotations"][APPLIED])


def restart_with(world, keys):
    world.keys = keys
    world.crash()


# ---------------------------------------------------------------------------------------------------- what is stored
def guesses(text):
    """Whether a guess of the value can be tried against a stored state, as whoever may read the workload could."""
    digests = {"pin": key_digest(b"493027")}
    return edge_digest(PIN, digests) in text or short_digest(PIN, "pin", digests["pin"]) in text


def test_a_short_value_cannot_be_recovered_from_what_is_written_on_a_workload():
    assert guesses(json.dumps(state(seeded(NO_KEYS))))  # which is how it is found
    world = seeded(Keyring(keys=(NEW,)))
    assert not guesses(json.dumps(world.get("Deployment", "web")))
    world.put(secret("door", pin="118264"))
    world.run(after=60)
    assert not guesses(json.dumps(world.get("Deployment", "web")))


def test_a_short_value_cannot_be_recovered_from_what_people_are_asked_to_approve():
    world = World(ReloadOptions(guard=Guard(workloads=1)), keys=Keyring(keys=(NEW,)))
    world.put(secret("door", pin="1"))
    for name in ("a", "b"):
        world.put(workload(name, uses=[env_from("door", kind="secret")]))
    world.run()
    world.put(secret("door", pin="493027"))
    world.run()
    plan = world.evaluate("Deployment", "a").plan
    assert plan.gate == "approval"
    assert edge_digest(PIN, {"pin": key_digest(b"493027")})[:12] not in plan.reason


@pytest.mark.parametrize("sources", [1, 300])
def test_a_program_of_before_there_were_keys_sees_no_keyed_digest_and_restarts_nothing(sources):
    world = seeded(Keyring(keys=(NEW,)), sources=sources)
    seen = {field: value for field, value in state(world).items() if field in "vsrhew"}  # all that it reads
    assert seen == {"v": 1}
    world.edit("Deployment", "web", {"metadata": {"annotations": {APPLIED: json.dumps(seen)}}})
    restart_with(world, NO_KEYS)
    assert world.run(after=60) == {"deployment/web": "seed"}
    assert world.restarts == {}


def test_a_configmap_is_compared_without_a_key_by_everybody():
    world = World(keys=Keyring(keys=(NEW,)))
    world.put(configmap("app", mode="a"))
    world.put(secret("door", pin="1"))
    world.put(workload("web", uses=[env("app", "mode"), env_from("door", kind="secret")]))
    world.run()
    assert (list(state(world)["s"]), list(state(world)["x"])) == (["configmap/app"], ["secret/door"])
    world.put(configmap("app", mode="b"))
    for keys in (NO_KEYS, Keyring(unreadable="no rights")):
        restart_with(world, keys)
        plan = world.evaluate("Deployment", "web").plan
        assert [change.seen_from("shop") for change in plan.changes] == ["configmap/app#mode"]


def test_a_restart_without_the_key_keeps_what_cannot_be_compared():
    world = World(keys=Keyring(keys=(NEW,)))
    world.put(configmap("app", mode="a"))
    world.put(secret("door", pin="1"))
    world.put(workload("web", uses=[env("app", "mode"), env_from("door", kind="secret")]))
    world.run()
    before = state(world)["x"]
    world.put(configmap("app", mode="b"))
    restart_with(world, Keyring(unreadable="no rights"))
    world.run()
    world.run(after=60)
    assert (world.restarts, state(world)["x"]) == ({"deployment/web": 1}, before)
    restart_with(world, Keyring(keys=(NEW,)))
    assert world.run(after=60) == {}


def test_no_repr_shows_a_key():
    assert "nnn" not in repr(Keyring(keys=(NEW,)))
    assert b64encode(NEW.secret).decode() not in repr(NEW)


# ------------------------------------------------------------------------------------------------- keys come and go
STEPS = [
    (NO_KEYS, Keyring(keys=(NEW,))),  # an update from before there were keys
    (Keyring(keys=(OLD,)), Keyring(keys=(NEW, OLD))),  # a rotation
]


@pytest.mark.parametrize("sources", [1, 300])
@pytest.mark.parametrize(("before", "after"), STEPS)
def test_another_key_rewrites_the_state_and_restarts_nothing(before, after, sources):
    world = seeded(before, sources=sources)
    restart_with(world, after)
    assert world.run(after=60) == {"deployment/web": "seed"}
    assert NEW.id in json.dumps(state(world))
    assert not before.newest.id or before.newest.id not in json.dumps(state(world))
    assert world.run(after=60) == {}
    assert world.restarts == {}


@pytest.mark.parametrize("sources", [1, 300])
@pytest.mark.parametrize(("before", "after"), STEPS)
def test_a_change_made_while_the_key_was_changed_is_not_lost(before, after, sources):
    world = seeded(before, sources=sources)
    world.put(secret("door" if sources == 1 else "door-7", pin="118264"))
    restart_with(world, after)
    world.run()
    world.run(after=60)
    assert world.restarts == {"deployment/web": 1}


def test_what_waits_keeps_its_old_digest_and_the_rest_is_rewritten():
    world = World(keys=Keyring(keys=(OLD,)))
    world.put(secret("door", pin="1"))
    world.put(configmap("app", mode="a"))
    marks = {"steersman.dev/reload": "auto", "steersman.dev/freeze": "true"}
    world.put(workload("web", uses=[env_from("door", kind="secret"), env("app", "mode")], annotations=marks))
    world.run()
    world.put(secret("door", pin="2"))
    restart_with(world, Keyring(keys=(NEW, OLD)))
    world.put(secret("else", x="1"))
    uses = [env_from("door", kind="secret"), env_from("else", kind="secret"), env("app", "mode")]
    world.put(workload("web", uses=uses, annotations=marks))
    world.run()
    assert set(state(world)["k"]) == {NEW.id, OLD.id}
    restart_with(world, Keyring(keys=(NEW, OLD)))
    assert [change.seen_from("shop") for change in world.evaluate("Deployment", "web").plan.changes] == [
        "secret/door#pin"
    ]
    world.put(secret("door", pin="1"))  # taken back: what pods were started for is still comparable
    assert world.evaluate("Deployment", "web").plan.changes == ()


@pytest.mark.parametrize("sources", [1, 300])
def test_a_key_that_is_lost_restarts_nothing_and_changes_are_found_again_afterwards(sources):
    world = seeded(Keyring(keys=(OLD,)), sources=sources)
    restart_with(world, Keyring(keys=(NEW,)))
    assert world.evaluate("Deployment", "web").plan.reason == KEY_LOST
    assert world.run(after=60) == {"deployment/web": "seed"}
    assert (world.restarts, world.run(after=60)) == ({}, {})
    world.put(secret("door" if sources == 1 else "door-7", pin="118264"))
    world.run()
    world.run(after=60)
    assert world.restarts == {"deployment/web": 1}


@pytest.mark.parametrize("sources", [1, 300])
def test_who_may_not_read_the_key_says_unknown_and_neither_restarts_nor_writes(sources):
    world = seeded(Keyring(keys=(OLD,)), sources=sources)
    world.put(secret("door" if sources == 1 else "door-7", pin="118264"))
    restart_with(world, Keyring(unreadable="secret/ops/keys cannot be read: no"))
    plan = world.evaluate("Deployment", "web").plan
    assert (plan.action, plan.reason, plan.state) == ("nothing", UNCOMPARABLE, None)
    assert any("secret/ops/keys cannot be read" in problem for problem in plan.problems)
    assert (world.run(after=600), world.restarts) == ({}, {})


def test_an_approval_with_an_older_key_still_counts():
    world = World(ReloadOptions(guard=Guard(workloads=1)), keys=Keyring(keys=(OLD,)))
    world.put(secret("door", pin="1"))
    for name in ("a", "b"):
        world.put(workload(name, uses=[env_from("door", kind="secret")]))
    world.run()
    world.put(secret("door", pin="2"))
    world.run()
    approved = world.evaluate("Deployment", "a").plan.reason.rpartition(" ")[2]
    world.edit("Deployment", "a", {"metadata": {"annotations": {"steersman.dev/approve": approved}}})
    restart_with(world, Keyring(keys=(NEW, OLD)))
    world.run()
    assert world.evaluate("Deployment", "a").plan.gate != "approval"


def test_the_newest_key_is_the_one_with_the_last_name_and_short_ones_are_left_out():
    data = {"key-2": b"2" * 32, "key-10": b"t" * 32, "key-1": b"1" * 40, "key-11": b"short", "note": None}
    assert [key.secret[:1] for key in keys_in(data)] == [b"t", b"2", b"1"]
    assert keys_in(keys_to_store((NEW, OLD))) == (NEW, OLD)


def test_another_key_under_the_name_of_a_lost_one_is_not_taken_for_it():
    assert keys_in({"key-1": OLD.secret})[0].id != keys_in({"key-1": NEW.secret})[0].id


# ---------------------------------------------------------------------------------------------------------- the store
class Vault:
    """Stands for a client with one Secret, which may be missing or refused."""

    def __init__(self, data=None, *, get=None, create=None):
        self.data, self.errors, self.created = data, {"get": get, "create": create}, []

    async def get(self, _target, name, *, namespace):
        if self.errors["get"] is not None:
            raise self.errors["get"]
        if self.data is None:
            raise NotFound("no", code=404)
        assert (namespace, name) == ("ops", "keys")
        return Secret(data=self.data)

    async def create(self, obj):
        if self.errors["create"] is not None:
            raise self.errors["create"]
        if self.data is not None:
            raise AlreadyExists("yes", code=409)
        self.created.append(obj)
        self.data = obj.data


def store(clock):
    return KeyStore("ops", "keys", clock=clock)


async def test_a_key_is_stored_once_before_the_first_state_that_names_it(clock):
    vault, keys = Vault(), store(clock)
    await keys.refresh(vault)
    assert vault.created == []  # who only looks writes nothing
    assert await keys.store(vault)
    assert await keys.store(vault)
    assert len(vault.created) == 1
    assert keys_in(vault.data) == keys.ring.keys


async def test_of_two_replicas_that_store_at_once_the_second_takes_the_key_of_the_first(clock):
    vault, first, second = Vault(), store(clock), store(clock)
    await first.refresh(vault)
    await second.refresh(vault)
    assert await first.store(vault) is True
    assert await second.store(vault) is False  # what was planned with another key is planned again
    assert first.ring == second.ring


async def test_a_second_replica_that_cannot_read_what_the_first_stored_has_stored_nothing(clock):
    vault, keys = Vault(), store(clock)
    await keys.refresh(vault)
    vault.data, vault.errors["get"] = {"key-1": NEW.secret}, ConnectionFailed("cut")
    with pytest.raises(ConnectionFailed):
        await keys.store(vault)
    vault.errors["get"] = None
    assert await keys.store(vault) is False
    assert keys.ring.newest == NEW


async def test_a_key_that_is_added_is_taken_up_and_everything_is_evaluated_again(clock):
    vault, keys, woken = Vault({"key-1": OLD.secret}), store(clock), []
    await keys.refresh(vault)
    keys.listeners.append(lambda: woken.append(1))
    await keys.refresh(vault)
    assert woken == []
    vault.data = {"key-1": OLD.secret, "key-2": NEW.secret}
    await keys.refresh(vault)
    assert (woken, keys.ring.keys) == ([1], (NEW, OLD))
    vault.data = {"key-2": NEW.secret}
    await keys.refresh(vault)
    assert keys.ring.keys == (NEW, OLD)  # a state that is not rewritten yet can still be compared


async def test_a_key_that_is_not_known_yet_is_not_lost(clock):
    vault, keys = Vault({"key-1": OLD.secret}), store(clock)
    await keys.refresh(vault)
    vault.data = {"key-1": OLD.secret, "key-2": NEW.secret}  # another member of the share has used it already
    with capture_logs() as logs:
        assert await keys.are_lost(vault, [NEW.id]) is False
        assert keys.ring.newest == NEW
        assert await keys.are_lost(vault, ["else"]) is True
        vault.errors["get"] = ConnectionFailed("cut")
        assert await keys.are_lost(vault, ["else"]) is True  # asked once, and told once
        with pytest.raises(ConnectionFailed):
            await keys.are_lost(vault, ["another"])
    assert [entry["event"].partition(":")[0] for entry in logs] == ["digest key lost"]


async def test_for_a_process_without_keys_every_key_is_lost():
    assert await KeyStore().are_lost(Vault(get=AssertionError("nothing is asked")), [NEW.id]) is True


async def test_a_key_that_may_no_longer_be_read_is_not_lost(clock):
    vault, keys = Vault({"key-1": OLD.secret}), store(clock)
    await keys.refresh(vault)
    vault.errors["get"] = Forbidden("no", code=403)
    assert await keys.are_lost(vault, [NEW.id]) is False
    assert keys.ring.unreadable


async def test_a_secret_that_is_deleted_comes_back_with_the_keys_at_hand(clock):
    vault, keys = Vault({"key-1": OLD.secret, "key-2": NEW.secret}), store(clock)
    await keys.refresh(vault)
    vault.data = None
    await keys.refresh(vault)
    assert keys.ring.keys == (NEW, OLD)
    assert await keys.store(vault)
    assert keys_in(vault.data) == (NEW, OLD)


@pytest.fixture
async def looking(clock):
    """Runs the task of a key store on a vault until the test ends."""
    tasks = []

    async def start(keys, vault):
        tasks.append(asyncio.create_task(keys.run(SimpleNamespace(client=vault))))
        await clock.advance(1)

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_secret_that_is_deleted_comes_back_although_nothing_is_written_meanwhile(clock, looking):
    vault, keys = Vault({"key-1": OLD.secret}), store(clock)
    await looking(keys, vault)
    vault.data = None
    await clock.advance(REFRESH_SECONDS)
    assert keys_in(vault.data or {}) == (OLD,)


async def test_a_key_that_no_state_names_is_not_stored_by_looking(clock, looking):
    vault, keys = Vault(), store(clock)
    await looking(keys, vault)
    await clock.advance(3 * REFRESH_SECONDS)
    assert vault.created == []


async def test_a_process_that_stands_by_leaves_storing_to_the_one_that_leads(clock, looking):
    vault, keys = Vault({"key-1": OLD.secret}, create=NotLeading("no")), store(clock)
    await looking(keys, vault)
    vault.data = None
    await clock.advance(REFRESH_SECONDS)
    vault.errors["create"] = None
    await clock.advance(REFRESH_SECONDS)
    assert keys_in(vault.data or {}) == (OLD,)


async def test_keys_that_states_name_are_kept_when_their_secret_is_replaced_or_may_not_be_created(clock):
    vault, keys = Vault({"key-1": OLD.secret}, create=Forbidden("no", code=403)), store(clock)
    await keys.refresh(vault)
    vault.data = None
    await keys.refresh(vault)
    with capture_logs() as logs:
        await keys.store(vault)
        await keys.refresh(vault)
        await keys.store(vault)
    assert keys.ring.newest == OLD
    assert len([entry for entry in logs if "in this process only" in entry["event"]]) == 1

    vault, keys = Vault({"key-1": OLD.secret}), store(clock)
    await keys.refresh(vault)
    vault.data = None
    await keys.refresh(vault)
    vault.data = {"key-2": NEW.secret}  # a person, or another replica, was faster
    assert await keys.store(vault) is False
    assert keys.ring.keys == (NEW, OLD)


@pytest.mark.parametrize(
    "vault",
    [
        Vault(get=Forbidden("no", code=403)),
        Vault(create=Forbidden("no", code=403)),
        Vault({"key-1": b"short"}),
    ],
    ids=["may not read it", "may not create it", "holds no key"],
)
async def test_without_a_key_digests_are_not_keyed_and_that_is_reported_once(clock, vault):
    keys = store(clock)
    with capture_logs() as logs:
        for _ in range(3):
            await keys.refresh(vault)
            await keys.store(vault)
    assert keys.ready.is_set()
    assert keys.ring.newest.id == ""
    assert [entry["log_level"] for entry in logs if "not keyed" in entry["event"]] == ["warning"]
    await keys.refresh(vault)
    assert keys.ring.newest.id == ""  # nor is another key made every few minutes


async def test_a_user_without_the_right_to_the_keys_sees_it_in_one_short_line():
    refusal = Forbidden("User tenant cannot get resource secrets, and much more", code=403)
    ring = await read_ring(Vault(get=refusal), [("ops", "keys"), ("shop", "keys")], {NEW.id})
    assert ring.unreadable == "; ".join(
        f"secret/{namespace}/keys cannot be read (ask for the right to get it)" for namespace in ("ops", "shop")
    )


async def test_a_server_that_does_not_answer_never_leads_to_writes_without_keys(clock):
    keys, vault = store(clock), Vault({"key-1": NEW.secret}, get=ConnectionFailed("cut"))
    with pytest.raises(ConnectionFailed):
        await keys.refresh(vault)
    assert not keys.ready.is_set()
    vault.errors["get"] = None
    await keys.refresh(vault)
    vault.errors["get"] = ConnectionFailed("cut")
    with pytest.raises(ConnectionFailed):
        await keys.refresh(vault)
    assert keys.ring.newest == NEW
    assert REFRESH_SECONDS > 0


# ---------------------------------------------------------------------------------------------------- configuration
@pytest.mark.parametrize(
    ("text", "place"),
    [("steersman-reload-digests", ("", "steersman-reload-digests")), ("ops/keys", ("ops", "keys")), ("none", None)],
)
def test_the_configuration_names_the_secret(text, place):
    assert ReloadConfig(digest_secret=text).options().digest_secret == place


@pytest.mark.parametrize("text", ["", "a/b/c", "Keys", "/keys"])
def test_a_secret_that_cannot_be_one_is_named_with_its_field(text):
    with pytest.raises(ConfigError, match=r"reload\.digestSecret: .* is not a Secret"):
        ReloadConfig(digest_secret=text).options()


def test_the_rights_are_to_that_secret_alone_and_to_create_one():
    named, anything = sorted(own_rules(ReloadConfig()), key=lambda rule: not rule.resource_names)
    assert (named.resource_names, named.verbs) == (["steersman-reload-digests"], ["get"])
    assert (anything.resource_names, anything.verbs) == ((), ["create"])
    assert list(own_rules(ReloadConfig(digest_secret="none"))) == []
