"""Keys that zones are signed with: as files, in Secrets, in pods, and who may make them."""

from __future__ import annotations

import base64
import subprocess

import dns.dnssec
import dns.rdata
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.errors import FormatError, PlanError
from steersman.kube.api.gvk import NamespacedName
from steersman.kube.api.objects import ObjectMeta
from steersman.kube.api.types.core import Secret
from steersman.operators.dns.api.servers import (
    Bind9Config,
    Bind9Instance,
    DnssecConfig,
    KeySecretRef,
    KeySource,
    ServerEndpoint,
    Signing,
    Storage,
)
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.controllers.setup import key_secret
from steersman.operators.dns.deploy.manifests import children_of
from steersman.operators.dns.dnssec.key_storage import KEYS_SECRET, keeping_of, key_parts
from steersman.operators.dns.dnssec.keys import ALGORITHMS, is_signed_with, keys_in, make_key, plan_keys, state_of
from steersman.operators.dns.dnssec.signer import signer_of, signing_conditions
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.names import name_of, text_of

ORG = name_of("example.org")
NOW = "2026-11-17T06:00:00Z"
FAST = [13, 14, 15, 16]


def pair(zone=ORG, algorithm=13):
    made = {**make_key(zone, algorithm, NOW, entry=True), **make_key(zone, algorithm, NOW, entry=False)}
    return {name: text.encode() for name, text in made.items()}


def public(data, flags):
    return next(
        text.decode() for name, text in data.items() if name.endswith(".key") and f" {flags} 3 " in text.decode()
    )


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_numbers_and_ds_records_of_made_keys_are_those_that_others_compute(algorithm):
    data = pair(algorithm=algorithm)
    found = keys_in(data, ORG)
    assert [key.entry for key in sorted(found, key=lambda key: key.entry)] == [False, True]
    for key in found:
        text = data[f"{key.field}.key"].decode().split("DNSKEY ")[1]
        record = dns.rdata.from_text("IN", "DNSKEY", text)
        assert dns.dnssec.key_id(record) == key.tag
        assert dns.dnssec.make_ds("example.org.", record, "SHA256").to_text() == key.ds
        assert f"_{algorithm:03d}_{key.tag:05d}" in key.field


@pytest.mark.parametrize("algorithm", FAST)
def test_the_private_half_of_a_key_is_that_of_its_public_half(algorithm):
    data = pair(algorithm=algorithm)
    for key in keys_in(data, ORG):
        rows = dict(line.split(": ") for line in data[f"{key.field}.private"].decode().splitlines())
        secret = base64.b64decode(rows["PrivateKey"])
        if algorithm in (13, 14):
            curve = ec.SECP256R1() if algorithm == 13 else ec.SECP384R1()
            numbers = ec.derive_private_key(int.from_bytes(secret), curve).public_key().public_numbers()
            size = curve.key_size // 8
            assert key.data[4:] == numbers.x.to_bytes(size) + numbers.y.to_bytes(size)
        else:
            kind = ed25519.Ed25519PrivateKey if algorithm == 15 else ed448.Ed448PrivateKey
            assert key.data[4:] == kind.from_private_bytes(secret).public_key().public_bytes_raw()


def test_a_key_never_gets_a_number_that_is_taken():
    made = make_key(ORG, 15, NOW, entry=True, others=range(0, 65536, 2))
    assert keys_in({name: text.encode() for name, text in made.items()}, ORG)[0].tag % 2


NAMES = st.lists(st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,8}[a-z0-9_])?", fullmatch=True), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(NAMES, st.booleans())
def test_a_secret_gives_back_the_keys_of_a_zone_and_of_no_other(labels, entry):
    zone = name_of(".".join(labels))
    data = {name: text.encode() for name, text in make_key(zone, 15, NOW, entry=entry).items()}
    (key,) = keys_in(data, zone)
    assert (key.zone, key.entry) == (zone, entry)
    assert keys_in(data, name_of("x." + ".".join(labels))) == keys_in(data, b"\0") == []
    Secret(metadata=ObjectMeta(name="s"), data=data)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzK0123456789._-") for name in data)


