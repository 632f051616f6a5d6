"""Signed messages: what RFC 8945 asks for is made and accepted, and nothing else is ever believed.

Answers are composed here byte by byte as the RFC says, so that they can be wrong in every way there is; dnspython's own
messages are the second opinion.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

import dns.message
import dns.name
import dns.tsig
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.clock import SYSTEM_CLOCK
from steersman.operators.dns.wire.axfr_server import AxfrServer
from steersman.operators.dns.wire.messages import AXFR, parse, question
from steersman.operators.dns.wire.rndc import ControlError, Rndc, _pairs
from steersman.operators.dns.wire.tsig import BadSignature, Key, Signer
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import NS, SOA, RRset, Soa

ZONE = name_of("example.org")
NOW = 1_800_000_000
KEY = Key("operator", "hmac-sha256", b"0123456789abcdef0123456789abcdef")
OTHER = Key("operator", "hmac-sha256", b"another secret of the same name.")
QUESTION = question(7, ZONE, SOA)
SOA_DATA = Soa(name_of("ns1.example.org"), name_of("h.example.org"), 5, 1, 2, 3, 4).value()


def digest(key, *parts):
    return hmac.digest(key.secret, b"".join(parts), getattr(hashlib, key.algorithm.removeprefix("hmac-")))


def times(when=NOW, fudge=300):
    return when.to_bytes(6) + fudge.to_bytes(2)


def variables(key, when=NOW, fudge=300, error=0, other=b""):
    """The variables of RFC 8945, 4.3.3."""
    head = name_of(key.name) + struct.pack("!HI", 255, 0) + name_of(key.algorithm) + times(when, fudge)
    return head + struct.pack("!HH", error, len(other)) + other


def record(key, mac, when=NOW, fudge=300, number=7, error=0, other=b""):
    """The record of RFC 8945, 4.2."""
    data = name_of(key.algorithm) + times(when, fudge) + struct.pack("!H", len(mac)) + mac
    data += struct.pack("!HHH", number, error, len(other)) + other
    return name_of(key.name) + struct.pack("!HHIH", 250, 255, 0, len(data)) + data


def closed(message, row, count=1):
    return message[:10] + (int.from_bytes(message[10:12]) + count).to_bytes(2) + message[12:] + row


def sized(mac):
    return struct.pack("!H", len(mac)) + mac


def reply(rows=1, number=7, flags=0x8400, kind=SOA):
    row = b"\xc0\x0c" + struct.pack("!HHIH", SOA, 1, 60, len(SOA_DATA)) + SOA_DATA
    return struct.pack("!6H", number, flags, 1, rows, 0, 0) + ZONE + struct.pack("!HH", kind, 1) + row * rows


def mac_of(signed):
    """The signature of a message that ends with one of ours."""
    return dns.message.from_wire(signed, keyring=False).mac


def asked(key=KEY, message=QUESTION):
    """A signer that has asked, and the signature of its question."""
    signer = Signer(key, lambda: NOW)
    return signer, mac_of(signer.sign(message))


def answered(mac, key=KEY, message=None, **fields):
    """A right answer to the question with that signature."""
    message = reply() if message is None else message
    times_of = {name: fields[name] for name in ("when", "fudge") if name in fields}
    return closed(message, record(key, digest(key, sized(mac), message, variables(key, **times_of)), **fields))


def check(signer, wire):
    answer = parse(wire)
    signer.check(wire, answer.signature, answer.rcode)


def refused(signer, wire):
    with pytest.raises(BadSignature) as found:
        check(signer, wire)
    return {16: "BADSIG", 17: "BADKEY", 18: "BADTIME", 22: "BADTRUNC"}[found.value.code]


@pytest.mark.parametrize("bits", [224, 256, 384, 512])
def test_a_question_is_signed_and_its_answer_verified_as_the_rfc_composes_them(bits):
    key = Key("a.key", f"hmac-sha{bits}", b"secret" * 9)
    signer = Signer(key, lambda: NOW)
    signed = signer.sign(QUESTION)
    assert signed == closed(QUESTION, record(key, digest(key, QUESTION, variables(key))))
    check(signer, answered(mac_of(signed), key))
    signer.finish()


@pytest.mark.parametrize("bits", [224, 256, 384, 512])
def test_dnspython_verifies_ours_and_we_verify_its(bits):
    key = Key("operator", f"hmac-sha{bits}", b"secret" * 9)
    ring = dns.tsig.Key(key.name, key.secret, key.algorithm)
    signer = Signer(key)
    theirs = dns.message.from_wire(signer.sign(QUESTION), keyring=ring)
    response = dns.message.make_response(theirs)
    response.find_rrset(response.answer, dns.name.from_text("example.org"), 1, 1, create=True)
    check(signer, response.to_wire())


@pytest.mark.parametrize("bits", [224, 256, 384, 512])
def test_a_signature_of_any_other_length_than_its_own_is_refused(bits):
    key = Key("operator", f"hmac-sha{bits}", b"secret" * 9)
    for size in range(bits // 8 + 9):
        signer, mac = asked(key)
        whole = digest(key, sized(mac), reply(), variables(key))
        wire = closed(reply(), record(key, (whole + bytes(8))[:size]))
        if size == len(whole):
            check(signer, wire)
        else:
            assert refused(signer, wire) == "BADSIG", size


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (OTHER, "BADSIG"),
        (Key("stranger", KEY.algorithm, KEY.secret), "BADKEY"),
        (Key("operator", "hmac-sha512", KEY.secret), "BADKEY"),
    ],
    ids=["secret", "name", "algorithm"],
)
def test_an_answer_signed_with_another_key_is_refused(key, why):
    signer, mac = asked()
    assert refused(signer, answered(mac, key)) == why


@pytest.mark.parametrize("away", [-301, -300, 0, 300, 301, 3600, -3600, NOW])
@pytest.mark.parametrize("fudge", [300, 65535])
def test_an_answer_is_of_our_time_whatever_its_sender_allows_itself(away, fudge):
    signer, mac = asked()
    wire = answered(mac, when=NOW - away, fudge=fudge)
    if abs(away) <= 300:
        check(signer, wire)
    else:
        assert refused(signer, wire) == "BADTIME"


def test_a_sender_may_allow_itself_less():
    signer, mac = asked()
    assert refused(signer, answered(mac, when=NOW - 20, fudge=10)) == "BADTIME"


def test_the_time_is_that_of_reading_and_not_that_of_asking():
    now = [NOW]
    signer = Signer(KEY, lambda: now[0])
    mac = mac_of(signer.sign(QUESTION))
    now[0] += 400
    assert refused(signer, answered(mac)) == "BADTIME"
    check(signer, answered(mac, when=NOW + 400))


def test_an_answer_to_another_question_is_a_replay_and_is_refused():
    _, earlier = asked(message=question(7, ZONE, AXFR))
    signer, _ = asked()
    assert refused(signer, answered(earlier)) == "BADSIG"


def test_our_own_question_is_not_an_answer():
    signer = Signer(KEY, lambda: NOW)
    assert refused(signer, signer.sign(QUESTION)) == "BADSIG"


@given(st.integers(0, len(reply()) - 1), st.integers(1, 255))
def test_no_byte_of_an_answer_can_be_another(place, change):
    signer, mac = asked()
    wire = bytearray(answered(mac))
    wire[place] ^= change
    try:
        start = parse(bytes(wire)).signature
    except (ValueError, IndexError, struct.error):
        return  # nothing that could be believed
    if place in (0, 1):  # the number is of the exchange: proxies change it, and the original one is signed
        return
    with pytest.raises(BadSignature):
        signer.check(bytes(wire), start)


@pytest.mark.parametrize("rcode", [0, 1, 2, 4, 5, 8, 9])
def test_an_answer_without_a_signature_is_refused_whatever_it_says(rcode):
    signer, _ = asked()
    assert refused(signer, reply(flags=0x8400 | rcode)) == "BADSIG"


@pytest.mark.parametrize(("code", "name"), [(16, "BADSIG"), (17, "BADKEY"), (18, "BADTIME"), (22, "BADTRUNC")])
def test_what_a_server_says_about_our_signature_is_a_refusal_with_its_name(code, name):
    signer, _ = asked()
    wire = closed(reply(flags=0x8409), record(KEY, b"", error=code))
    assert refused(signer, wire) == name
    with pytest.raises(BadSignature, match=f"the server reports {name}"):
        check(signer, wire)


def test_a_signature_stands_at_the_end_of_a_message_or_there_is_none():
    _, mac = asked()
    good = answered(mac)
    row = record(KEY, digest(KEY, sized(mac), reply(), variables(KEY)))
    extra = b"\0" + struct.pack("!HHIH", 41, 4096, 0, 0)
    for wire in (good + b"\0", closed(reply(), row + row, 2), closed(reply(), row + extra, 2), good[:-1]):
        with pytest.raises((ValueError, struct.error)):
            parse(wire)


# -- transfers --------------------------------------------------------------------------------------------------------


def transferred(mac, count, signed):
    """Messages of a transfer; `signed` says which have a signature."""
    wires, covered, first = [], sized(mac), True
    for number in range(count):
        plain = reply(rows=1, kind=AXFR)
        covered += plain
        if number in signed:
            made = digest(KEY, covered, variables(KEY) if first else times())
            plain = closed(plain, record(KEY, made))
            covered, first = sized(made), False
        wires.append(plain)
    return wires


def follow(signer, wires):
    for wire in wires:
        check(signer, wire)
    signer.finish()


@pytest.mark.parametrize("between", [0, 1, 98, 99])
def test_up_to_99_messages_of_a_transfer_need_no_signature_of_their_own(between):
    signer, mac = asked()
    last = between + 1
    follow(signer, transferred(mac, 2 * last + 1, {0, last, 2 * last}))


def test_a_hundred_are_too_many():
    signer, mac = asked()
    with pytest.raises(BadSignature, match="more than 99"):
        follow(signer, transferred(mac, 102, {0, 101}))


@pytest.mark.parametrize("signed", [set(), {2}, {0}, {0, 1}])
def test_the_first_and_the_last_message_of_a_transfer_are_signed(signed):
    signer, mac = asked()
    with pytest.raises(BadSignature, match="not signed"):
        follow(signer, transferred(mac, 3, signed))


@pytest.mark.parametrize("change", ["dropped", "doubled", "swapped", "altered", "from another transfer"])
def test_messages_without_a_signature_are_those_that_the_next_signature_covers(change):
    signer, mac = asked()
    wires = transferred(mac, 6, {0, 3, 5})
    if change == "dropped":
        del wires[1]
    elif change == "doubled":
        wires.insert(1, wires[1])
    elif change == "swapped":
        wires[3], wires[5] = wires[5], wires[3]
    elif change == "altered":
        wires[2] = wires[2].replace(struct.pack("!I", 60), struct.pack("!I", 61), 1)
    else:
        wires[3:] = transferred(asked(message=question(8, ZONE, AXFR))[1], 6, {0, 3, 5})[3:]
    with pytest.raises(BadSignature):
        follow(signer, wires)


# -- the transfer that we serve ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SOA, AXFR])
def test_a_first_copy_goes_to_who_asks_with_the_key_and_now(kind):
    source = AxfrServer(
        ZONE, Soa.read(SOA_DATA), {(b"", NS): RRset(60, frozenset({name_of("ns1.example.org")}))}, 60, KEY
    )
    asking = question(7, ZONE, kind)
    signer = Signer(KEY)
    wires = source.answers(signer.sign(asking))
    assert wires
    follow(signer, wires)
    now = int(SYSTEM_CLOCK.time())
    good = digest(KEY, asking, variables(KEY, now, 300))
    assert source.answers(closed(asking, record(KEY, good, now)))
    old = digest(KEY, asking, variables(KEY, now - 3600, 65535))
    for wire in (
        asking,
        Signer(OTHER).sign(asking),
        closed(asking, record(KEY, old, now - 3600, 65535)),
        *(closed(asking, record(KEY, good[:size], now)) for size in range(len(good))),
    ):
        assert source.answers(wire) == []


# -- the control channel ----------------------------------------------------------------------------------------------


def control(*, key=KEY, nonce="77", data=None, **fields):
    """An answer of named, and the channel that asked."""
    channel = Rndc("127.0.0.1", 1, KEY, clock=SYSTEM_CLOCK, timeout=1)
    channel._request("null", nonce)
    signer = Rndc("127.0.0.1", 1, key, clock=SYSTEM_CLOCK, timeout=1)
    now = int(SYSTEM_CLOCK.time())
    rows = {"_ser": str(channel._serial), "_tim": str(now), "_exp": str(now + 60), "_rpl": "1", "_nonce": nonce}
    rows = {name: text.encode() for name, text in (rows | fields).items() if text is not None}
    signed = _pairs({"_ctrl": rows, "_data": {"type": b"null", "result": b"0"} if data is None else data})
    return channel, struct.pack("!I", 1) + _pairs({"_auth": {"hsha": signer._signature(signed)}}) + signed


def test_an_answer_of_the_control_channel_is_believed_when_it_is_signed_ours_and_of_now():
    channel, body = control()
    assert channel._checked(body, "77")["_data"]["result"] == b"0"


@pytest.mark.parametrize(
    "fields",
    [
        {"key": OTHER},
        {"_rpl": None},
        {"_rpl": "0"},
        {"_ser": "1"},
        {"_nonce": "78"},
        {"_nonce": None},
        {"_tim": "1700000000"},
        {"_tim": None},
    ],
    ids=str,
)
def test_any_other_answer_of_the_control_channel_is_refused(fields):
    channel, body = control(**fields)
    with pytest.raises(ControlError):
        channel._checked(body, "77")


def test_our_own_command_is_not_its_answer():
    channel = Rndc("127.0.0.1", 1, KEY, clock=SYSTEM_CLOCK, timeout=1)
    echo = channel._request("delzone -clean example.org", "77")[4:]
    with pytest.raises(ControlError, match="another command"):
        channel._checked(echo, "77")


def test_no_part_and_no_other_form_of_an_answer_of_the_control_channel_passes():
    channel, body = control()
    head = len(body) - len(_pairs({"_ctrl": {}}))
    for wire in (*(body[:size] for size in range(len(body))), body + b"\0", body[head:] + body[:head]):
        with pytest.raises((ControlError, ValueError)):
            channel._checked(wire, "77")
    for auth in ({"_auth": b"x"}, {"_auth": {"hsha": {}}}, {"_auth": {"hsha": b""}}, {"_data": {"text": b"forged"}}):
        signed = body[4 + len(_pairs({"_auth": {"hsha": bytes(89)}})) :]
        with pytest.raises(ControlError):
            channel._checked(struct.pack("!I", 1) + _pairs(auth) + signed, "77")
