"""The load: jobs sent at their moments, or as earlier ones end.

What a request does is `exchange`'s; when they are due is `arrivals`'.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from outrider.cli.load.exchange import Exchange
from outrider.cli.load.outcome import Outcome
from outrider.cli.load.workload import Job

Begin = Callable[[Job, float, Callable[[], float]], Exchange]
"""Makes the exchange of a job that is due at a moment, by a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """When no more requests are sent; those on their way are read to their end."""

    requests: int | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Load:
    """A run: what is on its way and what is over."""

    begin: Begin
    jobs: Iterator[Job]
    extent: Extent
    started: float = field(default_factory=time.perf_counter)
    running: set[Exchange] = field(default_factory=set)
    outcomes: list[Outcome] = field(default_factory=list)
    sent: int = 0

    def clock(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self.started

    async def open_loop(self, moments: Iterator[float]) -> None:
        """Send a job at each moment, whether or not those before have ended."""
        limit = self.extent.seconds
        async with asyncio.TaskGroup() as group:
            for due in itertools.islice(moments, self.extent.requests):
                if limit is not None and due >= limit:
                    break
                await asyncio.sleep(max(0.0, due - self.clock()))
                group.create_task(self._one(due))

    async def closed_loop(self, concurrency: int) -> None:
        """Keep `concurrency` jobs on their way."""
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(self._user())

    async def _user(self) -> None:
        while not self._over():
            await self._one(self.clock())

    def _over(self) -> bool:
        requests, seconds = self.extent.requests, self.extent.seconds
        enough = requests is not None and self.sent >= requests
        return enough or (seconds is not None and self.clock() >= seconds)

    async def _one(self, due: float) -> None:
        self.sent += 1
        exchange = self.begin(next(self.jobs), due, self.clock)
        self.running.add(exchange)
        try:
            await exchange.run()
        finally:
            self.running.remove(exchange)
            self.outcomes.append(exchange.outcome())