def test_a_key_file_may_be_written_with_tabs():
    made = pair()
    tabs = {name: data.replace(b" ", b"\t") if name.endswith(".key") else data for name, data in made.items()}
    assert keys_in(tabs, ORG) == keys_in(made, ORG) != []


def test_what_is_not_a_key_is_named_by_its_field_and_nothing_private_is_shown():
    data = pair()
    field = next(name for name in data if name.endswith(".key"))
    for wrong in (b"", b"\xff", b"example.org. IN DNSKEY 257 3", data[field].replace(b"example", b"another")):
        with pytest.raises(FormatError, match=field.replace(".", r"\.")):
            keys_in({**data, field: wrong}, ORG)
    private = field.replace(".key", ".private")
    with pytest.raises(FormatError, match="has no private key"):
        keys_in({name: value for name, value in data.items() if name != private}, ORG)
    other = {
        **data,
        field: pair()[field] if field in pair() else next(v for n, v in pair().items() if n.endswith(".key")),
    }
    with pytest.raises(FormatError, match="contains the key"):
        keys_in(other, ORG)


@pytest.mark.parametrize("zone", ["0/25.2.0.192.in-addr.arpa", ".".join(["a" * 60] * 4)])
def test_a_zone_whose_name_no_field_can_have_is_refused(zone):
    with pytest.raises(FormatError, match="does not fit into the field names"):
        make_key(name_of(zone), 15, NOW, entry=True)


# -- deciding ----------------------------------------------------------------------------------------------------------

MINE = pair()
THEIRS = pair()
DS = next(key.ds for key in keys_in(MINE, ORG) if key.entry)
RSA_AND_MORE = {**MINE, **pair(algorithm=15)}
PLANS = [
    # ours, given, generate, known DS -> reason, missing
    ("nothing is there: they are made", {}, None, True, (), "", True),
    ("nobody may make them", {}, None, False, (), "KeysMissing", False),
    ("they are there", MINE, None, True, (), "", False),
    ("they are there, and nobody may make more", MINE, None, False, (), "", False),
    ("they are there, and the parent knows them", MINE, None, True, (DS,), "", False),
    ("lost, and the parent knows them", {}, None, True, (DS,), "KeysLost", False),
    ("others than the parent knows", THEIRS, None, True, (DS,), "KeysLost", False),
    ("those of somebody else", MINE, THEIRS, True, (), "", False),
    ("a Secret without them, whatever ours has", MINE, {}, True, (), "KeysMissing", False),
    ("given ones that were taken away", {}, {}, True, (DS,), "KeysLost", False),
    ("too many", {**MINE, **THEIRS}, None, True, (), "KeysInvalid", False),
    ("two algorithms", RSA_AND_MORE, None, True, (), "KeysInvalid", False),
    ("of another algorithm", pair(algorithm=15), None, True, (), "KeysInvalid", False),
    ("keys of another zone only", pair(name_of("a.test")), None, True, (), "", True),
]


@pytest.mark.parametrize(("what", "ours", "theirs", "generate", "known", "reason", "missing"), PLANS)
def test_keys_are_made_only_where_others_cannot_be_known(what, ours, theirs, generate, known, reason, missing):
    plan = plan_keys(ORG, 13, ours, theirs, generate=generate, known=known, where="dns/keys")
    assert (plan.reason, plan.missing) == (reason, missing), what
    assert bool(plan.keys) == (not reason and not missing)
    if reason:
        assert ("dns/keys" if generate else "dnssec.signing.autoGenerate is false") in plan.message
        assert not any(word in plan.message for word in ("PrivateKey", "Private-key-format"))


def test_given_keys_get_a_state_from_us_and_our_own_have_one():
    plan = plan_keys(ORG, 13, {}, THEIRS, generate=True)
    assert {key.field for key in plan.states} == {key.field for key in keys_in(THEIRS, ORG)}
    states = {f"{key.field}.state": state_of(key, NOW).encode() for key in plan.states}
    assert plan_keys(ORG, 13, states, THEIRS, generate=True).states == ()
    assert plan_keys(ORG, 13, MINE, None, generate=True).states == ()


