"""Work queue: one pass at a time for each key, no event is missed, and a failure is retried."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from outrider.operator import work_queue as module
from outrider.operator.work_queue import Retry, WorkQueue


class Passes:
    """Counts passes; each waits for `go` where there is one."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running: dict[str, int] = {}
        self.most = 0
        self.go: asyncio.Event | None = None
        self.again: float | None = None
        self.failures = 0

    async def __call__(self, key: str) -> float | None:
        self.begun.append(key)
        self.running[key] = self.running.get(key, 0) + 1
        self.most = max(self.most, self.running[key])
        if self.go is not None:
            await self.go.wait()
        self.running[key] -= 1
        if self.failures:
            self.failures -= 1
            raise ValueError("no")
        return self.again


async def until(holds: Callable[[], bool]) -> None:
    """Let other tasks run until it holds."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0)


def run(scene: Callable[[Passes, WorkQueue[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        passes = Passes()
        queue = WorkQueue(passes)
        try:
            await scene(passes, queue)
        finally:
            await queue.close()

    asyncio.run(main())


def test_wakes_during_a_pass_become_one_more() -> None:
    async def scene(passes: Passes, queue: WorkQueue[str]) -> None:
        passes.go = asyncio.Event()
        passes.again = 1000.0
        queue.enqueue("a")
        await until(lambda: passes.begun == ["a"])
        for _ in range(5):
            queue.enqueue("a")
        passes.go.set()
        await until(lambda: len(passes.begun) == 2)
        await asyncio.sleep(0)
        assert passes.begun == ["a", "a"]
        assert passes.most == 1

    run(scene)


def test_keys_do_not_wait_for_each_other() -> None:
    async def scene(passes: Passes, queue: WorkQueue[str]) -> None:
        passes.go = asyncio.Event()
        for key in "abc":
            queue.enqueue(key)
        await until(lambda: sorted(passes.begun) == ["a", "b", "c"])

    run(scene)


def test_a_pass_comes_again_by_itself() -> None:
    async def scene(passes: Passes, queue: WorkQueue[str]) -> None:
        passes.again = 0.0
        queue.enqueue("a")
        await until(lambda: len(passes.begun) > 3)

    run(scene)


def test_a_key_that_is_gone_is_forgotten_and_may_come_back() -> None:
    async def scene(passes: Passes, queue: WorkQueue[str]) -> None:
        queue.enqueue("a")
        await until(lambda: not queue.keys)
        queue.enqueue("a")
        await until(lambda: len(passes.begun) == 2)

    run(scene)


def test_a_pass_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "BACKOFF", (0.0, 0.001))

    async def scene(passes: Passes, queue: WorkQueue[str]) -> None:
        passes.failures, passes.again = 3, 1000.0
        queue.enqueue("a")
        await until(lambda: len(passes.begun) == 4)
        assert queue.keys == ("a",)

    with caplog.at_level(logging.CRITICAL, logger=module.__name__):
        run(scene)


def test_large_passes_wait_for_their_like_and_hold_up_nobody_else() -> None:
    async def main() -> None:
        passes = Passes()
        passes.again, passes.go = 1000.0, asyncio.Event()
        queue = WorkQueue(passes, large=lambda key: key.startswith("large"))
        many = [f"large {number}" for number in range(2 * module.MAX_AT_ONCE)]
        for key in (*many, "small"):
            queue.enqueue(key)
        await until(lambda: len(passes.begun) == module.MAX_LARGE_AT_ONCE + 1)
        assert passes.begun == [*many[: module.MAX_LARGE_AT_ONCE], "small"]
        passes.go.set()
        await until(lambda: len(passes.begun) == len(many) + 1)
        await queue.close()

    asyncio.run(main())


def test_large_passes_that_failed_hold_up_none_of_their_like(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "BACKOFF", (0.0,))

    async def main() -> None:
        passes, hanging = Passes(), [f"hanging {n}" for n in range(module.MAX_LARGE_AT_ONCE)]
        passes.go, passes.failures = asyncio.Event(), len(hanging)
        queue = WorkQueue(passes, large=lambda _: True)
        for key in hanging:
            queue.enqueue(key)
        await until(lambda: passes.begun == hanging)
        first, passes.go = passes.go, asyncio.Event()
        first.set()
        await until(lambda: sorted(passes.begun) == sorted(2 * hanging))
        queue.enqueue("new")
        await until(lambda: passes.begun[-1] == "new")
        await queue.close()

    with caplog.at_level(logging.CRITICAL, logger=module.__name__):
        asyncio.run(main())


def test_the_time_from_a_wake_to_its_pass_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BURST_SECONDS", 0.02)

    async def main() -> None:
        passes, heard = Passes(), list[float]()
        passes.again = 0.0
        queue = WorkQueue(passes, on_wait=heard.append)
        queue.enqueue("a")
        await until(lambda: len(passes.begun) >= 3)
        await queue.close()
        assert len(heard) == 1, "a pass whose time has come was not woken"
        assert heard[0] >= 0.02

    asyncio.run(main())


def test_a_pass_that_asks_for_patience_gets_it_whatever_is_enqueued(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        times: list[float] = []

        async def one(key: str) -> float:
            times.append(time.monotonic())
            if len(times) == 1:
                raise Retry("Deployment chat: too many requests", after=PATIENCE)
            return 1000.0

        queue = WorkQueue(one)
        queue.enqueue("a")
        await until(lambda: len(times) == 1)
        queue.enqueue("a")
        await until(lambda: len(times) == 2)
        await queue.close()
        assert times[1] - times[0] >= PATIENCE

    asyncio.run(main())
    (record,) = caplog.records
    assert "a: Deployment chat: too many requests; again in" in record.message
    assert record.exc_info is None


def test_what_is_left_to_do_holds_up_nothing_that_is_due_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "BACKOFF", (1000.0,))

    async def main() -> None:
        count = 0

        async def one(key: str) -> float:
            nonlocal count
            count += 1
            raise Retry("Deployment chat: no answer", wait=0.001)

        queue = WorkQueue(one)
        queue.enqueue("a")
        await until(lambda: count == 3)
        await queue.close()

    asyncio.run(main())
    assert "a: Deployment chat: no answer; again in 0 s" in caplog.text


PATIENCE = 3 * module.BURST_SECONDS


def test_a_failure_that_stays_the_same_is_logged_with_its_traceback_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "BACKOFF", (0.0,))

    async def scene(passes: Passes, queue: WorkQueue[str]) -> None:
        passes.failures, passes.again = 3, 1000.0
        queue.enqueue("a")
        await until(lambda: len(passes.begun) == 4)

    run(scene)
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]


def test_keys_that_failed_together_are_not_all_tried_again_together() -> None:
    entries = [module._Entry() for _ in range(50)]
    seconds = {module._next_try(entry) for entry in entries}
    assert len(seconds) > 1
    assert all(module.BACKOFF[0] <= one <= module.BACKOFF[0] * 1.2 for one in seconds)
    assert module._next_try(entries[0], after=100.0) >= 100.0


def test_whoever_prepares_a_pass_holds_up_nobody() -> None:
    async def main() -> None:
        passes = Passes()
        passes.again = 1000.0
        preparing: list[str] = []

        async def prepare(key: str) -> None:
            preparing.append(key)
            if key.startswith("hung"):
                await asyncio.Event().wait()

        queue = WorkQueue(passes, prepare=prepare)
        hung = [f"hung {number}" for number in range(2 * module.MAX_AT_ONCE)]
        for key in hung:
            queue.enqueue(key)
        await until(lambda: len(preparing) == len(hung))
        queue.enqueue("well")
        await until(lambda: passes.begun == ["well"])
        await queue.close()

    asyncio.run(main())


def test_a_pass_that_cannot_be_prepared_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        passes = Passes()
        passes.again = 1000.0

        async def prepare(key: str) -> None:
            raise ValueError("no")

        queue = WorkQueue(passes, prepare=prepare)
        queue.enqueue("a")
        await until(lambda: passes.begun == ["a"])
        await queue.close()

    asyncio.run(main())
    assert "its pass could not be prepared" in caplog.text
