"""Questions to name servers, as tests ask them."""

from __future__ import annotations

import asyncio

import dns.message

from tests.support.dns.zones import ask


class _Echo:
    """Answers everything at once, with nothing."""

    address = "127.0.0.1"

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, self.address, 0)
        self.dns_port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        try:
            wire = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
            answer = dns.message.make_response(dns.message.from_wire(wire)).to_wire()
            writer.write(len(answer).to_bytes(2) + answer)
        except EOFError:
            pass  # hung up on
        finally:
            writer.close()


async def test_who_asks_all_the_time_ends_when_asked_to_whatever_the_moment():
    async def ask_for_ever(server):
        while True:
            await ask(server, "example.org", "A")

    async with _Echo() as server:
        for moment in range(150):
            task = asyncio.create_task(ask_for_ever(server))
            for _ in range(moment % 50):
                await asyncio.sleep(0)  # not a time: one turn of the loop
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=60)
            assert done, f"it went on after the cancellation at turn {moment % 50}"
