"""Who is to be reconciled, and when: one pass at a time for each key, and none that is missed.

A wake during a pass asks for one more after it. Every pass says when it wants the next at the
latest; a pass that fails is tried again, later each time. Knows nothing of Kubernetes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BACKOFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds from a failed pass to the next, by failures in a row."""
MOST_AT_ONCE = 16
"""Passes at once, of different keys."""
GATHER_SECONDS = 0.1
"""From a wake to its pass: events of one change come in bursts. Making a service took 13 passes
without it and 7 with it (`bench.operator`, 20 and 100 services on a busy machine)."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seat:
    """One key's place."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    task: asyncio.Task[None] | None = None


class Wakes(Generic[Key]):
    """Runs `pass_(key)` whenever a key is woken, and again after the seconds that it returns (None:
    the key is gone)."""

    def __init__(self, pass_: Callable[[Key], Awaitable[float | None]]) -> None:
        self._pass = pass_
        self._seats: dict[Key, _Seat] = {}
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All that are looked after."""
        return tuple(self._seats)

    def wake(self, key: Key) -> None:
        """Asks for a pass as soon as may be."""
        seat = self._seats.get(key)
        if seat is None:
            seat = self._seats[key] = _Seat()
            seat.task = asyncio.create_task(self._keep(key, seat), name=f"reconcile {key}")
        seat.wake.set()

    async def close(self) -> None:
        """Ends all passes where they are."""
        tasks = [seat.task for seat in self._seats.values() if seat.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._seats.clear()

    async def _keep(self, key: Key, seat: _Seat) -> None:
        seconds: float | None = None
        while True:
            if await _woken(seat.wake, seconds):
                await asyncio.sleep(GATHER_SECONDS)
            async with self._places:
                seat.wake.clear()
                seconds = await self._attempt(key, seat)
            if seconds is None and not seat.wake.is_set():
                del self._seats[key]
                return

    async def _attempt(self, key: Key, seat: _Seat) -> float | None:
        try:
            seconds = await self._pass(key)
        except Exception:  # the outermost loop: one service's trouble is not another's
            seconds = BACKOFF[min(seat.failures, len(BACKOFF) - 1)]
            seat.failures += 1
            log.exception("reconciling %s failed, again in %.0f s", key, seconds)
        else:
            seat.failures = 0
        return seconds


async def _woken(wake: asyncio.Event, seconds: float | None) -> bool:
    """Waits for a wake, at most so long; whether there was one."""
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return False
    return True
