"""Questions about services, each in a task of its own: whoever hangs holds up nobody else.

At most one is open for each service. Leaves asking to a client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from outrider.operator.cluster.kinds import ServiceKey

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Queries(Generic[Question, Answer]):
    """The questions that are open, and the answers that nobody has taken."""

    def __init__(
        self,
        ask: Callable[[Question], Awaitable[Answer]],
        on_answer: Callable[[ServiceKey], object],
    ) -> None:
        """`ask` answers whatever happens; `on_answer` is called once a service has an answer."""
        self._ask = ask
        self._on_answer = on_answer
        self._tasks: dict[ServiceKey, asyncio.Future[Answer]] = {}

    def is_asked(self, service: ServiceKey) -> bool:
        """True if a question about a service has no answer yet, or one that nobody has taken."""
        return service in self._tasks

    def begin(self, service: ServiceKey, question: Question) -> None:
        """Ask a question, unless one about the service has been asked: an answer that came late is
        still to be taken."""
        if not self.is_asked(service):
            task = asyncio.ensure_future(self._ask(question))
            self._tasks[service] = task
            task.add_done_callback(lambda done: self._announce(service, done))

    async def wait(self, service: ServiceKey, seconds: float) -> None:
        """Wait for the answer about a service, at most so long."""
        task = self._tasks.get(service)
        if task is not None:
            await asyncio.wait((task,), timeout=seconds)

    def take(self, service: ServiceKey) -> Answer | None:
        """Return the answer about a service if one has come that nobody has taken."""
        task = self._tasks.get(service)
        if task is None or not task.done():
            return None
        return self._tasks.pop(service).result()

    async def forget(self, service: ServiceKey) -> None:
        """End the question about a service that is gone."""
        task = self._tasks.pop(service, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """End all questions."""
        await asyncio.gather(*(self.forget(service) for service in tuple(self._tasks)))

    def _announce(self, service: ServiceKey, task: "asyncio.Future[Answer]") -> None:
        if self._tasks.get(service) is task:
            self._on_answer(service)
