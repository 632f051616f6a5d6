"""Background work, on both servers: the clock is virtual, the site is real."""

import asyncio

import pytest
from aiohttp import web

import steersman as sm
from steersman.testing import VirtualClock, eventually, running_least_privilege


class Web:
    """A site with a stream of messages; it counts the followers."""

    def __init__(self):
        self.status, self.followers = 200, 0
        self.messages = asyncio.Queue()

    async def page(self, request):
        return web.Response(status=self.status)

    async def stream(self, request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.followers += 1
        sending = asyncio.create_task(self.send(socket))
        try:
            await socket.receive()
        finally:
            self.followers -= 1
            sending.cancel()
        return socket

    async def send(self, socket):
        while True:
            await socket.send_str(await self.messages.get())


@pytest.fixture
async def site():
    made, app = Web(), web.Application()
    app.router.add_get("/", made.page)
    app.router.add_get("/messages", made.stream)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def described(example, namespace, url, **spec):
    return example.Site(
        metadata=sm.ObjectMeta(name="shop", namespace=namespace), spec=example.Site.Spec(url=url, **spec)
    )


async def status_of(client, example, namespace):
    return (await client.get(example.Site, "shop", namespace=namespace)).status


def condition(status, kind):
    found = sm.find_condition(status.conditions, kind)
    return None if found is None else (found.status, found.reason)


async def test_a_site_is_probed_again_and_again(installed, client, cluster, namespace, site):
    (controller,) = installed.controllers()
    clock = VirtualClock()
    await client.create(described(installed, namespace, site.url))
    async with running_least_privilege(cluster, controller, namespace=namespace, clock=clock):
        for status, expected in ((200, ("True", "Answers")), (503, ("False", "NoAnswer"))):
            site.status = status

            async def reported(expected=expected):
                await clock.advance(5)
                return condition(await status_of(client, installed, namespace), "Ready") == expected

            await eventually(reported)
        assert (await status_of(client, installed, namespace)).probes >= 2


async def test_messages_are_followed_while_the_spec_says_so(installed, client, cluster, namespace, site):
    (controller,) = installed.controllers()
    await client.create(described(installed, namespace, site.url, follow=True))
    async with running_least_privilege(cluster, controller, namespace=namespace):
        site.messages.put_nowait("sale")

        async def followed():
            return (await status_of(client, installed, namespace)).message == "sale"

        await eventually(followed)
        await client.patch(installed.Site, "shop", {"spec": {"follow": False}}, namespace=namespace)
        await eventually(lambda: site.followers == 0)


async def test_an_invalid_address_is_reported_until_it_is_changed(installed, client, cluster, namespace, site):
    (controller,) = installed.controllers()
    await client.create(described(installed, namespace, "shop"))
    async with running_least_privilege(cluster, controller, namespace=namespace):

        async def stalled():
            return condition(await status_of(client, installed, namespace), "Stalled") == ("True", "InvalidURL")

        await eventually(stalled)
        await client.patch(installed.Site, "shop", {"spec": {"url": site.url}}, namespace=namespace)

        async def passed():
            return condition(await status_of(client, installed, namespace), "Stalled") is None

        await eventually(passed)

        async def moved():
            events = (await client.list(sm.Event, namespace=namespace)).items
            return [event.message for event in events if event.reason == "Moved"] == [f"from shop to {site.url}"]

        await eventually(moved)
