"""Questions beside passes: none waits for whoever hangs, and one a service is open."""

import asyncio

from outrider.operator.workers.queries import Queries

A, B = ("default", "a"), ("default", "b")
LONG = 20.0
"""Seconds; what is waited for comes at once."""


class Server:
    """Answers once it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.answered: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def ask(self, question: str) -> str:
        self.asked.append(question)
        await self.go.wait()
        return question.upper()

    def queries(self) -> Queries[str, str]:
        return Queries(self.ask, self.answered.put_nowait)


def test_an_answer_that_comes_at_once_is_there_after_the_wait() -> None:
    async def scene() -> None:
        server = Server()
        server.go.set()
        queries = server.queries()
        queries.begin(A, "who?")
        await queries.wait(A, LONG)
        assert queries.take(A) == "WHO?"
        assert queries.take(A) is None

    asyncio.run(scene())


def test_a_late_answer_is_announced_and_no_second_question_is_asked_before_it() -> None:
    async def scene() -> None:
        server = Server()
        queries = server.queries()
        queries.begin(A, "one")
        queries.begin(A, "two")
        await queries.wait(A, 0.0)
        await queries.wait(B, LONG)
        assert queries.take(A) is None
        assert queries.is_asked(A)
        assert not queries.is_asked(B)
        server.go.set()
        assert await server.answered.get() == A
        assert (server.asked, queries.take(A)) == (["one"], "ONE")
        assert server.answered.empty()

    asyncio.run(scene())


def test_an_answer_that_nobody_has_taken_yet_is_not_asked_away() -> None:
    async def scene() -> None:
        server = Server()
        server.go.set()
        queries = server.queries()
        for question in ("one", "two"):
            queries.begin(A, question)
            await queries.wait(A, LONG)
        assert queries.is_asked(A)
        assert queries.take(A) == "ONE"
        assert not queries.is_asked(A)
        assert server.asked == ["one"]

    asyncio.run(scene())


def test_a_service_that_is_gone_is_not_announced() -> None:
    async def scene() -> None:
        server = Server()
        queries = server.queries()
        for service in (A, B):
            queries.begin(service, "who?")
        await queries.wait(A, 0.0)
        await queries.forget(A)
        await queries.forget(A)
        server.go.set()
        assert await server.answered.get() == B
        await queries.close()
        assert server.answered.empty()
        assert queries.take(B) is None

    asyncio.run(scene())
