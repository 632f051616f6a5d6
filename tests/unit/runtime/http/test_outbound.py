"""Requests to others: repeated while it may help, and never in a dry run."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from steersman.runtime.http.outbound import outbound_session, send
from steersman.runtime.reconcile.write_guard import NOT_LEADER, NotLeading, WriteGuard


class Pauses:
    """A clock that only notes how long it was asked to sleep."""

    def __init__(self):
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)


class Receiver:
    def __init__(self, *answers):
        self.answers, self.bodies = list(answers), []

    async def handle(self, request):
        self.bodies.append(await request.text())
        return web.Response(status=self.answers.pop(0), headers={"Location": "/elsewhere"})


@pytest.fixture
async def post():
    """Sends to a receiver with these answers: what came of it, how long it paused, and what was received."""
    servers = []

    async def post(*answers, **options):
        receiver, clock = Receiver(*answers), Pauses()
        app = web.Application()
        app.router.add_post("/hook", receiver.handle)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        async with outbound_session() as session:
            url = str(server.make_url("/hook"))
            sent = await send(session, url, effect="test", target="hook", clock=clock, data="x", **options)
        return sent, clock.slept, receiver.bodies

    yield post
    for server in servers:
        await server.close()


async def test_a_request_is_repeated_with_growing_pauses_until_it_is_accepted(post):
    retries = []
    sent, slept, bodies = await post(503, 500, 204, attempts=5, on_retry=lambda: retries.append(1))
    assert (sent.attempts, sent.error, slept, bodies, len(retries)) == (3, "", [1.0, 2.0], ["x"] * 3, 2)


async def test_an_answer_that_will_not_change_ends_it(post):
    sent, _, bodies = await post(404, attempts=5)
    assert (sent.error, len(bodies)) == ("answered 404", 1)


async def test_a_redirect_is_not_followed(post):
    sent, _, bodies = await post(302, 302, attempts=2)
    assert (sent.error, len(bodies)) == ("answered 302", 2)


async def test_an_error_says_what_happened_and_not_where():
    async with outbound_session() as session:
        sent = await send(session, "http://127.0.0.1:1/secret", effect="test", target="hook")
    assert sent.error.startswith("cannot be reached (")
    assert "secret" not in sent.error


async def test_nothing_is_sent_in_a_dry_run(post):
    with WriteGuard(dry_run=True).acting_for(None):
        sent, _, bodies = await post(200)
    assert (sent.withheld, sent.error, bodies) == (True, "", [])


async def test_nothing_is_sent_after_the_lease_was_lost(post):
    guard = WriteGuard()
    guard.fence = lambda _key: NOT_LEADER
    with guard.acting_for(None), pytest.raises(NotLeading):
        await post(200)
