"""The workers of all services, asked and told in tasks of their own: no pass waits for them.

Leaves connections to `client`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Self

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State
from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.observed.pods import Pod
from outrider.operator.workers.client import WorkerClients
from outrider.operator.workers.drains import Drains
from outrider.operator.workers.poll import PollAnswer, PollQuestion
from outrider.operator.workers.pushes import PolicyPushes

PATIENCE_SECONDS = 0.2
"""Longest wait for an answer before a pass goes on without it: most come within it, and save
another pass. Whoever waits holds no place of a pass."""


class BackgroundWorkers:
    """Open questions to workers and pushes to them. Use as `async with`."""

    def __init__(
        self,
        clients: WorkerClients,
        on_answer: Callable[[ServiceKey], object],
    ) -> None:
        """`on_answer` is called with each service about which an answer has come."""
        self._clients = clients
        self._on_answer = on_answer
        self._polls: dict[ServiceKey, asyncio.Future[PollAnswer]] = {}
        self._pushes = PolicyPushes(clients.push)
        self._drains = Drains(clients.drain)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        polls = (self.forget_service(service) for service in tuple(self._polls))
        await asyncio.gather(*polls, self._pushes.close(), self._drains.close())

    def is_asked(self, service: ServiceKey) -> bool:
        """True if a poll of a service's pods has no answer yet, or one that no pass has taken."""
        return service in self._polls

    async def ask(self, service: ServiceKey, question: PollQuestion) -> None:
        """Ask a service's pods, unless they have been asked: an answer that came late is still to
        be taken. Wait a little for the answers: whoever hangs holds up no other service."""
        if not self.is_asked(service):
            task = self._polls[service] = asyncio.ensure_future(self._poll(question))
            task.add_done_callback(lambda done: self._announce(service, done))
        await asyncio.wait((self._polls[service],), timeout=PATIENCE_SECONDS)

    def reports(self, service: ServiceKey) -> PollAnswer | None:
        """Return what a service's pods have answered since the last call."""
        task = self._polls.get(service)
        if task is None or not task.done():
            return None
        return self._polls.pop(service).result()

    def push(
        self,
        pod: Pod,
        policy: PolicySettings,
        on_result: Callable[[State | ClientError], None],
    ) -> None:
        """Tell a target its policy; call `on_result` with what came of it."""
        self._pushes.begin(pod, policy, on_result)

    def drain(self, pod: Pod, incarnation: int, seconds: float) -> None:
        """Tell a worker to finish what runs, within `seconds`, and to end; once in each life."""
        self._drains.begin(pod, incarnation, seconds)

    async def forget(self, gone: Iterable[str]) -> None:
        """Close the connections to the pods with these uids."""
        uids = tuple(gone)
        self._drains.forget(uids)
        await self._clients.forget(uids)

    async def forget_service(self, service: ServiceKey) -> None:
        """End what is asked about a service that is gone."""
        task = self._polls.pop(service, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _poll(self, question: PollQuestion) -> PollAnswer:
        return PollAnswer(question, await self._clients.reports(question.pods))

    def _announce(self, service: ServiceKey, task: "asyncio.Future[PollAnswer]") -> None:
        if self._polls.get(service) is task:
            self._on_answer(service)
