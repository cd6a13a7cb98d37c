"""Load of a pool: the bundled prompts, asked over and over of every target.

Sending, reading and comparing are those of `outrider bench serve`.
"""

import random
import time
from collections.abc import Iterator, Sequence

from bench.record.report import prompts
from outrider.cli.load.endpoint import LoadEndpoint
from outrider.cli.load.exchange import Exchange, Job, Status
from outrider.cli.load.run import LoadRun
from tests.process.workers import Worker

PROMPTS, ANSWER = 16, 64
"""Prompts that are asked, and tokens of each answer."""
TIMEOUT = 120.0
"""Seconds of silence after which a request counts as lost."""


def jobs(seed: int) -> list[Job]:
    """Return different requests, every second one sampled."""
    asked = {"max_tokens": ANSWER, "ignore_eos": True, "stream": True}
    return [
        (number, asked | one.fields() | {"temperature": 0.8 * (number % 2), "seed": seed + number})
        for number, one in enumerate(prompts()[:PROMPTS])
    ]


async def ask(
    target: Worker,
    wanted: Iterator[Job],
    users: int,
    started: float,
    *,
    requests: int | None = None,
    seconds: float | None = None,
) -> list[Exchange]:
    """Keep so many requests on their way to a target; return how all of them went.

    `started`: where the clock of their times begins, by `time.perf_counter`.
    """
    place = LoadEndpoint(url=f"{target.url}/v1")
    async with place.client(TIMEOUT) as client:
        model = await place.model(client, None)
        named = ((number, body | {"model": model}) for number, body in wanted)
        load = LoadRun(client, named, requests, seconds, started)
        await load.closed_loop(users)
        return load.ended


async def plain(target: Worker, asked: Sequence[Job]) -> list[Exchange]:
    """Ask a target that has no drafts each job once, alone; raises `SystemExit` if it fails."""
    ended = await ask(target, iter(asked), 1, time.perf_counter(), requests=len(asked))
    wrong = [one.problem for one in ended if one.status is not Status.COMPLETED]
    if wrong:
        raise SystemExit(f"bench.faults: a plain answer is missing: {wrong[0]}")
    return ended


def endless(asked: Sequence[Job], seed: int) -> Iterator[Job]:
    """Draw jobs without end."""
    rng = random.Random(seed)
    while True:
        yield rng.choice(asked)
