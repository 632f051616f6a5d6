"""Keys that are lost, and keys that somebody else changes."""

from __future__ import annotations

import base64

import pytest

from steersman.errors import PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import Secret
from steersman.operators.dns.api.config import KEY_LABEL
from steersman.operators.dns.api.field_types import SecretRef
from steersman.operators.dns.api.servers import Bind9Instance, BindcarConfig, RndcKey, ServerEndpoint
from steersman.operators.dns.bind.servers import keys_of
from steersman.operators.dns.controllers.setup import key_secret
from steersman.operators.dns.deploy.manifests import CHECKSUM, children_of, template_of
from steersman.operators.dns.deploy.tsig_keys import EPOCH, control_keys
from steersman.operators.dns.wire.tsig import Key

ROTATED = RndcKey(auto_rotate=True)
DAY = 86_400.0


def held(data, notes):
    return Secret(
        metadata=ObjectMeta(name="s", annotations=notes), data={name: text.encode() for name, text in data.items()}
    )


def given(secret):
    return Key("theirs", "hmac-sha256", secret)


def test_a_rotation_stays_within_its_epoch_and_a_lost_key_begins_another():
    data, first, _ = control_keys(None, ROTATED, 0.0)
    rotated, second, fresh = control_keys(held(data, first), ROTATED, 31 * DAY)
    assert fresh
    assert rotated["previous-secret"] == data["secret"]
    assert second[EPOCH] == first[EPOCH]
    lost, third, _ = control_keys(None, ROTATED, 32 * DAY)
    assert "previous-secret" not in lost
    assert third[EPOCH] != first[EPOCH]
    _, maimed, _ = control_keys(held({"key-name": "x"}, first), ROTATED, 33 * DAY)
    assert maimed[EPOCH] not in (first[EPOCH], third[EPOCH])


def test_keys_from_before_there_were_epochs_replace_no_pods():
    data, notes, _ = control_keys(None, ROTATED, 0.0)
    older = {name: text for name, text in notes.items() if name != EPOCH}
    assert EPOCH not in control_keys(held(data, older), ROTATED, 1.0)[1]
    assert EPOCH not in control_keys(held(data, older), ROTATED, 31 * DAY)[1]


def test_a_key_that_another_client_changes_leaves_the_one_before_it_at_hand():
    data, notes, _ = control_keys(None, None, 0.0, given=given(b"old"))
    changed, after, _ = control_keys(held(data, notes), None, 1.0, given=given(b"new"))
    assert base64.b64decode(changed["secret"]) == b"new"
    assert base64.b64decode(changed["previous-secret"]) == b"old"
    assert after[EPOCH] == notes[EPOCH]
    again, *_ = control_keys(held(changed, after), None, 2.0, given=given(b"new"))
    assert again == changed


def test_pods_are_replaced_when_the_epoch_of_their_keys_is_another_and_only_then():
    instance = Bind9Instance(
        metadata=ObjectMeta(name="i", namespace="default"), spec=Bind9Instance.Spec(cluster_ref="", role="primary")
    )
    none, one, two = (children_of(instance, None, epoch=epoch) for epoch in ("", "1", "2"))
    assert len({template_of(children) for children in (none, one, two)}) == 3
    assert template_of(children_of(instance, None, epoch="1")) == template_of(one)
    marks = next(child for child in none if child["kind"] == "Deployment")["spec"]["template"]["metadata"]
    assert set(marks["annotations"]) == {CHECKSUM}


def test_pods_are_replaced_when_the_token_of_their_sidecar_is_another_and_only_then():
    spec = Bind9Instance.Spec(
        cluster_ref="", role="primary", driver="bindcar", bindcar_config=BindcarConfig(image="sidecar:1")
    )
    instance = Bind9Instance(metadata=ObjectMeta(name="i", namespace="default"), spec=spec)
    one, same, two = (template_of(children_of(instance, None, token=token)) for token in (b"one", b"one", b"two"))
    assert one == same != two
    instance.spec.driver = "native"
    assert template_of(children_of(instance, None, token=b"one")) == template_of(children_of(instance, None))


THERE = [ServerEndpoint(address="192.0.2.1")]
NAMES = {"user": b"me", "pass": b"c2VjcmV0"}
MINE = Key("me", "hmac-sha512", b"secret")


def instance_with(key):
    spec = Bind9Instance.Spec(role="primary", endpoints=THERE, rndc_key=key)
    return Bind9Instance(metadata=ObjectMeta(name="i", namespace="n"), spec=spec)


def kept(labels):
    return key_secret(Secret(metadata=ObjectMeta(name="k", namespace="n", labels=labels), data=NAMES))


def test_fields_of_any_name_are_a_key_where_a_label_says_so_and_the_way_out_is_reported_where_not():
    ref = SecretRef(name="k", key_name_key="user", secret_key="pass", algorithm="hmac-sha512")
    one = instance_with(RndcKey(secret_ref=ref))
    place = NamespacedName("k", "n")
    assert keys_of(one, None, {place: kept({KEY_LABEL: "true"})}).control == MINE
    assert not kept({}).data
    with pytest.raises(PlanError, match=f"label the Secret {KEY_LABEL}") as refused:
        keys_of(one, None, {place: kept({})})
    assert refused.value.reason == "KeyInvalid"


def test_a_key_that_stands_in_an_instance_opens_a_server_that_exists():
    inline = {"stringData": {"key-name": "me", "secret": "c2VjcmV0"}}
    assert keys_of(instance_with(RndcKey(secret=inline, algorithm="hmac-sha512")), None, {}).control == MINE
    wrong = {"stringData": {"key-name": "me", "secret": "?"}}
    with pytest.raises(PlanError) as refused:
        keys_of(instance_with(RndcKey(secret=wrong)), None, {})
    assert (refused.value.reason, refused.value.field) == ("KeyInvalid", "spec.rndcKey.secret")
