"""The server's handle on its engine: timelines are asked for once, and no caller waits for ever."""

import asyncio

import pytest

from outrider.worker.messages import AskTimeline, Timeline, TimelineSpan
from tests.unit.worker.handles import Handle

TIMELINE = Timeline((TimelineSpan("target", 0, 1.0, 1.0, 2.0, rows=1),))


async def asking(handle: Handle) -> "asyncio.Task[Timeline]":
    """A caller that waits."""
    task = asyncio.create_task(handle.timeline())
    await asyncio.sleep(0)
    return task


def test_callers_share_a_timeline_though_one_of_them_goes() -> None:
    async def body() -> None:
        handle = Handle()
        first, second = await asking(handle), await asking(handle)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        third = await asking(handle)
        assert handle.sent == [AskTimeline()]
        handle.deliver([TIMELINE])
        assert await asyncio.gather(second, third) == [TIMELINE, TIMELINE]

    asyncio.run(body())


def test_what_is_asked_later_is_another_timeline() -> None:
    async def body() -> None:
        handle = Handle()
        for timeline in (TIMELINE, Timeline()):
            caller = await asking(handle)
            handle.deliver([timeline])
            assert await caller == timeline
        assert len(handle.sent) == 2

    asyncio.run(body())


def test_an_engine_that_is_gone_has_none() -> None:
    async def body() -> None:
        handle = Handle()
        caller = await asking(handle)
        handle.end()
        assert await caller == await handle.timeline() == Timeline()

    asyncio.run(body())