def test_nothing_private_is_kept_in_memory_of_secrets_with_keys():
    kept = key_secret(Secret(metadata=ObjectMeta(name=KEYS_SECRET), data={**MINE, "note": b"private too"}))
    assert keys_in(kept.data, ORG) == keys_in(MINE, ORG)
    assert all(value == b"" for name, value in kept.data.items() if name.endswith(".private"))
    assert "note" not in kept.data


def test_a_zone_is_signed_when_it_shows_the_keys_and_named_has_come_to_an_end():
    keys = keys_in(MINE, ORG)
    shown, tags = [key.data for key in keys], [key.tag for key in keys]
    ended = [bytes([13, *key.tag.to_bytes(2), 0, 1]) for key in keys]
    assert is_signed_with(tags, shown, ended)
    assert not is_signed_with(tags, shown[:1], ended)
    assert not is_signed_with(tags, shown, [ended[0], ended[1][:4] + b"\0"])
    assert not is_signed_with(tags, shown, [*ended, b"\0\1\0\0\0\0"])


# -- where keys are kept -----------------------------------------------------------------------------------------------

GIVEN = KeySource(secret_ref=KeySecretRef(name="bindy-keys"))
VOLUME = KeySource(persistent_volume={"storageClassName": "fast"})
PLACES = [
    ({}, "secret"),
    ({"auto_generate": False}, "secret"),
    ({"export_to_secret": False}, "disk"),
    ({"export_to_secret": False, "auto_generate": False}, "nowhere"),
    ({"zsk_lifetime": "P90D"}, "disk"),
    ({"ksk_lifetime": "P1Y", "auto_generate": False}, "nowhere"),
    ({"keys_from": GIVEN}, "given"),
    ({"keys_from": GIVEN, "auto_generate": False, "export_to_secret": False}, "given"),
    ({"zsk_lifetime": "0d"}, "secret"),
    ({"keys_from": VOLUME}, "volume"),
    ({"keys_from": VOLUME, "zsk_lifetime": "30d"}, "volume"),
]


@pytest.mark.parametrize(("said", "place"), PLACES)
def test_keys_are_where_they_are_configured(said, place):
    assert keeping_of(Signing(enabled=True, **said), "dns").place == place
    assert keeping_of(Signing(enabled=False, **said), "dns") is None


WRONG = [
    ({"keys_from": KeySource(secret_ref=KeySecretRef(name="keys"))}, "keysFrom.secretRef.name"),
    ({"keys_from": KeySource(secret_ref=KeySecretRef(name="bindy-a", namespace="else"))}, "secretRef.namespace"),
    ({"keys_from": GIVEN, "zsk_lifetime": "30d"}, "kskLifetime"),
    ({"keys_from": VOLUME, "auto_generate": False}, "autoGenerate"),
    ({"keys_from": KeySource(secret_ref=KeySecretRef(name="bindy-a"), persistent_volume={})}, "keysFrom"),
    ({"algorithm": "rsamd5"}, "algorithm"),
    ({"ksk_lifetime": "banana"}, "kskLifetime"),
    ({"zsk_lifetime": "P"}, "zskLifetime"),
    ({"zsk_lifetime": "1y"}, "zskLifetime"),
    ({"zsk_lifetime": "1h"}, "zskLifetime"),
    ({"ksk_lifetime": "P1Y2M3W"}, "kskLifetime"),
    ({"ksk_lifetime": "UNLIMITED"}, "kskLifetime"),
    ({"policy": "none"}, "policy"),
]


@pytest.mark.parametrize(("said", "field"), WRONG)
def test_what_cannot_be_done_with_keys_is_refused_with_the_name_of_the_field(said, field):
    with pytest.raises(PlanError) as refused:
        keeping_of(Signing(enabled=True, **said), "dns")
    assert (refused.value.reason, field in refused.value.field) == ("ConfigurationInvalid", True)


