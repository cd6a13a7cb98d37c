"""Work queue of passes: one at a time for each key, and no event is missed.

A key that is enqueued during its pass gets one more pass after it. Every pass returns the seconds
until the next at the latest; one that raises `Retry`, or fails, is retried with backoff. Knows
nothing of Kubernetes.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BACKOFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds from a failed pass to the next, by failures in a row."""
JITTER = 0.2
"""Share by which such a time is longer at most: keys whose passes failed together are not retried
together for ever."""
MAX_AT_ONCE = 16
"""Passes at once, of different keys."""
MAX_LARGE_AT_ONCE = 2
"""Large passes among them: more would only wait for one another. Their requests are sent together,
so that two keep an API server busy."""
BURST_SECONDS = 0.1
"""Seconds from an event to its pass: events of one change come in bursts. Making a service took 13
passes without the wait and 7 with it (`bench.operator`, 20 and 100 services on a busy machine)."""
log = logging.getLogger(__name__)


class Retry(Exception):
    """A pass did what it could; the message says what is left to do."""

    def __init__(self, problem: str, after: float = 0.0, wait: float = math.inf) -> None:
        """`after`: seconds before which a pass is of no use, whatever happens meanwhile; `wait`:
        seconds until the next at the latest otherwise, which has more to do than what failed."""
        super().__init__(problem)
        self.after = after
        self.wait = wait


@dataclass(slots=True)
class _Entry:
    """State of one key."""

    pending: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    """In a row."""
    problem: str = ""
    """The last one that was logged with its traceback."""
    not_before: float = 0.0
    """Time of the next pass at the earliest."""
    enqueued_at: float = 0.0
    """When it was first enqueued since its last pass."""
    task: asyncio.Task[None] | None = None


class WorkQueue(Generic[Key]):
    """Runs `pass_(key)` whenever a key is enqueued, and again after the seconds that it returns
    (None: the key is gone)."""

    def __init__(
        self,
        pass_: Callable[[Key], Awaitable[float | None]],
        large: Callable[[Key], bool] = lambda _: False,
        on_wait: Callable[[float], object] = lambda _: None,
        prepare: Callable[[Key], Awaitable[None]] | None = None,
    ) -> None:
        """`large` returns True if a key's next pass is large; `on_wait` gets the seconds that each
        key was in the queue; `prepare` is what comes before a pass and may wait, because it takes
        no slot."""
        self._pass = pass_
        self._prepare = prepare
        self._large = large
        self._on_wait = on_wait
        self._entries: dict[Key, _Entry] = {}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._large_slots = asyncio.Semaphore(MAX_LARGE_AT_ONCE)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys whose passes run."""
        return tuple(self._entries)

    def enqueue(self, key: Key) -> None:
        """Ask for a pass of a key as soon as possible."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            entry.task = asyncio.create_task(self._run(key, entry), name=f"reconcile {key}")
        if not entry.pending.is_set():
            entry.enqueued_at = time.monotonic()
        entry.pending.set()

    async def close(self) -> None:
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()

    async def _run(self, key: Key, entry: _Entry) -> None:
        seconds: float | None = None
        while True:
            if await _wait(entry.pending, seconds):
                await asyncio.sleep(max(BURST_SECONDS, entry.not_before - time.monotonic()))
            await self._begin(key)
            async with self._slot(key, entry):
                if entry.pending.is_set():
                    self._on_wait(time.monotonic() - entry.enqueued_at)
                entry.pending.clear()
                seconds = await self._attempt(key, entry)
            if seconds is None and not entry.pending.is_set():
                del self._entries[key]
                return

    async def _begin(self, key: Key) -> None:
        """Prepare a pass; one that could not be prepared goes on with what it has."""
        if self._prepare is None:
            return
        try:
            await self._prepare(key)
        except Exception:  # the outermost loop
            log.exception("%s: its pass could not be prepared", key)

    @contextlib.asynccontextmanager
    async def _slot(self, key: Key, entry: _Entry) -> AsyncIterator[None]:
        """Hold a slot for a pass. A large pass first waits for a slot among large ones; after a
        failure it does not, because it may wait for answers that never come."""
        large = self._large(key) and not entry.failures
        among = self._large_slots if large else contextlib.nullcontext()
        async with among, self._slots:
            yield

    async def _attempt(self, key: Key, entry: _Entry) -> float | None:
        try:
            seconds = await self._pass(key)
        except Retry as again:
            seconds = max(again.after, min(again.wait, _next_try(entry, again.after)))
            log.warning("%s: %s; again in %.0f s", key, again, seconds)
        except Exception as error:  # the outermost loop: one service's failure must not stop others
            seconds = _next_try(entry)
            _log_failure(key, entry, error, seconds)
        else:
            entry.failures, entry.problem, entry.not_before = 0, "", 0.0
        return seconds


def backoff(failures: int, after: float) -> float:
    """Return seconds to the next try after so many failures before this one; at least `after`."""
    seconds = max(after, BACKOFF[min(failures, len(BACKOFF) - 1)])
    return seconds * (1 + JITTER * random.random())


def _next_try(entry: _Entry, after: float = 0.0) -> float:
    """Count a failure; return seconds until the next pass, which is not before `after`."""
    entry.not_before = time.monotonic() + after
    seconds = backoff(entry.failures, after)
    entry.failures += 1
    return seconds


def _log_failure(key: object, entry: _Entry, error: Exception, seconds: float) -> None:
    """Log a failure that nobody expected, with its traceback the first time."""
    problem, before = f"{type(error).__name__}: {error}", entry.problem
    entry.problem = problem
    trace = error if problem != before else None
    log.error("%s: failed, again in %.0f s: %s", key, seconds, problem, exc_info=trace)


async def _wait(pending: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most so long; return whether there was one."""
    try:
        async with asyncio.timeout(seconds):
            await pending.wait()
    except TimeoutError:
        return False
    return True
