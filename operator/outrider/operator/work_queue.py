"""Who is to be reconciled, and when: one pass at a time for each key, and none that is missed.

A wake during a pass asks for one more after it. Every pass says when it wants the next at the
latest; a pass that fails is tried again, later each time. Knows nothing of Kubernetes.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BACKOFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds from a failed pass to the next, by failures in a row."""
MAX_AT_ONCE = 16
"""Passes at once, of different keys."""
MAX_LARGE_AT_ONCE = 2
"""Of these, large ones: more would only wait for one another, each as long as all of them. Their
requests go out together, so that two keep an API server busy."""
GATHER_SECONDS = 0.1
"""From a wake to its pass: events of one change come in bursts. Making a service took 13 passes
without it and 7 with it (`bench.operator`, 20 and 100 services on a busy machine)."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seat:
    """One key's place."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    woken: float = 0.0
    """When it was woken first since its last pass."""
    task: asyncio.Task[None] | None = None


class Wakes(Generic[Key]):
    """Runs `pass_(key)` whenever a key is woken, and again after the seconds that it returns (None:
    the key is gone)."""

    def __init__(
        self,
        pass_: Callable[[Key], Awaitable[float | None]],
        large: Callable[[Key], bool] = lambda _: False,
        waited: Callable[[float], object] = lambda _: None,
    ) -> None:
        """`large` says whether a key's next pass is one; `waited` hears the seconds from each wake
        to its pass."""
        self._pass = pass_
        self._large = large
        self._waited = waited
        self._seats: dict[Key, _Seat] = {}
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._large_places = asyncio.Semaphore(MAX_LARGE_AT_ONCE)

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
        if not seat.wake.is_set():
            seat.woken = time.monotonic()
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
            async with self._place(key, seat):
                if seat.wake.is_set():
                    self._waited(time.monotonic() - seat.woken)
                seat.wake.clear()
                seconds = await self._attempt(key, seat)
            if seconds is None and not seat.wake.is_set():
                del self._seats[key]
                return

    @contextlib.asynccontextmanager
    async def _place(self, key: Key, seat: _Seat) -> AsyncIterator[None]:
        """A large pass waits for its turn among its like before it takes anybody's place; one that
        failed may only be waiting for answers that never come, and holds up none of them again."""
        large = self._large(key) and not seat.failures
        among = self._large_places if large else contextlib.nullcontext()
        async with among, self._places:
            yield

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
