"""Bodies that come in several parts, over a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from outrider.operator.workers.http_body import BodyTooLong, read_body

FIRST, SECOND = b"outrider_verify_passes_total 12", b"345\n"


@contextlib.asynccontextmanager
async def half_sent(release: asyncio.Event) -> AsyncIterator[aiohttp.ClientResponse]:
    """An answer whose second part is sent once it is released."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(FIRST)
        await release.wait()
        await response.write(SECOND)
        return response

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/metrics") as found,
    ):
        yield found
    await runner.cleanup()


def test_a_body_is_read_to_its_end_though_a_part_of_it_has_come() -> None:
    async def scene() -> bytes:
        release = asyncio.Event()
        async with half_sent(release) as answer:
            begun = await answer.content.readexactly(1)
            reading = asyncio.create_task(read_body(answer, 1000))
            await asyncio.sleep(0)
            release.set()
            return begun + await reading

    assert asyncio.run(scene()) == FIRST + SECOND


def test_a_body_beyond_the_limit_is_refused() -> None:
    async def scene() -> None:
        release = asyncio.Event()
        release.set()
        async with half_sent(release) as answer:
            with pytest.raises(BodyTooLong, match="more than 34 bytes"):
                await read_body(answer, len(FIRST + SECOND) - 1)

    asyncio.run(scene())
