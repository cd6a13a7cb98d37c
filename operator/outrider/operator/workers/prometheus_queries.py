"""Queries of Prometheus, each in a task of its own: a server that hangs holds up no pass.

At most one runs for each service. Leaves the request to `prometheus_client`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.control.prometheus import Answer
from outrider.operator.workers.prometheus_client import PodsQuery

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.2
"""Longest wait of a pass for an answer: most come within it and save another pass. With 16 passes
at once, 80 services a second wait in vain before any other has to wait."""


class PrometheusQueries:
    """The queries that run, and the answers that no pass has taken."""

    def __init__(
        self,
        ask: Callable[[PodsQuery], Awaitable[Answer]],
        on_answer: Callable[[ServiceKey], object],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`on_answer` is called once a service has an answer for which no pass waited."""
        self._ask = ask
        self._on_answer = on_answer
        self._patience = patience_seconds
        self._running: dict[ServiceKey, asyncio.Task[Answer]] = {}

    async def answer(self, service: ServiceKey, question: PodsQuery | None) -> Answer | None:
        """Return a service's answer if one has come; None: not yet, or nothing was asked.

        `question` is asked unless a query of the service runs already; None: nothing new is.
        """
        if service not in self._running and question is not None:
            await self._begin(service, question)
        task = self._running.get(service)
        if task is None or not task.done():
            return None
        del self._running[service]
        return task.result()

    async def _begin(self, service: ServiceKey, question: PodsQuery) -> None:
        task = asyncio.ensure_future(self._asked(question))
        self._running[service] = task
        await asyncio.wait((task,), timeout=self._patience)
        if not task.done():
            task.add_done_callback(lambda done: self._announce(service, done))

    async def _asked(self, question: PodsQuery) -> Answer:
        """Return what is answered; what nobody expected is an answer too, so that the service's
        condition says it and its pass goes on."""
        try:
            return await self._ask(question)
        except Exception as error:
            log.exception("query of %s", question.server.url)
            return Answer(failure=f"{question.server.url}: {type(error).__name__}: {error}")

    def _announce(self, service: ServiceKey, task: asyncio.Task[Answer]) -> None:
        if self._running.get(service) is task:
            self._on_answer(service)

    async def forget(self, service: ServiceKey) -> None:
        """End the query of a service that is gone."""
        task = self._running.pop(service, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """End all queries."""
        await asyncio.gather(*(self.forget(service) for service in tuple(self._running)))
