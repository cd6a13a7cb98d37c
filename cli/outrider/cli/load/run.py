"""A run of the load generator: requests sent at a rate or as earlier ones end."""

import asyncio
import itertools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from outrider.cli.load.exchange import Exchange, Job

REPEAT = 10.0
"""Seconds between two lines of progress."""


def jobs(prompts: Sequence[dict[str, Any]], others: dict[str, Any], seed: int) -> Iterator[Job]:
    """Yield jobs without end: all prompts in an order of the seed's, then in another one.

    Each prompt has a seed of its own, so that whoever asks it again asks exactly the same;
    `others`: what all requests hold besides.
    """
    rng = random.Random(seed)
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    while True:
        for number in rng.sample(range(len(prompts)), len(prompts)):
            yield number, others | stream | {"seed": seed + number} | prompts[number]


@dataclass(slots=True)
class LoadRun:
    """A run: what is on its way and what is over."""

    client: httpx.AsyncClient
    jobs: Iterator[Job]
    requests: int | None = None
    """Most requests to send."""
    seconds: float | None = None
    """Time after which none is sent; those on their way are read to their end."""
    started: float = field(default_factory=time.perf_counter)
    sent: int = 0
    ended: list[Exchange] = field(default_factory=list)

    def clock(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self.started

    async def open_loop(self, rate: float, seed: int) -> None:
        """Send `rate` requests a second, as independent users do (Poisson), whether or not those
        before have ended."""
        rng = random.Random(seed)
        moments = itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())
        async with asyncio.TaskGroup() as group:
            for due in itertools.islice(moments, self.requests):
                if self.seconds is not None and due >= self.seconds:
                    break
                await asyncio.sleep(max(0.0, due - self.clock()))
                group.create_task(self._one(due))

    async def closed_loop(self, concurrency: int) -> None:
        """Keep so many requests on their way."""

        async def user() -> None:
            while (self.requests is None or self.sent < self.requests) and (
                self.seconds is None or self.clock() < self.seconds
            ):
                await self._one(self.clock())

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(user())

    async def progress(self) -> None:
        """Say on stderr how far the run is, until it is cancelled."""
        while True:
            await asyncio.sleep(REPEAT)
            words = f"{self.clock():.0f} s: {self.sent} sent, {len(self.ended)} ended"
            print(words, file=sys.stderr, flush=True)

    async def send(self, exchange: Exchange) -> None:
        """Send one request and read its answer."""
        await exchange.run(self.client, self.clock)

    async def _one(self, due: float) -> None:
        self.sent += 1
        exchange = Exchange(next(self.jobs), due)
        try:
            await self.send(exchange)
        finally:
            self.ended.append(exchange)
