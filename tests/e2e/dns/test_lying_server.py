"""A server that lies: somebody between the operator and a name server who has no key. Nothing of it is believed.

The liar swallows updates and says that all is well, makes up serials and data, and signs as well as it can without the
key. The second primary is honest, and must not get a serial or a record that the liar made up.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from datetime import timedelta

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig
import pytest

from steersman.clock import SYSTEM_CLOCK
from steersman.errors import DriverError
from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.bind.rndc_driver import NativeDriver, zone_word
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.bind.zone_statements import primary_config
from steersman.operators.dns.wire.messages import RRsetChange
from steersman.operators.dns.wire.tsig import Key
from steersman.operators.dns.zone.names import name_of
from steersman.operators.dns.zone.rdata import NS, A, RRset, Soa
from steersman.testing import eventually
from tests.support.dns.zones import Site, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
QUICK = {"drift_period": SOON, "not_ready": SOON, "server_pause": SOON}
JUMP = 1_000_000_000
FORGED = "203.0.113.66"
LIES = ("unsigned", "empty", "truncated", "stranger", "replayed", "mirrored", "error")


class Liar:
    """A name server as the operator sees it: `named` itself while `lie` is empty."""

    def __init__(self, named):
        self.named, self.lie = named, ""
        self.told = 0  # lies
        self._servers, self._tasks, self._heard = [], set(), {}
        self.address, self.key_name, self.secret = named.address, named.key_name, named.secret
        self.dns_port = self.rndc_port = 0

    async def __aenter__(self):
        for port, framed in ((self.named.dns_port, 2), (self.named.rndc_port, 4)):
            serve = self._serving(port, framed)
            self._servers.append(await asyncio.start_server(serve, self.address, 0))
        self.dns_port, self.rndc_port = (one.sockets[0].getsockname()[1] for one in self._servers)
        return self

    async def __aexit__(self, *_):
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # connections that were accepted become tasks
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    @property
    def endpoint(self):
        return {"address": self.address, "dnsPort": self.dns_port, "rndcPort": self.rndc_port}

    def _serving(self, port, framed):
        async def serve(reader, writer):
            self._tasks.add(asyncio.current_task())
            closing = [writer]
            try:
                replies, upstream = await asyncio.open_connection(self.address, port)
                closing.append(upstream)
                while True:
                    asked = await _message(reader, framed)
                    if self.lie and (made := self._made(asked, framed)) is not None:
                        self.told += 1
                        writer.write(len(made).to_bytes(framed) + made)
                        continue
                    upstream.write(len(asked).to_bytes(framed) + asked)
                    answer = await _message(replies, framed)
                    self._heard[framed, _kind(asked) if framed == 2 else 0] = answer
                    writer.write(len(answer).to_bytes(framed) + answer)
            except (OSError, EOFError, asyncio.CancelledError):  # Python 3.11 logs a stream whose task is cancelled
                pass
            finally:
                for stream in closing:
                    stream.close()

        return serve

    def _made(self, asked, framed):
        """The lie, None where this one is told elsewhere."""
        if self.lie == "mirrored":
            return asked if framed == 4 else asked[:2] + bytes([asked[2] | 0x80]) + asked[3:]
        if self.lie == "replayed":
            held = self._heard.get((framed, _kind(asked) if framed == 2 else 0))
            return None if held is None else (held if framed == 4 else asked[:2] + held[2:])
        return self._forged(asked) if framed == 2 else None

    def _forged(self, asked):
        question = dns.message.from_wire(asked, keyring=False)
        answer = dns.message.Message(question.id)
        answer.flags = dns.flags.QR | dns.flags.AA
        answer.set_opcode(question.opcode())
        answer.question = question.question
        if question.opcode() == dns.opcode.QUERY:
            name = question.question[0].name
            start = f"ns1.{name} hostmaster.{name} {JUMP} 3600 600 604800 60"
            first = dns.rrset.from_text(name, 300, "IN", "SOA", start)
            answer.answer = [first]
            if question.question[0].rdtype == dns.rdatatype.AXFR:
                more = [
                    dns.rrset.from_text(name, 300, "IN", "NS", f"ns1.{name}"),
                    dns.rrset.from_text(f"www.{name}", 300, "IN", "A", FORGED),
                ]
                answer.answer += [*more, dns.rrset.from_text(name, 300, "IN", "SOA", start)]
        if self.lie == "error":  # an error that nobody signed: it would have a record put aside as refused
            answer.set_rcode(dns.rcode.REFUSED)
            answer.answer = []
        wire = answer.to_wire()
        if self.lie in ("unsigned", "error"):
            return wire
        guessed = self.key_name if self.lie != "stranger" else "stranger"
        answer.use_tsig(dns.tsig.Key(guessed, b"a guess", dns.tsig.HMAC_SHA256))
        answer.request_mac = question.mac or b""
        wire = answer.to_wire()
        size = {"empty": 0, "truncated": 1}.get(self.lie)
        return wire if size is None else _cut(wire, size)


def _cut(wire, size):
    """A message whose signature keeps `size` bytes."""
    found = dns.message.from_wire(wire, keyring=False)
    mac = found.mac
    place = wire.rindex(struct.pack("!H", len(mac)) + mac)
    data = place - 8 - len(dns.tsig.HMAC_SHA256.to_wire()) - 2
    length = int.from_bytes(wire[data : data + 2]) - len(mac) + size
    body = wire[:data] + length.to_bytes(2) + wire[data + 2 : place]
    return body + struct.pack("!H", size) + mac[:size] + wire[place + 2 + len(mac) :]


def _kind(asked):
    question = dns.message.from_wire(asked, keyring=False)
    return question.opcode(), question.question[0].rdtype if question.question else None


async def _message(reader, framed):
    return await reader.readexactly(int.from_bytes(await reader.readexactly(framed)))


@pytest.fixture
async def pair(cluster, client, dns_kinds, namespace, named):
    """An honest primary, and one that may lie."""
    async with named("ns1") as one, named("ns2", secret=one.secret) as two, Liar(two) as liar:
        made = Site(client, namespace, [one, liar])
        await made.instances()
        yield made


def test_the_lies_are_told_as_they_are_called():
    """Else the tests below would show nothing."""
    key = dns.tsig.Key("operator", b"a guess", dns.tsig.HMAC_SHA256)
    answer = dns.message.make_response(dns.message.make_query("example.org", "SOA"))
    answer.use_tsig(key)
    for size in (0, 1, 31):
        assert len(dns.message.from_wire(_cut(answer.to_wire(), size), keyring=False).mac) == size


ZONE = name_of("example.org")
START = Soa(name_of("ns1.example.org"), name_of("h.example.org"), 7, 3600, 600, 86400, 60)
DATA = {(b"", NS): RRset(60, frozenset({name_of("ns1.example.net")}))}


@pytest.mark.parametrize("lie", LIES)
async def test_no_question_to_a_server_is_answered_by_a_liar(named, lie):
    async with named("ns1") as one, Liar(one) as liar:
        key = Key(one.key_name, "hmac-sha256", base64.b64decode(one.secret))
        server = Server(
            NamespacedName("i", "n"), "0", "primary", liar.address, liar.dns_port, liar.rndc_port, Keys(key, key, key)
        )
        driver = NativeDriver(server, clock=SYSTEM_CLOCK, timeout=60)
        await driver.create_primary(ZONE, primary_config(server, ZONE, ()), START, DATA, 60)
        change = RRsetChange((b"\x03www", A), None, RRset(60, frozenset({bytes([192, 0, 2, 1])})))
        questions = {
            "soa": lambda: driver.soa(ZONE),
            "ttl": lambda: driver.soa_ttl(ZONE),
            "keys": lambda: driver.values(ZONE, 48),
            "transfer": lambda: driver.read(ZONE, frozenset()),
            "update": lambda: driver.write(ZONE, None, None, 60, [change]),
            "control": lambda: driver.control(f"zonestatus {zone_word(ZONE)}"),
        }
        for ask in questions.values():  # what can be replayed
            await ask()
        liar.lie = lie
        for name, ask in questions.items():
            if name != "control" or lie in ("mirrored", "replayed"):
                with pytest.raises(DriverError, match=r"sign|another command"):
                    await ask()
        driver.close()


@pytest.mark.parametrize("lie", LIES)
async def test_nothing_that_a_liar_says_is_believed_or_published(pair, lie):
    honest, liar = pair.servers
    await pair.zone("example.org")
    await pair.record("A", "www", ipv4Addresses=["192.0.2.1"])
    async with pair.running(**QUICK):
        await eventually(lambda: pair.is_ready("A", "www"), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
        await pair.record("A", "second", ipv4Addresses=["192.0.2.3"])  # an update, whose answer can be replayed
        await eventually(lambda: pair.is_ready("A", "second"), timeout=120)
        before = await serial(honest, "example.org")
        liar.lie = lie
        await pair.record("A", "new", ipv4Addresses=["192.0.2.2"])
        await eventually(lambda: pair.answers("new.example.org", "A", {"192.0.2.2"}, [honest]), timeout=120)
        await eventually(lambda: _is_unproven(pair), "the zone says that the liar proves nothing", timeout=120)
        assert liar.told
        assert not await pair.is_ready("A", "new")
        assert await values(liar.named, "new.example.org", "A") == set()
    async with pair.running(**QUICK):  # a new process, which reads every copy, believes no more
        told = liar.told
        await eventually(lambda: _more(liar, told + 3), timeout=120)
        assert await _is_unproven(pair)
        assert await values(honest, "www.example.org", "A") == {"192.0.2.1"}
        assert before <= await serial(honest, "example.org") < before + 1000
        assert (await pair.get("DNSZone", "example.org")).status.serial < before + 1000
        liar.lie = ""
        await eventually(lambda: pair.is_ready("A", "new"), timeout=120)
        await eventually(lambda: pair.is_ready("DNSZone", "example.org"), timeout=120)
    for server in (honest, liar.named):
        assert await values(server, "www.example.org", "A") == {"192.0.2.1"}
        assert await values(server, "new.example.org", "A") == {"192.0.2.2"}


async def _more(liar, count):
    return liar.told >= count


async def _is_unproven(site):
    status, _, message = await site.ready("DNSZone", "example.org")
    return status == "False" and any(word in message for word in ("sign", "another command", "another query"))
