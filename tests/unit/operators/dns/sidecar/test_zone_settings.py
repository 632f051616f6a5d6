"""How a zone is served, through the sidecar's interface and back; and that nothing can be smuggled through it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.errors import FormatError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.statements import read_statements, statement_text
from steersman.operators.dns.bind.zone_file import file_name, zone_file
from steersman.operators.dns.bind.zone_statements import primary_config, same_config, secondary_config
from steersman.operators.dns.sidecar import messages
from steersman.operators.dns.sidecar.local_named import file_name_zone, zone_of
from steersman.operators.dns.sidecar.zone_data import key_of, read_zone, value_of, zone_config
from steersman.operators.dns.sidecar.zone_settings import (
    Target,
    ZoneSettings,
    created_settings,
    modified_settings,
    overlay,
    plain_acl,
    read_settings,
    statements,
    whole,
)
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.names import name_of, owner_of
from steersman.operators.dns.zone.rdata import AAAA, CAA, CNAME, MX, NS, SRV, TXT, A, RRset, Soa

ORG = name_of("example.org")
START = Soa(name_of("ns1.example.org"), name_of("h.example.org"), 7, 1, 2, 3, 4)

words = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
addresses = st.ip_addresses().map(str)
targets = st.builds(Target, addresses, st.integers(1, 65535), st.one_of(st.just(""), words))
entries = st.one_of(addresses, words.map(lambda word: f"key {word}"), st.just("any"), addresses.map("!{}".format))
lists = st.one_of(st.none(), st.lists(entries, max_size=4).map(tuple))


@st.composite
def settings(draw):
    kind = draw(st.sampled_from(["primary", "secondary"]))
    secondary = kind == "secondary"
    return ZoneSettings(
        kind=kind,
        primaries=tuple(draw(st.lists(targets, min_size=1, max_size=3))) if secondary else (),
        also_notify=draw(st.one_of(st.none(), st.lists(targets, max_size=3).map(tuple))),
        allow_transfer=draw(lists),
        allow_update=None if secondary else draw(lists),
        dnssec_policy=draw(st.one_of(st.just(""), words)),
        inline_signing=draw(st.sampled_from([None, True, False])),
        max_records=draw(st.sampled_from([None, 0, 1000])),
    )


@given(settings())
def test_settings_survive_named_conf_syntax_and_json(asked):
    text = statement_text(statements(asked))
    assert read_settings(read_statements(text)) == asked
    over = msgspec.json.decode(
        msgspec.json.encode(messages.ModifyZone(steersman=whole(asked))), type=messages.ModifyZone
    )
    assert modified_settings(ZoneSettings(kind=asked.kind, primaries=(Target("192.0.2.9"),)), over) == asked


@given(settings(), settings())
def test_new_settings_replace_the_old_and_leave_everything_else(before, after):
    own = (("file", "/zones/x"), ("allow-query", (("any",),)))
    config = (*own, *statements(before), ("update-policy", (("grant", "k", "zonesub", "ANY"),)))
    changed = overlay(config, after)
    assert read_settings(changed) == after
    assert set(own) <= set(changed)


def server(**more):
    key = Key("k", "hmac-sha256", b"s")
    return Server(NamespacedName("i", "n"), "0", "primary", "192.0.2.1", 5353, 953, Keys(key, key, key), **more)


@pytest.mark.parametrize("make", [primary_config, secondary_config])
def test_what_is_wanted_of_a_sidecar_is_what_it_will_say_it_does(make):
    other = msgspec.structs.replace(server(), address="2001:db8::2")
    config = make(server(api_port=8080, allow_transfer=("10.0.0.0/8", "key friend")), ORG, [other])
    asked = whole(read_settings(config))
    told = statements(
        modified_settings(ZoneSettings(kind=read_settings(config).kind), messages.ModifyZone(steersman=asked))
    )
    assert same_config(config, told)
    assert not any(row[0] == "file" for row in config)  # that is the sidecar's own business
    plain = make(server(), ORG, [other])
    assert read_settings(plain).kind == read_settings(config).kind
    assert any(row[0] == "file" for row in plain)


def test_the_original_gets_addresses_where_ours_gets_keys():
    config = read_settings(primary_config(server(api_port=1, allow_transfer=("192.0.2.7",)), ORG, [server()]))
    assert config.allow_transfer == ("192.0.2.7", "key k")
    assert plain_acl(config, config.also_notify, "192.0.2.99") == ["192.0.2.7", "192.0.2.1", "192.0.2.99"]


CREATE = {"zoneName": "example.org", "zoneType": "primary", "zoneConfig": {"ttl": 60}}


def create(kind="primary", **config):
    body = {**CREATE, "zoneType": kind, "zoneConfig": {"ttl": 60, **config}, "updateKeyName": "k"}
    return msgspec.convert(body, messages.CreateZone)


CHECKS = "check-names ignore; check-integrity no;"
PLAIN = f'type primary; allow-update {{ key "k"; }}; {CHECKS}'
NOTIFYING = (
    'type primary; allow-update { key "k"; }; allow-transfer { 192.0.2.1; }; '
    "also-notify { 192.0.2.1 port 53; 192.0.2.2 port 5353; 2001:db8::1 port 54; }; notify explicit; notify-delay 0; "
    f"{CHECKS}"
)


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        ("primary", {}, PLAIN),
        (
            "primary",
            {"alsoNotify": ["192.0.2.1", "192.0.2.2:5353", "[2001:db8::1]:54"], "allowTransfer": ["192.0.2.1"]},
            NOTIFYING,
        ),
        (
            "primary",
            {"dnssecPolicy": "std", "inlineSigning": True},
            f'{PLAIN} dnssec-policy "std"; inline-signing yes;',
        ),
        (
            "secondary",
            {"primaries": ["192.0.2.1", "2001:db8::1"]},
            "type secondary; primaries { 192.0.2.1 port 53; 2001:db8::1 port 53; }; notify no;",
        ),
    ],
)
def test_a_request_in_the_originals_format_means_what_it_always_meant(kind, config, said):
    assert statement_text(statements(created_settings(create(kind, **config)))) == said


def test_a_modification_changes_what_it_names_and_keeps_keys_that_its_schema_cannot_express():
    before = created_settings(create(alsoNotify=["192.0.2.1:5353 key t"], allowTransfer=["192.0.2.1"]))
    request = messages.ModifyZone(also_notify=["192.0.2.1:5353", "192.0.2.2"], allow_update=["192.0.2.3"])
    after = modified_settings(before, request)
    assert after.also_notify == (Target("192.0.2.1", 5353, "t"), Target("192.0.2.2"))
    assert after.allow_update == ("key k", "192.0.2.3")
    assert after.allow_transfer == before.allow_transfer
    second = created_settings(create("secondary", primaries=["192.0.2.1"]))
    assert modified_settings(second, messages.ModifyZone(primaries=["192.0.2.9:5353"])).primaries == (
        Target("192.0.2.9", 5353),
    )
    with pytest.raises(FormatError, match="at least one"):
        modified_settings(before, messages.ModifyZone())
    with pytest.raises(FormatError, match="at least one"):
        modified_settings(second, messages.ModifyZone(primaries=[]))


EVIL = [
    '1.2.3.4; }; zone "x" { type primary; file "/etc/passwd"',
    "any; any",
    'key "a"; key "b"',
    "",
    "\n",
    "example.org",
]


@pytest.mark.parametrize("text", EVIL)
@pytest.mark.parametrize("field", ["alsoNotify", "allowTransfer", "primaries"])
def test_no_server_and_no_entry_can_be_more_than_it_should_be(field, text):
    with pytest.raises(FormatError, match=field):
        created_settings(create("secondary", **{"primaries": ["192.0.2.1"], field: [text]}))


@pytest.mark.parametrize("text", ['k"; }; evil', "k k", "k;"])
def test_no_key_and_no_policy_can_be_more_than_a_name(text):
    with pytest.raises(FormatError):
        created_settings(msgspec.structs.replace(create(), update_key_name=text))
    with pytest.raises(FormatError):
        created_settings(create(dnssecPolicy=text))
    with pytest.raises(FormatError):
        created_settings(create(alsoNotify=[f"192.0.2.1:53 key {text}"]))


@pytest.mark.parametrize("text", ["", ".", "a..b", 'a"b', "a\\.b.org", "a{b}", "ä.org", "x" * 64, "a.b\nc"])
def test_a_zone_whose_name_is_not_a_plain_name_is_refused(text):
    from steersman.operators.dns.sidecar.access import Problem

    with pytest.raises(Problem) as told:
        zone_of(text)
    assert told.value.status == 400


@pytest.mark.parametrize("text", ["example.org", "0/25.2.0.192.in-addr.arpa", "a.secondary", "a.zone", "_tcp.x"])
def test_files_lead_back_to_their_zones_and_out_of_the_directory_nowhere(text):
    zone = zone_of(text)
    assert "/" not in file_name(zone)
    assert file_name_zone(file_name(zone)) == zone
    assert file_name_zone(file_name(zone).removesuffix(".zone") + ".secondary") == zone


def test_a_name_that_climbs_stays_one_file():
    from steersman.operators.dns.sidecar.access import Problem

    with pytest.raises(Problem):
        zone_of("../../etc/passwd")
    assert file_name_zone("../x.zone") is None


# -- data -------------------------------------------------------------------------------------------------------------

DATA = {
    (b"", NS): RRset(60, frozenset({name_of("ns1.example.org"), name_of("ns.example.net")})),
    (owner_of("ns1", ORG), A): RRset(60, frozenset({bytes([192, 0, 2, 1])})),
    (owner_of("ns1", ORG), AAAA): RRset(30, frozenset({bytes(15) + b"\1"})),
    (owner_of("m", ORG), MX): RRset(5, frozenset({b"\0\x0a" + name_of("mx.example.net")})),
    (owner_of("a", ORG), CNAME): RRset(0, frozenset({name_of("b.example.org")})),
    (owner_of("_s._tcp", ORG), SRV): RRset(9, frozenset({b"\0\1\0\2\0\3" + name_of("srv.example.org")})),
    (owner_of("c", ORG), CAA): RRset(9, frozenset({b'\x00\x05issueca.example"; x=1'})),
}


@pytest.mark.parametrize("servers_ttl", [60, 61])
@given(st.lists(st.binary(min_size=0, max_size=255), min_size=1, max_size=3))
def test_a_zone_arrives_as_it_left(servers_ttl, strings):
    text = b"".join(bytes([len(part)]) + part for part in strings)
    data = {**DATA, (owner_of("t", ORG), TXT): RRset(1, frozenset({text}))}
    data[b"", NS] = msgspec.structs.replace(data[b"", NS], ttl=servers_ttl)
    sent = msgspec.json.encode(zone_config(START, data, 60))
    assert read_zone(ORG, msgspec.json.decode(sent, type=messages.ZoneConfig), 0.0) == (START, data)


def test_a_zone_in_the_originals_format_is_read():
    config = messages.ZoneConfig(
        ttl=300,
        soa=messages.SoaRecord(primary_ns="ns1.example.org.", admin_email="admin@example.org"),
        name_servers=["ns1.example.org.", "ns2"],
        name_server_ips={"ns1.example.org.": "192.0.2.1", "elsewhere.example.net.": "192.0.2.2"},
        records=[
            messages.DnsRecord(name="@", type="mx", value="mail.example.org.", priority=10),
            messages.DnsRecord(name="www.example.org", type="TXT", value='v=spf1 include:"x" -all'),
        ],
    )
    soa, data = read_zone(ORG, config, 86400.0)
    assert (soa.serial, soa.minimum, soa.mailbox) == (1970010201, 86400, name_of("admin.example.org"))
    assert data[b"", NS].values == {name_of("ns1.example.org"), name_of("ns2.example.org")}
    assert data[owner_of("ns1", ORG), A].ttl == 300
    assert len(data) == 4
    assert data[b"", MX].values == {b"\0\x0a" + name_of("mail.example.org")}
    assert data[owner_of("www", ORG), TXT].values == {b"\x17" + b'v=spf1 include:"x" -all'}


BAD = [
    ("www", "A", "192.0.2.1\nevil IN A 1.1.1.1"), ("www", "A", "192.0.2.1 192.0.2.2"), ("www", "A", "x"),
    ("www", "A", ""),
    ("www\nevil", "A", "192.0.2.1"), ("www", "HINFO", "a b"), ("www", "$INCLUDE", "/etc/passwd"),
    ("x.example.net.", "A", "192.0.2.1"), ("www", "CNAME", "a b"), ("www", "TXT", '"a" "' + "b" * 256 + '"'),
    ("www", "CAA", "0 issue"), ("www", "SRV", "1 2 x."), ("www", "AAAA", "192.0.2.1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "value"), BAD)
def test_a_record_that_is_not_exactly_one_value_of_its_type_goes_no_further(name, kind, value):
    record = messages.DnsRecord(name=name, type=kind, value=value)
    soa = messages.SoaRecord(primary_ns="ns1.example.org.", admin_email="h.example.org.")
    with pytest.raises(FormatError, match=r"records\[0\]"):
        read_zone(ORG, messages.ZoneConfig(ttl=1, soa=soa, records=[record]), 0.0)


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["A", "TXT", "CNAME", "CAA", "SRV", "MX", "NS"]))
def test_whatever_a_record_says_it_is_one_line_of_the_zone_file(name, value, kind):
    try:
        key = key_of(name, kind, ORG)
        made = value_of(key[1], value, None, ORG)
    except FormatError:
        return
    lines = zone_file(ORG, START, {key: RRset(1, frozenset({made}))}, 60).splitlines()
    assert len(lines) == 4
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_records_are_named_as_people_do():
    for name, owner in [("@", b""), ("example.org", b""), ("www", "www"), ("www.example.org", "www"), ("a.b", "a.b")]:
        assert key_of(name, "a", ORG) == (owner if owner == b"" else owner_of(owner, ORG), A)
    with pytest.raises(FormatError, match="final dot"):
        value_of(CNAME, "www", None, ORG, absolute=True)
