"""Queries beside passes: none waits for a server that hangs."""

import asyncio

from outrider.operator.control.prometheus import Answer
from outrider.operator.spec import Prometheus
from outrider.operator.workers.prometheus_client import PodsQuery
from outrider.operator.workers.prometheus_queries import PrometheusQueries

A, B = ("default", "a"), ("default", "b")
QUESTION = PodsQuery("default", Prometheus(url="http://p"), (), 60)
GOOD = Answer(failure="an answer")


class Server:
    """Answers once it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0
        self.answered: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def ask(self, question: PodsQuery) -> Answer:
        self.asked += 1
        await self.go.wait()
        return GOOD


def test_an_answer_that_comes_at_once_is_the_pass_s_own() -> None:
    async def scene() -> None:
        server = Server()
        server.go.set()
        queries = PrometheusQueries(server.ask, server.answered.put_nowait)
        assert await queries.answer(A, QUESTION) == GOOD
        assert await queries.answer(A, None) is None
        assert server.answered.empty(), "no other pass is needed"

    asyncio.run(scene())


def test_what_nobody_expected_is_an_answer_in_words_early_or_late() -> None:
    async def scene(patience_seconds: float) -> None:
        told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def broken(question: PodsQuery) -> Answer:
            raise TypeError("what is this?")

        queries = PrometheusQueries(broken, told.put_nowait, patience_seconds)
        answer = await queries.answer(A, QUESTION)
        if answer is None:
            assert await told.get() == A
            answer = await queries.answer(A, None)
        assert answer == Answer(failure="http://p: TypeError: what is this?")

    for patience_seconds in (20.0, 0.0):
        asyncio.run(scene(patience_seconds))


def test_a_late_answer_asks_for_a_pass_which_takes_it_and_no_second_query_runs() -> None:
    async def scene() -> None:
        server = Server()
        queries = PrometheusQueries(server.ask, server.answered.put_nowait, 0.0)
        assert await queries.answer(A, QUESTION) is None
        assert await queries.answer(A, QUESTION) is None
        assert await queries.answer(B, None) is None
        assert server.asked == 1
        server.go.set()
        assert await server.answered.get() == A
        assert await queries.answer(A, None) == GOOD
        assert await queries.answer(A, None) is None
        assert server.answered.empty()

    asyncio.run(scene())


def test_a_service_that_is_gone_is_not_passed_again() -> None:
    async def scene() -> None:
        server = Server()
        queries = PrometheusQueries(server.ask, server.answered.put_nowait, 0.0)
        for service in (A, B):
            assert await queries.answer(service, QUESTION) is None
        await queries.forget(A)
        await queries.forget(A)
        server.go.set()
        assert await server.answered.get() == B
        await queries.close()
        assert server.answered.empty()
        assert await queries.answer(B, None) is None

    asyncio.run(scene())
