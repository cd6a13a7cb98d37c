"""Events that come in a burst are one pass; one that comes during a pass is not lost."""

import asyncio

from outrider.operator.work_queue import WorkQueue


class Passes:
    """Counts passes of one key; each waits for `go`."""

    def __init__(self) -> None:
        self.count = 0
        self.began: asyncio.Queue[int] = asyncio.Queue()
        self.go = asyncio.Event()

    async def one(self, key: str) -> float | None:
        self.count += 1
        self.began.put_nowait(self.count)
        await self.go.wait()
        return 3600.0


def test_a_burst_of_wakes_is_one_pass() -> None:
    async def body() -> None:
        passes = Passes()
        passes.go.set()
        queue = WorkQueue(passes.one)
        for _ in range(20):
            queue.enqueue("a")
            await asyncio.sleep(0)  # each is an event of its own
        await passes.began.get()
        queue.enqueue("b")
        await passes.began.get()  # whatever "a" was still to get has come
        assert passes.count == 2
        await queue.close()

    asyncio.run(body())


def test_a_wake_during_a_pass_is_one_more_pass() -> None:
    async def body() -> None:
        passes = Passes()
        queue = WorkQueue(passes.one)
        queue.enqueue("a")
        await passes.began.get()
        for _ in range(3):
            queue.enqueue("a")
        passes.go.set()
        assert await passes.began.get() == 2
        assert passes.began.empty()
        await queue.close()

    asyncio.run(body())
