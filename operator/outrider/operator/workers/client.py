"""Clients of the workers in their pods: they read states and push policies.

All pods of a service are asked at once, each with a timeout; a pod that does not answer is reported
as such, never as idle. Decides nothing.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Self

from outrider.client.aio import AsyncClient
from outrider.client.errors import ClientError
from outrider.contract.process import CONTROL_PORT
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State
from outrider.operator.observed.pods import Pod
from outrider.operator.workers.caller import Caller, Credentials
from outrider.operator.workers.poll import PodReport

TIMEOUT_SECONDS = 3.0
"""Longest wait for one answer of a worker."""
LARGEST_ANSWER = 256 << 10
"""Bytes of an answer that is taken: a worker's image is its service's author's choice, and what one
says becomes objects on the loop that serves all services."""


class WorkerClients:
    """Connections to the pods of all services. Use as `async with`."""

    def __init__(self, caller: Caller | None = None) -> None:
        """`caller` has the operator's certificate; None: workers want none."""
        self._caller = caller
        self._clients: dict[str, tuple[tuple[str, Credentials | None], AsyncClient]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(client.close() for _, client in self._clients.values()))
        self._clients.clear()

    async def reports(self, pods: Iterable[Pod]) -> Mapping[str, PodReport]:
        """Return the report of each pod that can be reached, by its uid."""
        asked = [pod for pod in pods if pod.running]
        answers = await asyncio.gather(*(self._report(pod) for pod in asked))
        return {pod.uid: answer for pod, answer in zip(asked, answers, strict=True)}

    async def push(self, pod: Pod, policy: PolicySettings) -> State:
        """Set a target's policy; return its state afterwards. Raises `ClientError`."""
        return await self._client(pod).set_policy(policy, timeout=TIMEOUT_SECONDS)

    async def drain(self, pod: Pod, seconds: float) -> int:
        """Tell a worker to finish what runs within `seconds`, and to end; return how much that is.
        Raises `ClientError`."""
        return await self._client(pod).drain(seconds, timeout=TIMEOUT_SECONDS)

    async def forget(self, gone: Iterable[str]) -> None:
        """Close the connections to the pods with these uids."""
        for uid in gone:
            known = self._clients.pop(uid, None)
            if known is not None:
                await known[1].close()

    async def _report(self, pod: Pod) -> PodReport:
        try:
            state = await self._client(pod).state(timeout=TIMEOUT_SECONDS)
        except (ClientError, ValueError) as error:  # what other versions say may be no state
            return PodReport(time.time(), None, str(error))
        return PodReport(time.time(), state)

    def _client(self, pod: Pod) -> AsyncClient:
        """Return the connection to a pod, a new one where its address or certificates are
        others."""
        address, shown = pod.at(CONTROL_PORT), self._shown_to(pod)
        known = self._clients.get(pod.uid)
        if known is not None and known[0] == (address, shown):
            return known[1]
        if shown is None:
            client = AsyncClient(address, largest_answer=LARGEST_ANSWER)
        else:
            client = _guarded(address, pod.identity, shown)
        self._clients[pod.uid] = ((address, shown), client)
        return client

    def _shown_to(self, pod: Pod) -> Credentials | None:
        """Return what a pod is called with; None: its worker knows no certificates."""
        if self._caller is None or not pod.identity:
            return None
        return self._caller.credentials()


def _guarded(address: str, identity: str, shown: Credentials) -> AsyncClient:
    """Return the connection to a worker whose certificate must hold its identity."""
    return AsyncClient(
        address,
        tls=shown.trusted,
        tls_name=identity,
        certificate=shown.own,
        largest_answer=LARGEST_ANSWER,
    )
