"""Requests to drain: one at a time for each worker, and one in each of its lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import grpc
import pytest

from outrider.client.errors import ClientError
from outrider.contract.settings import Role
from outrider.operator.observed.pods import Pod
from outrider.operator.workers.drains import Drains

LEADER = Pod("a", "leader", Role.TARGET, "r", "10.0.0.1", True, False, (), "")
SECONDS = 20
"""Far more than anything here takes."""


class Leaders:
    """Answer once they are let go, as long as they listen."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.listen = True
        self.calls = 0
        self.ended = 0
        self.drains = Drains(self._drain)

    async def _drain(self, pod: Pod, seconds: float) -> int:
        self.calls += 1
        try:
            await self.go.wait()
        finally:
            self.ended += 1
        if not self.listen:
            raise ClientError("refused", grpc.StatusCode.UNAVAILABLE)
        return 1

    async def told(self, incarnation: int) -> int:
        """Calls so far, once this one, if there is any, has ended."""
        self.drains.begin(LEADER, incarnation, 60.0)
        await asyncio.sleep(0)
        while self.ended < self.calls:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # its task is forgotten
        return self.calls


def run(scene: Callable[[Leaders], Awaitable[None]]) -> None:
    async def main() -> None:
        leaders = Leaders()
        async with asyncio.timeout(SECONDS):
            await scene(leaders)
        await leaders.drains.close()

    asyncio.run(main())


def test_a_worker_that_has_answered_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(leaders: Leaders) -> None:
        leaders.go.set()
        assert await leaders.told(1) == 1
        leaders.listen = False  # its gRPC refuses now
        assert await leaders.told(1) == 1

    with caplog.at_level(logging.WARNING):
        run(scene)
    assert caplog.messages == []


def test_its_next_life_is_told() -> None:
    async def scene(leaders: Leaders) -> None:
        leaders.go.set()
        assert await leaders.told(1) == 1
        assert await leaders.told(2) == 2

    run(scene)


def test_one_that_did_not_answer_is_told_again() -> None:
    async def scene(leaders: Leaders) -> None:
        leaders.go.set()
        leaders.listen = False
        assert await leaders.told(1) == 1
        leaders.listen = True
        assert await leaders.told(1) == 2

    run(scene)


def test_one_that_is_being_told_is_not_told_beside_that() -> None:
    async def scene(leaders: Leaders) -> None:
        for _ in range(3):
            leaders.drains.begin(LEADER, 1, 60.0)
            await asyncio.sleep(0)
        assert leaders.calls == 1

    run(scene)


def test_one_that_is_gone_is_forgotten() -> None:
    async def scene(leaders: Leaders) -> None:
        leaders.go.set()
        assert await leaders.told(1) == 1
        leaders.drains.forget(["a", "unknown"])
        assert await leaders.told(1) == 2
        leaders.go.clear()
        leaders.drains.begin(LEADER, 2, 60.0)
        await asyncio.sleep(0)
        leaders.drains.forget(["a"])
        while leaders.ended < 3:
            await asyncio.sleep(0)

    run(scene)
