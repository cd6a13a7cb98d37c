"""Admission to KV: the requests of a target that run, and the queue of those that wait for blocks.

Requests start while there is room and are preempted when it runs out. Leaves blocks to
`kv/block_pool`, batches to `target/scheduler`, and refusing requests to the server process.
"""

import bisect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.target.request import Request
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.stats import Stats

R = TypeVar("R", bound=Request)


def priority_key(request: Request) -> tuple[int, float, int]:
    """Return the sort key of the queue: by priority, highest first, then by arrival."""
    submit = request.submit
    return (-submit.priority, submit.arrived, submit.request)


@dataclass(slots=True)
class WaitingQueue(Generic[R]):
    """Requests without KV, by priority, then by arrival; preempted ones keep their place."""

    _queue: list[R] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[R]:
        return iter(self._queue)

    def first(self, ready: Callable[[str], bool]) -> R | None:
        """Return the first request whose grammar is `ready`; None if there is none."""
        return next((s for s in self._queue if s.started or ready(s.submit.grammar)), None)

    def put(self, request: R) -> None:
        """Insert a request, new or preempted, at its place."""
        bisect.insort(self._queue, request, key=priority_key)

    def take(self, request: R) -> None:
        """Remove a request that starts."""
        self._queue.remove(request)

    def remove(self, number: int) -> R | None:
        """Remove a request by its number; None if it does not wait."""
        for at, request in enumerate(self._queue):
            if request.submit.request == number:
                return self._queue.pop(at)
        return None

    def next_expiry(self) -> float:
        """Return the time at which the first request will have waited for too long."""
        return min((s.submit.start_by for s in self._queue if not s.started), default=math.inf)

    def pop_expired(self, now: float) -> list[R]:
        """Remove and return the requests that did not start within the time that they may wait."""
        late = [s for s in self._queue if not s.started and now >= s.submit.start_by]
        for request in late:
            self._queue.remove(request)
        return late


@dataclass(slots=True)
class Admission:
    """The requests of one target that have KV, and those that wait for it."""

    kv_cache: KVCache
    max_running: int
    logits_processors: LogitsProcessors
    row_selector: RowSelector
    stats: Stats
    waiting: WaitingQueue[Sequence] = field(default_factory=WaitingQueue)
    running: list[Sequence] = field(default_factory=list)
    """Sorted by `priority_key`."""
    kv_short: bool = False
    """True if the request that comes next did not start for want of blocks, when last tried."""

    def admit(self, now: float) -> None:
        """Give KV to waiting requests, in order; one whose grammar is being compiled is passed."""
        self.kv_short = False
        while len(self.running) < self.max_running:
            sequence = self.waiting.first(self.logits_processors.ready)
            if sequence is None:
                return
            room = self._room(sequence)
            self.kv_short = True
            if self.running and not self._fits(sequence, room):
                return
            block_table = self.kv_cache.admit(sequence.committed(), room, sequence.library_tokens)
            if block_table is None:
                return
            self.kv_short = False
            self.waiting.take(sequence)
            if not sequence.started:
                submit = sequence.submit
                sequence.logits_processor = self.logits_processors.start(
                    submit.sampling, submit.prompt, submit.grammar
                )
                self.stats.count_prompt(sequence.length, block_table.cached)
            sequence.admit(block_table, now)
            bisect.insort(self.running, sequence, key=priority_key)

    def make_room(self, sequence: Sequence) -> bool:
        """Extend a sequence's blocks for a verify pass; preempt the last in priority for it.

        False if the sequence itself was the last and is preempted, now or for another.
        """
        room = self._room(sequence)
        if sequence.block_table is not None and sequence.block_table.room >= room:
            return True
        while sequence.block_table is not None and not self.kv_cache.extend(
            sequence.block_table, room
        ):
            self._preempt(self.running[-1])
        return sequence.block_table is not None

    def _fits(self, sequence: Sequence, room: int) -> bool:
        """True if one free block is left for each running sequence: it will need one soon."""
        spare = self.kv_cache.available - len(self.running)
        if blocks_for(room) <= spare:
            return True  # whatever it may share with others
        return self.kv_cache.lacking(sequence.committed(), room, sequence.library_tokens) <= spare

    def _preempt(self, sequence: Sequence) -> None:
        """Free a request's KV; it is computed again when there is room, to the same text."""
        assert sequence.block_table is not None
        self.running.remove(sequence)
        self.kv_cache.free(sequence.block_table)
        sequence.block_table, sequence.computed = None, 0
        self.waiting.put(sequence)
        self.stats.counters.preemptions += 1

    def _room(self, sequence: Sequence) -> int:
        """Return the slots of the committed tokens, and of what a pass may add behind them."""
        node_rows = self.row_selector.policy.max_rows if sequence.remaining > 1 else 0
        return sequence.length + 1 + node_rows
