"""Load of a pool: a few requests, asked over and over of every target, each with its plain text.

Sending, reading and comparing are those of `outrider bench serve`.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence

from bench.report import prompts
from outrider.cli.load.drive import Extent, Load
from outrider.cli.load.endpoint import Endpoint, served_model
from outrider.cli.load.exchange import Exchange, Manner
from outrider.cli.load.lengths import Lengths
from outrider.cli.load.outcome import Outcome, Status
from outrider.cli.load.workload import PAIRS, Job, LoadWorkload
from tests.process.workers import Worker

LONGEST_PROMPT, ANSWER = 128, 64
"""Tokens."""
TIMEOUT = 120.0
"""Seconds after which a request counts as lost."""


def jobs(seed: int) -> list[Job]:
    """Return different requests, every second one sampled."""
    lengths = Lengths(answer=ANSWER, longest_prompt=LONGEST_PROMPT)
    workload = LoadWorkload(source=prompts(), lengths=lengths, checked_pairs=PAIRS)
    every = workload.jobs(seed)
    return [next(one for one in every if one.pair is not None) for _ in range(PAIRS)]


async def ask(
    target: Worker, wanted: Iterator[Job], extent: Extent, users: int, started: float
) -> list[Outcome]:
    """Keep so many requests on their way to a target; return how all of them went.

    `started`: where the clock of their times begins, by `time.perf_counter`.
    """
    place = Endpoint(url=f"{target.url}/v1")
    async with place.client() as client:
        model = await served_model(client, place, None)
        manner = Manner(model=model, ignore_eos=True, timeout=TIMEOUT)

        def begin(job: Job, due: float, clock: Callable[[], float]) -> Exchange:
            return Exchange(client, manner, job, due, clock)

        load = Load(begin, wanted, extent, started)
        await load.closed_loop(users)
        return load.outcomes


async def plain(target: Worker, asked: Sequence[Job]) -> list[Outcome]:
    """Ask a target that has no drafts each job once, alone; raises `SystemExit` if it fails."""
    extent = Extent(requests=len(asked))
    outcomes = await ask(target, iter(asked), extent, 1, time.perf_counter())
    wrong = [one.problem for one in outcomes if one.status is not Status.COMPLETED]
    if wrong:
        raise SystemExit(f"bench.faults: a plain answer is missing: {wrong[0]}")
    return outcomes


def endless(asked: Sequence[Job], seed: int) -> Iterator[Job]:
    """Draw jobs without end."""
    rng = random.Random(seed)
    while True:
        yield rng.choice(asked)
