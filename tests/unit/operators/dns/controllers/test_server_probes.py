"""Probes of servers that did not answer, on virtual time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steersman.kube.api.gvk import NamespacedName
from steersman.operators.dns.bind.servers import Keys, Server
from steersman.operators.dns.controllers.context import ServerProbes
from steersman.operators.dns.publish.zone_state import ExchangeFailure, ZoneStates
from steersman.operators.dns.wire.client import DnsError
from steersman.operators.dns.wire.rndc import ControlError, ControlRefused
from steersman.operators.dns.wire.tsig import Key
from steersman.runtime.controller.channel import Channel

KEY = Key("operator", "hmac-sha256", b"x" * 32)
NS1 = Server(
    instance=NamespacedName("ns1", "dns"), name="0", role="primary", address="192.0.2.53", dns_port=53, rndc_port=953,
    keys=Keys(KEY, KEY, KEY),
)  # fmt: skip
SILENCE = DnsError("connection refused", server="ns1/0")


class ScriptedServer:
    """Answers or does not, and counts who asks."""

    server = NS1

    def __init__(self) -> None:
        self.error, self.control_error = SILENCE, None
        self.probes = 0

    async def probe(self) -> None:
        self.probes += 1
        if self.error is not None:
            raise self.error

    async def ready(self) -> None:
        if self.control_error is not None:
            raise self.control_error


@pytest.fixture
async def scene(clock):
    """A server, zones of which one failed there, and the zones that are woken."""
    driver, states, woken, channel = ScriptedServer(), ZoneStates(), [], Channel()
    channel.connect(lambda key, **_: woken.append(key.name))
    made = SimpleNamespace(driver=driver, states=states, woken=woken)
    pool = SimpleNamespace(current=lambda _: made.driver)
    for name in ("failed", "fine"):
        states[NamespacedName(name, "dns")].copy(NS1.id)
    fail(states)
    made.probes = ServerProbes(states, pool, channel, clock)
    yield made
    made.probes.stop()


def fail(states, *, silent=False):
    states[NamespacedName("failed", "dns")].copy(NS1.id).fail(
        ExchangeFailure("PrimaryFailed", "connection refused", silent)
    )


async def test_a_server_that_answers_again_has_its_failed_zones_published_within_two_seconds(scene, clock):
    scene.probes.start(NS1)
    await clock.advance(20)
    assert scene.woken == []
    scene.driver.error = None
    await clock.advance(2)
    assert scene.woken == ["failed"]


async def test_a_server_that_is_away_is_asked_once_a_second_however_many_zones_fail_there(scene, clock):
    for _ in range(100):
        scene.probes.start(NS1)
        await clock.advance(1)
    assert 95 <= scene.driver.probes <= 100


@pytest.mark.parametrize(
    "error",
    [
        DnsError("unknown key", server="ns1/0", rcode="BADKEY"),
        ControlError("x", server="ns1/0", text="denied"),
        ControlRefused("x", server="ns1/0"),
    ],
    ids=["DNS", "control", "closed"],
)
async def test_a_rejection_is_an_answer_too(scene, clock, error):
    scene.driver.error, scene.driver.control_error = None, error
    scene.probes.start(NS1)
    await clock.advance(2)
    assert scene.woken == ["failed"]


async def test_a_server_whose_control_channel_is_still_silent_is_probed_on(scene, clock):
    scene.driver.error, scene.driver.control_error = None, ControlError("connection refused", server="ns1/0")
    scene.probes.start(NS1)
    await clock.advance(10)
    assert scene.woken == []
    scene.driver.control_error = None
    await clock.advance(2)
    assert scene.woken == ["failed"]


async def test_a_silent_copy_is_waited_for_once_the_server_answers(scene, clock):
    fail(scene.states, silent=True)
    copy = scene.states[NamespacedName("failed", "dns")].copy(NS1.id)
    scene.driver.error = None
    scene.probes.start(NS1)
    await clock.advance(2)
    assert (copy.is_silent, copy.awaited, scene.woken) == (False, True, ["failed"])


async def test_a_server_that_answers_probes_and_nothing_else_does_not_keep_its_zones_busy(scene, clock):
    scene.driver.error = None
    for _ in range(600):  # every pass fails, and starts a probe
        scene.probes.start(NS1)
        await clock.advance(1)
    assert len(scene.woken) <= 30
    await clock.advance(300)
    del scene.woken[:]
    scene.probes.start(NS1)
    await clock.advance(2)  # a failure long after the last one is as urgent as the first
    assert scene.woken == ["failed"]


async def test_a_server_that_is_gone_is_no_longer_probed(scene, clock):
    scene.probes.start(NS1)
    await clock.advance(5)
    scene.driver, old = None, scene.driver
    count = old.probes
    await clock.advance(60)
    assert (old.probes, scene.woken) == (count, [])
