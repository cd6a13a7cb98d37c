"""Polls beside passes: none waits for whoever hangs, and one a service is open."""

import asyncio
from collections.abc import Iterable, Mapping

from outrider.operator.observed.pods import Pod
from outrider.operator.workers.background import BackgroundWorkers
from outrider.operator.workers.client import WorkerClients
from outrider.operator.workers.poll import PodReport, PollQuestion

A, B = ("default", "a"), ("default", "b")


def question(at: float) -> PollQuestion:
    return PollQuestion(pods=(), is_scrape=False, at=at)


class Clients(WorkerClients):
    """Answer once they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.asked = 0
        self.answered: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def reports(self, pods: Iterable[Pod]) -> Mapping[str, PodReport]:
        self.asked += 1
        await self.go.wait()
        return {}

    def workers(self) -> BackgroundWorkers:
        return BackgroundWorkers(self, self.answered.put_nowait)


def test_an_answer_that_comes_at_once_is_there_after_the_wait() -> None:
    async def scene() -> None:
        clients = Clients()
        clients.go.set()
        async with clients.workers() as workers:
            await workers.ask(A, question(1))
            answer = workers.reports(A)
            assert answer is not None
            assert answer.question == question(1)
            assert workers.reports(A) is None

    asyncio.run(scene())


def test_a_late_answer_is_announced_and_no_second_question_is_asked_before_it() -> None:
    async def scene() -> None:
        clients = Clients()
        async with clients.workers() as workers:
            for at in (1, 2):
                await workers.ask(A, question(at))
            assert workers.reports(A) is None
            assert workers.is_asked(A)
            assert not workers.is_asked(B)
            clients.go.set()
            assert await clients.answered.get() == A
            answer = workers.reports(A)
            assert answer is not None
            assert answer.question == question(1)
            assert clients.asked == 1
            assert clients.answered.empty()

    asyncio.run(scene())


def test_an_answer_that_nobody_has_taken_yet_is_not_asked_away() -> None:
    async def scene() -> None:
        clients = Clients()
        clients.go.set()
        async with clients.workers() as workers:
            for at in (1, 2):
                await workers.ask(A, question(at))
            assert workers.is_asked(A)
            assert workers.reports(A) is not None
            assert not workers.is_asked(A)
            assert clients.asked == 1

    asyncio.run(scene())


def test_a_service_that_is_gone_is_not_announced() -> None:
    async def scene() -> None:
        clients = Clients()
        async with clients.workers() as workers:
            for service in (A, B):
                await workers.ask(service, question(1))
            await workers.forget_service(A)
            await workers.forget_service(A)
            clients.go.set()
            assert await clients.answered.get() == B
        assert clients.answered.empty()
        assert workers.reports(B) is None

    asyncio.run(scene())
