"""Tells each target which drafts serve now, whenever that changes.

Level-triggered: a change only wakes it, and what it pushes is read from the supervisors then.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NoReturn

from outrider.cli.progress import Reporter
from outrider.cli.supervisor import Supervisor
from outrider.client.errors import ClientError
from outrider.client.state import Link, LinkState
from outrider.operator.plan import linked

PUSH_TIMEOUT = 5.0
AGAIN_SECONDS = 0.5
POLL_SECONDS = 0.05


class Membership:
    """The drafts of a plan, as its targets are told of them."""

    def __init__(self, supervisors: Sequence[Supervisor], progress: Reporter) -> None:
        self._supervisors = supervisors
        self._progress = progress
        self._wake = asyncio.Event()
        self._version = 0

    def changed(self) -> None:
        """Some worker's health or address changed."""
        self._wake.set()

    async def keep(self) -> NoReturn:
        """Pushes after each change; ends only by cancellation."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._push():
                await asyncio.sleep(AGAIN_SECONDS)
                self._wake.set()

    async def _push(self) -> bool:
        """Tells every target that serves; False if one could not be told."""
        self._version += 1
        targets = [s for s in self._supervisors if s.worker.links and s.serving]
        return all([await self._tell(target) for target in targets])

    async def _tell(self, target: Supervisor) -> bool:
        policy = linked(target.worker, self._version, self._drafts(target))
        async with target.client(PUSH_TIMEOUT) as client:
            try:
                await client.set_policy(policy)
            except ClientError as error:
                if not target.serving:  # it died meanwhile; its next life wakes us again
                    return True
                self._progress.note(f"{target.worker.name} did not take its policy: {error}")
                return False
        return True

    def _drafts(self, target: Supervisor) -> tuple[str, ...]:
        """Addresses of the drafts of this target that serve now."""
        names = target.worker.links
        return tuple(s.address for s in self._supervisors if s.worker.name in names and s.serving)

    async def linked(self, target: Supervisor, seconds: float) -> tuple[Link, ...]:
        """Waits until each draft of a target is linked or refused, at most `seconds`; the links."""
        deadline = time.monotonic() + seconds
        links: tuple[Link, ...] = ()
        async with target.client(seconds) as client:
            while time.monotonic() < deadline:
                links = (await client.state()).links
                settled = [
                    link for link in links if link.state in (LinkState.UP, LinkState.REFUSED)
                ]
                if len(settled) >= len(target.worker.links):
                    break
                await asyncio.sleep(POLL_SECONDS)
        return links
