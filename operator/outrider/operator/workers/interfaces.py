"""Protocol of the workers that a pass asks and tells.

`BackgroundWorkers` implements it; tests bring small workers of their own.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State
from outrider.operator.cluster.kinds import ServiceKey
from outrider.operator.observed.pods import Pod
from outrider.operator.workers.poll import PollAnswer, PollQuestion


class PolledWorkers(Protocol):
    """The workers in their pods."""

    def is_asked(self, service: ServiceKey) -> bool:
        """Return True if a poll of a service's pods has no answer yet, or one not taken."""

    async def ask(self, service: ServiceKey, question: PollQuestion) -> None:
        """Ask a service's pods; wait a little for the answers."""

    def reports(self, service: ServiceKey) -> PollAnswer | None:
        """Return what a service's pods have answered since the last call."""

    def push(
        self,
        pod: Pod,
        policy: PolicySettings,
        on_result: Callable[[State | ClientError], None],
    ) -> None:
        """Tell a target its policy; `on_result` is called with its state afterwards, or why it
        does not have it."""

    def drain(self, pod: Pod, incarnation: int, seconds: float) -> None:
        """Tell a worker to finish what runs, within `seconds`, and to end; once in each life."""

    async def forget(self, gone: Iterable[str]) -> None:
        """Close the connections to the pods with these uids."""

    async def forget_service(self, service: ServiceKey) -> None:
        """End what is asked about a service that is gone."""
