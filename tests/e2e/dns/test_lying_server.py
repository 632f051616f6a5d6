"""A server that lies: somebody between the operator and a name server who has no key. Nothing of it is believed.

The liar swallows updates and says that all is well, makes up serials and data, and signs as well as it can without the
key. The second primary is honest, and must not get a serial or a record that the liar made up.
"""

from __future__ import annotations

import base64
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
from tests.support.dns.liar import LIES, Liar, cut_signature
from tests.support.dns.zones import Site, serial, values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SOON = timedelta(seconds=1)
QUICK = {"drift_period": SOON, "not_ready": SOON, "server_pause": SOON}


@pytest.fixture
async def pair(cluster, client, dns_kinds, namespace, named):
    """An honest primary, and one that may lie."""
    async with named("ns1") as ns1, named("ns2", secret=ns1.secret) as ns2, Liar(ns2) as liar:
        made = Site(client, namespace, [ns1, liar])  # type: ignore[list-item]
        await made.instances()
        yield made


def test_wrong_answers_are_given_by_name():
    """Else the tests below would show nothing."""
    key = dns.tsig.Key("operator", b"a guess", dns.tsig.HMAC_SHA256)
    answer = dns.message.make_response(dns.message.make_query("example.org", "SOA"))
    answer.use_tsig(key)
    for size in (0, 1, 31):
        assert len(dns.message.from_wire(cut_signature(answer.to_wire(), size), keyring=False).mac) == size


ZONE = name_of("example.org")
START = Soa(name_of("ns1.example.org"), name_of("h.example.org"), 7, 3600, 600, 86400, 60)
DATA = {(b"", NS): RRset(60, frozenset({name_of("ns1.example.net")}))}


@pytest.mark.parametrize("lie", LIES)
async def test_no_question_to_a_server_is_answered_by_a_liar(named, lie):
    async with named("ns1") as ns1, Liar(ns1) as liar:
        key = Key(ns1.key_name, "hmac-sha256", base64.b64decode(ns1.secret))
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
