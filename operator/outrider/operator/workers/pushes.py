"""Pushes of policies, one at a time for each target, in tasks of their own.

A target that hangs holds up nobody else. Leaves the call to a client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from outrider.client.errors import ClientError
from outrider.contract.settings import PolicySettings
from outrider.contract.state import State
from outrider.operator.observed.pods import Pod

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Push:
    pod: Pod
    policy: PolicySettings
    on_result: Callable[[State | ClientError], None]


class PolicyPushes:
    """The pushes that run, and for each target the newest policy that is to follow."""

    def __init__(self, push: Callable[[Pod, PolicySettings], Awaitable[State]]) -> None:
        """`push` raises `ClientError`."""
        self._push = push
        self._running: dict[str, _Push] = {}
        """By the targets' uids."""
        self._next: dict[str, _Push] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self,
        pod: Pod,
        policy: PolicySettings,
        on_result: Callable[[State | ClientError], None],
    ) -> None:
        """Push a policy to a target, after the one that it is being told; call `on_result` with
        what came of it."""
        running = self._running.get(pod.uid)
        if running is not None and running.policy == policy:
            return
        self._next[pod.uid] = _Push(pod, policy, on_result)
        if running is None:
            task = asyncio.ensure_future(self._run(pod.uid))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all pushes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, uid: str) -> None:
        while (push := self._next.pop(uid, None)) is not None:
            self._running[uid] = push
            try:
                push.on_result(await self._push(push.pod, push.policy))
            except ClientError as error:
                push.on_result(error)
            except Exception:  # the outermost loop of this task
                log.exception("%s: policy %d", push.pod.name, push.policy.version)
            finally:
                del self._running[uid]
