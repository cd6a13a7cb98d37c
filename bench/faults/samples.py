"""Samples of a pool while it runs: tokens written, waits, links and sessions."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.faults.pool import Pool
from outrider.client import AsyncClient, ClientError, LinkState, State

PERIOD = 0.2
"""Seconds between two samples."""
ANSWER_SECONDS = 1.0
"""Longest wait for a worker's state: one that is stopped has none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one time, in seconds since the load began."""

    at: float
    tokens: int
    """Tokens written by all targets so far."""
    waited: float
    """Seconds for which all targets have waited for drafts so far."""
    running: int
    """Requests that run on all targets."""
    links: tuple[int, ...]
    """Targets with a link to each draft that is up."""
    sessions: tuple[int | None, ...]
    """Sessions that each draft says it has; None: it says nothing."""


async def watch(pool: Pool, clock: Callable[[], float], samples: list[Sample]) -> None:
    """Add samples until cancelled."""
    sessions: list[int | None] = [None] * len(pool.drafts)
    async with contextlib.AsyncExitStack() as stack:
        targets = [
            await stack.enter_async_context(AsyncClient(one.address)) for one in pool.targets
        ]
        async with asyncio.TaskGroup() as group:
            for number in range(len(pool.drafts)):
                group.create_task(_watch_draft(pool, number, sessions))
            while True:
                states = await asyncio.gather(*(one.state() for one in targets))
                samples.append(sample(clock(), states, pool.addresses, sessions))
                await asyncio.sleep(PERIOD)


async def _watch_draft(pool: Pool, number: int, sessions: list[int | None]) -> None:
    """Keep the sessions of one draft; each look is a connection, for it may have a new life."""
    while True:
        worker = pool.drafts[number].worker
        sessions[number] = None
        async with AsyncClient(worker.address) as client:
            with contextlib.suppress(ClientError):
                while pool.drafts[number].worker is worker:
                    state = await client.state(timeout=ANSWER_SECONDS)
                    sessions[number] = state.running
                    await asyncio.sleep(PERIOD)
        await asyncio.sleep(PERIOD)


def sample(
    at: float, states: Sequence[State], addresses: Sequence[str], sessions: Sequence[int | None]
) -> Sample:
    """Sum up what all targets say."""
    up = [{link.address for link in state.links if link.state is LinkState.UP} for state in states]
    return Sample(
        at=at,
        tokens=sum(state.counters.generation_tokens for state in states),
        waited=sum(state.counters.draft_wait_seconds for state in states),
        running=sum(state.running for state in states),
        links=tuple(sum(address in one for one in up) for address in addresses),
        sessions=tuple(sessions),
    )