def instance(role="primary", storage=None, endpoints=None, **said):
    spec = Bind9Instance.Spec(
        role=role,
        storage=storage,
        endpoints=endpoints,
        config=Bind9Config(dnssec=DnssecConfig(signing=Signing(enabled=True, **said))),
    )
    return Bind9Instance(metadata=ObjectMeta(name="ns", namespace="dns"), spec=spec)


LASTING = Storage(storage_type="persistentVolumeClaim")
WORDS = [
    (instance(), "SigningKeys", "True", "InSecret", KEYS_SECRET),
    (instance(keys_from=GIVEN), "SigningKeys", "True", "InSecret", "bindy-keys"),
    (instance(keys_from=VOLUME), "SigningKeys", "True", "OnVolume", ""),
    (instance(export_to_secret=False), "SigningKeys", "False", "OnDisk", "storage.storageType"),
    (instance(export_to_secret=False, storage=LASTING), "SigningKeys", "True", "OnDisk", "exportToSecret is false"),
    (instance(zsk_lifetime="30d"), "SigningKeys", "False", "OnDisk", "exportToSecret has no effect"),
    (instance(zsk_lifetime="30d", storage=LASTING), "SigningKeys", "True", "OnDisk", "exportToSecret has no effect"),
    (
        instance(auto_generate=False, export_to_secret=False),
        "SigningKeys",
        "False",
        "KeysMissing",
        "keysFrom.secretRef",
    ),
    (
        instance(endpoints=[ServerEndpoint(address="192.0.2.1")], keys_from=GIVEN, auto_generate=False),
        "Ignored",
        "True",
        "NoEffect",
        "dnssec.signing.keysFrom, dnssec.signing.autoGenerate: false: an external server",
    ),
]


@pytest.mark.parametrize(("one", "kind", "status", "reason", "words"), WORDS)
def test_b10_an_instance_says_where_its_keys_are_and_when_they_can_be_lost(one, kind, status, reason, words):
    (row,) = signing_conditions(one, None)
    assert (row.type, row.status, row.reason) == (kind, status, reason)
    assert words in row.message


def test_who_signs_nothing_says_nothing_about_keys():
    assert signing_conditions(instance(role="secondary"), None) == []
    assert signing_conditions(instance(endpoints=[ServerEndpoint(address="192.0.2.1")]), None) == []


# -- pods --------------------------------------------------------------------------------------------------------------


def pod_of(one):
    made = children_of(one, None)
    deployment = next(child for child in made if child["kind"] == "Deployment")
    claims = [child for child in made if child["kind"] == "PersistentVolumeClaim"]
    return deployment["spec"]["template"]["spec"], claims


def test_b10_keys_of_secrets_are_copied_before_named_starts_and_it_cannot_write_them():
    pod, claims = pod_of(instance(keys_from=GIVEN))
    assert [initcontainer["name"] for initcontainer in pod["initContainers"]] == ["signing-keys"]
    assert [container["name"] for container in pod["containers"]] == ["bind9", "signing"]
    named = {volumemount["name"]: volumemount for volumemount in pod["containers"][0]["volumeMounts"]}
    assert named["signing"]["readOnly"]
    assert not {"signing-made", "signing-given"} & named.keys()
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert (secrets["signing-made"], secrets["signing-given"]) == (KEYS_SECRET, "bindy-keys")
    assert claims == []
    for one in (*pod["initContainers"], *pod["containers"]):
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert one["securityContext"]["runAsNonRoot"]
    assert pod_of(instance(role="secondary"))[0].keys().isdisjoint({"initContainers"})


def test_b10_a_volume_for_keys_is_a_claim_of_its_own_that_named_can_write():
    pod, (claim,) = pod_of(instance(keys_from=VOLUME))
    assert claim["metadata"]["name"] == "ns-signing"
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    (mount,) = [volumemount for volumemount in pod["containers"][0]["volumeMounts"] if volumemount["name"] == "signing"]
    assert not mount.get("readOnly")
    assert "initContainers" not in pod


