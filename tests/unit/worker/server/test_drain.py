"""A worker that was told to stop: what it says, what it takes, and when it ends."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from outrider.contract.settings import Role
from outrider.worker.api.availability import Availability
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.worker import Worker

LAME_DUCK, GRACE = 10.0, 600.0
SECONDS = 60.0
"""Far more than anything here takes."""


class Leaving:
    """A worker around an engine with one request; what happens to it is written down in order."""

    def __init__(self, lame_duck: float, loaded: bool = True) -> None:
        self.now = 0.0
        self.happened: list[str] = []
        self.stop = Shutdown()
        self.requests = {1: "a stream"}
        self.looks = 0
        """How often somebody has looked at the clock."""
        self.gone = asyncio.Event()
        self.availability = Availability(lame_duck_seconds=lame_duck, clock=self._clock)
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if loaded:
            ready.set_result(SimpleNamespace(dtype="fp32", sessions=1))
        parts: dict[str, Any] = {
            "settings": SimpleNamespace(role=Role.TARGET, lame_duck_seconds=lame_duck),
            "engine": SimpleNamespace(ready=ready, answers=self.requests, gone=self.gone),
            "control": SimpleNamespace(
                availability=self.availability, ready=True, send_drafts=lambda: None
            ),
            "health": SimpleNamespace(set_serving=self._says),
            "servers": (),
            "http": SimpleNamespace(send_clients_away=lambda: self.happened.append("HTTP closes")),
            "inference": SimpleNamespace(end_open=lambda: self.happened.append("cut")),
            "traces": None,
        }
        self._worker = Worker(**parts)

    def _clock(self) -> float:
        self.looks += 1
        return self.now

    async def _says(self, serving: bool) -> None:
        self.happened.append("serves" if serving else "does not serve")

    async def run(self) -> int:
        return await self._worker.run(self.stop)

    def begin(self) -> "asyncio.Task[None]":
        self.stop.request(GRACE)
        return asyncio.create_task(self._worker.drain(self.stop))

    async def until(self, what: str) -> None:
        while what not in self.happened:
            await asyncio.sleep(0)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS):
            await scene()

    asyncio.run(main())


def test_new_work_is_taken_until_the_lame_duck_time_is_over() -> None:
    async def scene() -> None:
        leaving = Leaving(LAME_DUCK)
        draining = leaving.begin()
        while not leaving.availability.draining:
            await asyncio.sleep(0)
        leaving.now = LAME_DUCK - 0.001
        assert not leaving.availability.refusing
        before = leaving.looks
        while leaving.looks < before + 2:
            await asyncio.sleep(0)
        assert leaving.happened == [], "clients are sent away while others are led here"
        leaving.now = LAME_DUCK
        assert leaving.availability.refusing
        await leaving.until("HTTP closes")
        assert leaving.happened == ["does not serve", "HTTP closes"]
        assert not draining.done(), "a stream runs"
        leaving.requests.clear()
        await draining

    run(scene)


def test_an_engine_that_dies_in_the_lame_duck_time_ends_its_worker() -> None:
    async def scene() -> None:
        leaving = Leaving(LAME_DUCK)
        running = asyncio.create_task(leaving.run())
        await leaving.until("serves")
        leaving.stop.request(GRACE)
        while not leaving.availability.draining:
            await asyncio.sleep(0)
        assert not running.done()
        leaving.gone.set()
        assert await running == 1
        assert leaving.requests, "nobody is left who could finish the stream"
        assert leaving.happened[:2] == ["serves", "does not serve"]

    run(scene)


def test_an_engine_that_dies_while_requests_finish_ends_its_worker() -> None:
    async def scene() -> None:
        leaving = Leaving(0.0)
        draining = leaving.begin()
        await leaving.until("does not serve")
        leaving.gone.set()
        await draining
        assert leaving.requests

    run(scene)


def test_without_a_lame_duck_time_clients_are_refused_at_once_and_told_why() -> None:
    async def scene() -> None:
        leaving = Leaving(0.0)
        draining = leaving.begin()
        await leaving.until("does not serve")
        assert leaving.availability.refusing
        leaving.requests.clear()
        await draining
        assert leaving.happened == ["does not serve", "cut"], "connections stay: they say why"

    run(scene)


def test_what_runs_is_cut_when_there_is_no_time_left() -> None:
    async def scene() -> None:
        leaving = Leaving(0.0)
        draining = leaving.begin()
        await leaving.until("does not serve")
        leaving.stop.request(0.0)  # the supervising process is gone
        await draining
        assert leaving.requests, "the stream was not at its end"
        assert leaving.happened[-1] == "cut"

    run(scene)


def test_a_worker_that_never_served_has_no_lame_duck_time() -> None:
    async def scene() -> None:
        leaving = Leaving(LAME_DUCK, loaded=False)
        leaving.requests.clear()
        await leaving.begin()
        assert not leaving.availability.refusing
        assert leaving.happened == ["does not serve", "HTTP closes", "cut"]

    run(scene)


def test_a_later_request_to_stop_leaves_no_more_time_than_the_one_before() -> None:
    async def scene() -> None:
        stop = Shutdown()
        assert stop.left == math.inf
        stop.request(100.0)
        deadline = stop.deadline
        stop.request(200.0)
        assert stop.deadline == deadline
        stop.request(0.0)
        assert stop.left == 0.0

    run(scene)
