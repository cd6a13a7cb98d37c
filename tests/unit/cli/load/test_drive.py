"""An open loop sends whatever became of earlier requests; a closed one keeps so many running."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outrider.cli.load.answer import StreamedAnswer
from outrider.cli.load.drive import Extent, Load
from outrider.cli.load.outcome import Outcome, Status
from outrider.cli.load.show import Tally, share_done
from outrider.cli.load.workload import Job


class Visit:
    """Stands for an exchange that is over once as many as the barrier wants are running."""

    def __init__(self, job: Job, due: float, barrier: asyncio.Barrier) -> None:
        self.job, self.due, self.barrier = job, due, barrier
        self.status = Status.INTERRUPTED

    async def run(self) -> None:
        await self.barrier.wait()
        self.status = Status.COMPLETED

    def outcome(self) -> Outcome:
        moments = {"due": self.due, "sent": self.due, "ended": self.due}
        return Outcome(job=self.job, status=self.status, answer=StreamedAnswer(), **moments)


def jobs() -> Iterator[Job]:
    return (Job(turns=(), max_tokens=1, seed=n, temperature=0) for n in itertools.count())


def load(together: int, **extent: Any) -> Load:
    barrier = asyncio.Barrier(together)

    def begin(job: Job, due: float, clock: Callable[[], float]) -> Any:
        return Visit(job, due, barrier)

    return Load(begin, jobs(), Extent(**extent))


def finish(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_an_open_loop_does_not_wait_for_answers() -> None:
    run = load(5, requests=5)
    finish(run.open_loop(itertools.repeat(0.0)))
    assert sorted(one.job.seed for one in run.outcomes) == [0, 1, 2, 3, 4]
    assert run.running == set()


def test_the_state_of_a_run_counts_each_request_once() -> None:
    run, tally = load(1, requests=4), Tally()
    finish(run.open_loop(itertools.repeat(0.0)))
    assert tally.state(run).startswith("0 running, 4 completed, ")
    assert tally.state(run).startswith("0 running, 4 completed, ")
    assert share_done(run) == 1


def test_an_open_loop_sends_nothing_after_its_end() -> None:
    run = load(1, seconds=0.01)
    finish(run.open_loop(iter([0.0, 0.005, 0.01, 0.02])))
    assert [one.due for one in run.outcomes] == [0.0, 0.005]


def test_a_closed_loop_keeps_so_many_running() -> None:
    run = load(3, requests=9)
    finish(run.closed_loop(3))
    assert sorted(one.job.seed for one in run.outcomes) == list(range(9))


def test_a_closed_loop_keeps_no_more_running() -> None:
    run = load(4, requests=4)

    async def watched() -> None:
        task = asyncio.ensure_future(run.closed_loop(3))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(run.running), run.sent) == (3, 3)
        task.cancel()
        await asyncio.wait([task])

    finish(watched())


def test_what_runs_when_the_load_is_ended_is_kept() -> None:
    run = load(99, requests=2)

    async def end_early() -> None:
        task = asyncio.ensure_future(run.open_loop(itertools.repeat(0.0)))
        while run.sent < 2:
            await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        finish(end_early())
    assert [one.status for one in run.outcomes] == [Status.INTERRUPTED] * 2