def copy_keys(made, given, to):
    container = {"image": "i", "imagePullPolicy": "Always", "securityContext": {}}
    (first,) = key_parts(keeping_of(Signing(enabled=True), "dns"), "", container).first
    assert (first["command"], first["args"][0], first["args"][-1]) == (["sh"], "-c", "once")
    words = ["sh", "-c", first["args"][1], "signing", str(made), str(given), str(to), "once"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def folder(path, files):
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    for name, text in files.items():
        (path / name).write_bytes(text)
    return path


def test_files_of_keys_get_the_names_that_named_knows_and_what_is_gone_goes(tmp_path):
    zone = name_of("_tcp.a-b.test")
    ours = {**MINE, **pair(zone)}
    made, given, to = folder(tmp_path / "made", ours), tmp_path / "given", folder(tmp_path / "to", {})
    copy_keys(made, given, to)
    wanted = {
        f"K{text_of(key.zone)}+{key.algorithm:03d}+{key.tag:05d}.{part}"
        for one in (ORG, zone)
        for key in keys_in(ours, one)
        for part in ("key", "private", "state")
    }
    assert {path.name for path in to.iterdir()} == wanted
    assert all(path.stat().st_mode & 0o77 == 0 for path in to.iterdir())
    for path in to.iterdir():  # of our own, nothing is changed
        stem, number = path.name.rsplit("+", 1)
        assert path.read_bytes() == ours[f"{stem.replace('+', '_')}_{number}"]
    folder(tmp_path / "made", MINE)
    copy_keys(made, given, to)
    assert all(path.name.startswith("Kexample.org.+013+") for path in to.iterdir())
    assert len(list(to.iterdir())) == 6
    folder(tmp_path / "made", {})
    copy_keys(made, given, to)
    assert list(to.iterdir()) == []


def test_given_keys_are_taken_with_our_states_and_times_and_unknown_ones_are_left(tmp_path):
    theirs = {name: value for name, value in THEIRS.items() if not name.endswith(".state")}
    plain = {
        name: value.split(b"Created:")[0] + b"Created: 20200101000000\nInactive: 20210101000000\n"
        if name.endswith(".private")
        else value
        for name, value in theirs.items()
    }
    states = {f"{key.field}.state": state_of(key, NOW).encode() for key in keys_in(THEIRS, ORG)}
    made, given = folder(tmp_path / "made", states), folder(tmp_path / "given", {**plain, **pair(name_of("b.test"))})
    to = folder(tmp_path / "to", {})
    copy_keys(made, given, to)
    assert len(list(to.iterdir())) == 6
    for key in keys_in(THEIRS, ORG):
        text = (to / f"K{text_of(ORG)}+013+{key.tag:05d}.private").read_text()
        assert "Inactive" not in text
        assert text == THEIRS[f"{key.field}.private"].decode()


# -- who signs ---------------------------------------------------------------------------------------------------------


def primary(name, role="primary"):
    return Bind9Instance(metadata=ObjectMeta(name=name, namespace="dns"), spec=Bind9Instance.Spec(role=role))


def server(name):
    key = Key("k", "hmac-sha256", b"secret")
    return Server(NamespacedName(name, "dns"), "0", "primary", "192.0.2.1", 53, 953, Keys(key, key, key))


SIGNERS = [
    (["a", "b"], ["a", "b"], "", "a"),
    (["a", "b"], ["b"], "", "b"),  # nobody signed yet: who is there begins
    (["a", "b"], ["b"], "dns/a", "a"),  # who signed goes on, also while it is away
    (["a", "b"], ["a", "b"], "dns/b", "b"),
    (["a", "b"], ["a", "b"], "dns/gone", "a"),
    (["a", "b"], [], "", "a"),
]


@pytest.mark.parametrize(("names", "here", "known", "wanted"), SIGNERS)
def test_the_one_that_signs_stays_the_one_while_it_is_chosen(names, here, known, wanted):
    instances = [primary("0", "secondary"), *(primary(name) for name in names)]
    assert signer_of(instances, [server(name) for name in here], known).name == wanted
    assert signer_of(instances[:1], [], known) is None
