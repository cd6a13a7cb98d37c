"""Who holds KV in a target: requests start when there is room, and give it back when it runs out.

Leaves the order of those that wait to `waiting`, blocks to `blocks`, what runs to
`target_scheduler`.
"""

import bisect
from dataclasses import dataclass, field

from outrider.worker.kv.block_table import blocks_for
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.stats import Stats
from outrider.worker.target.waiting_queue import WaitingQueue, priority_key


@dataclass(slots=True)
class Admission:
    """The requests of one target that have KV, and those that wait for it."""

    kv_cache: KVCache
    max_running: int
    logits_processors: LogitsProcessors
    row_selector: RowSelector
    stats: Stats
    waiting: WaitingQueue = field(default_factory=WaitingQueue)
    running: list[Sequence] = field(default_factory=list)
    """In order of seniority."""

    def admit(self, now: float) -> None:
        """Gives KV to those that wait, in order; but nobody waits for another one's grammar."""
        while len(self.running) < self.max_running:
            sequence = self.waiting.first(self.logits_processors.ready)
            if sequence is None:
                return
            room = sequence.length + self._ahead(sequence)
            if self.running and not self._fits(sequence, room):
                return
            block_table = self.kv_cache.admit(sequence.committed(), room)
            if block_table is None:
                return
            self.waiting.take(sequence)
            if not sequence.started:
                submit = sequence.submit
                sequence.logits_processor = self.logits_processors.start(
                    submit.sampling, submit.prompt, submit.grammar
                )
                self.stats.prompted(sequence.length, block_table.cached)
            sequence.admitted(block_table, now)
            bisect.insort(self.running, sequence, key=priority_key)

    def _fits(self, sequence: Sequence, room: int) -> bool:
        """Whether those that run keep a block each, or it would soon take what they go on with."""
        spare = self.kv_cache.available - len(self.running)
        if blocks_for(room) <= spare:
            return True  # whatever it may share with others
        return self.kv_cache.lacking(sequence.committed(), room) <= spare

    def has_room(self, sequence: Sequence) -> bool:
        """Makes room for a verify pass; the least senior give theirs back, itself at the last."""
        room = sequence.length + self._ahead(sequence)
        while sequence.block_table is not None and not self.kv_cache.extend(
            sequence.block_table, room
        ):
            self._put_back(self.running[-1])
        return sequence.block_table is not None

    def _put_back(self, sequence: Sequence) -> None:
        """Preempts a request: it computes its tokens again when there is room, to the same text."""
        assert sequence.block_table is not None
        self.running.remove(sequence)
        self.kv_cache.free(sequence.block_table)
        sequence.block_table, sequence.computed = None, 0
        self.waiting.put(sequence)
        self.stats.counters.preemptions += 1

    def _ahead(self, sequence: Sequence) -> int:
        """Slots that a pass may need behind the committed tokens."""
        return 1 + (self.row_selector.policy.max_rows if sequence.remaining > 1 else 0)
