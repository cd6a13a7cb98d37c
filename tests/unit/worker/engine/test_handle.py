"""The server's handle on its engine: timelines are asked for once, and no caller waits for ever."""

import asyncio

import pytest

from outrider.contract.state import TimelineSpan
from outrider.worker.errors import Stopping
from outrider.worker.messages import AskTimeline, Measure, Measured, Timeline
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


def test_measurements_come_in_the_order_in_which_they_were_asked_for() -> None:
    async def body() -> None:
        handle = Handle()
        asked = [asyncio.create_task(handle.measured(Measure(threads=n))) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        asked[0].cancel()
        handle.deliver([Measured(seconds=(float(n),)) for n in (1, 2)])
        assert (await asked[1]).seconds == (2.0,)
        handle.end()
        for lost in (asked[2], handle.measured(Measure(threads=1))):
            with pytest.raises(Stopping):
                await lost

    asyncio.run(body())
