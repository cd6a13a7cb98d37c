"""State machine of a pipelined target's leader: all slots, all rows, all decisions.

It takes requests, growth (through each sequence's mirror) and results, and emits records. Nothing
here waits: when the choice at a root is known the root moves, and what is in flight below it stays
so. Leaves the rows of a segment to `segment_builder`, walks to `walk`, clock and transport to
whoever calls it.
"""

import bisect
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from outrider.worker.errors import TooLong
from outrider.worker.kv.block_pool import BLOCK, BlockPool
from outrider.worker.messages import Finish, Submit
from outrider.worker.pipeline.records import End, Move, Record, Results, drop_killed
from outrider.worker.pipeline.segment_builder import (
    PromptShares,
    SegmentBuilder,
    SegmentShare,
    choose,
    first_come,
)
from outrider.worker.pipeline.segment_log import SegmentLog
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.sequence import (
    SUSPECTED,
    KVPlacement,
    PipelinedSequence,
    SentRow,
    TreeSlots,
)
from outrider.worker.pipeline.walk import (
    Rerooted,
    commit,
    record_of,
    row_fates,
    sampled_after,
    walk,
)
from outrider.worker.speculation.acceptance import Calibration
from outrider.worker.target.admission import WaitingQueue, priority_key
from outrider.worker.target.pass_record import PassRecord

NO_PROMPT = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class LeaderLimits:
    """Room of a leader."""

    max_running: int
    """Sequences that the stages hold at once."""
    tree_blocks: int = 2
    """Blocks of tree slots of each: its node rows on their way and back."""
    local_nodes: int = 256
    """Nodes of a mirror without a draft; the oldest so many stay when one is lost."""


class SegmentsInFlight:
    """Live rows by segment and sequence; a segment whose rows are all dead is only a header."""

    def __init__(self) -> None:
        self._live: dict[int, Counter[int]] = {}

    @property
    def busy(self) -> int:
        """Segments that hold live rows."""
        return sum(any(counts.values()) for counts in self._live.values())

    @property
    def all_back(self) -> bool:
        """True if none is under way, not even a header."""
        return not self._live

    @property
    def rows(self) -> int:
        """Live rows of all of them."""
        return sum(sum(counts.values()) for counts in self._live.values())

    def send(self, segment: int, rows: dict[int, int]) -> None:
        """Count a segment; `rows` by sequence."""
        self._live[segment] = Counter(rows)

    def receive(self, segment: int) -> None:
        """Forget a segment that is back."""
        self._live.pop(segment, None)

    def lose(self, segment: int, sequence: int) -> None:
        """Count the death of a row; it may be back already."""
        if segment in self._live:
            self._live[segment][sequence] -= 1

    def end(self, sequence: int) -> None:
        """Count the death of all rows of a sequence."""
        for counts in self._live.values():
            del counts[sequence]


class Leader:
    """Every request of one pipelined target."""

    def __init__(self, pool: BlockPool, plan: SegmentPlan, limits: LeaderLimits) -> None:
        self.pool = pool
        self.plan = plan
        """Limits of segments; may be replaced at any time."""
        self.share_prompts: PromptShares = first_come
        """Shares of prompts in segments; may be replaced at any time."""
        self.limits = limits
        self.average = Calibration()
        """Calibration over all requests: the prior of each new one."""
        self.outgoing: deque[Record] = deque()
        """Records for the first stage, in order; the caller takes them away."""
        self.running: list[PipelinedSequence] = []
        """Sequences that hold KV, by seniority."""
        self.waiting: WaitingQueue[PipelinedSequence] = WaitingQueue()
        self.segments = SegmentsInFlight()
        self.log: SegmentLog | None = None
        """Log that is told what becomes of rows."""
        self.preemptions = 0
        """Sequences that gave their KV back for others."""
        self._rows: dict[int, tuple[PipelinedSequence, SentRow]] = {}
        """Live rows that are to come back, by number."""
        self._sequence_numbers, self._segment_numbers = count(), count()
        self._row_numbers = count()

    def submit(self, submit: Submit) -> PipelinedSequence:
        """Take a request; its drafts grow the mirror of its sequence.

        Raises `TooLong` for one that would never fit, and keep all behind it waiting.
        """
        self.check_fits(submit)
        calibration = Calibration(self.average)
        nodes = self.limits.local_nodes
        sequence = PipelinedSequence.of(submit, calibration, nodes, self._detached)
        self.waiting.put(sequence)
        return sequence

    def receive(self, results: Results) -> list[PassRecord[PipelinedSequence]]:
        """Take the results of a segment; commit what they decide.

        Rows that are not known any more have died since, and are ignored.
        """
        self.segments.receive(results.segment)
        touched: dict[int, PipelinedSequence] = {}
        for at, number in enumerate(results.rows.tolist()):
            sequence, row = self._rows.pop(number, (None, None))
            if sequence is not None and row is not None:
                row.sampled = sampled_after(results, at)
                touched[sequence.kv.number] = sequence
        settled = (self._settle(sequence) for sequence in touched.values())
        return [record for record in settled if record is not None]

    def fill(self) -> bool:
        """Send the next segment, if there is something to send and room on the way."""
        self._admit()
        if self.segments.busy >= self.plan.in_flight:
            return False
        for sequence in tuple(self.running):
            self._make_room(sequence)
        shares = choose(self.running, self.plan, self.share_prompts)
        if not shares:
            return False
        self._send_segment(shares)
        return True

    def check_fits(self, submit: Submit) -> None:
        """Raise `TooLong` unless a request fits alone; the last token needs no KV."""
        prompt = len(submit.prompt)
        needed = prompt + submit.max_tokens - 1
        room = BLOCK * (self.pool.blocks - self.limits.tree_blocks)
        most = min(room, self.pool.longest)
        if needed > most:
            raise TooLong(
                "max_tokens",
                submit.max_tokens,
                f"with {prompt} of the prompt it needs KV of {needed} tokens; the stages have room "
                f"for {most}",
                most,
            )

    def restart(self, pool: BlockPool) -> list[PipelinedSequence]:
        """Forget all that was sent: the stages have lost it. Requests start again from their
        committed tokens, with `pool` for their KV.

        Returns those that are given up and do not start again.
        """
        self.outgoing.clear()
        self.segments = SegmentsInFlight()
        self._rows.clear()
        lost = tuple(self.running)
        self.running.clear()
        self.pool = pool
        given_up = []
        for sequence in lost:
            sequence.placed = None
            sequence.losses += 1
            if sequence.losses > SUSPECTED:
                given_up.append(sequence)
            else:
                self.waiting.put(sequence)
        return given_up

    def end(self, sequence: PipelinedSequence, path: Sequence[int] = ()) -> None:
        """Free all that a running sequence holds; what is surely computed may be found again.

        `path`: nodes that its last tokens match.
        """
        placed = sequence.kv
        if self.log is not None:
            self.log.decided(*row_fates(placed.rows, path))
        self._send(End(placed.number))
        self._forget(sequence, placed.live_rows())
        self.segments.end(placed.number)
        self.pool.publish(placed.block_table, sequence.committed(), placed.computed)
        self.pool.free(placed.block_table)
        self.pool.free(placed.slots.block_table)
        sequence.placed = None
        self.running.remove(sequence)

    def _send(self, record: Record) -> None:
        drop_killed(record, self.outgoing)
        self.outgoing.append(record)

    def _send_segment(self, shares: list[SegmentShare]) -> None:
        builder = SegmentBuilder(next(self._segment_numbers), self._row_numbers.__next__)
        for share in shares:
            builder.add(share)
        self._rows.update((row.number, (sequence, row)) for sequence, row in builder.sampled)
        self.segments.send(builder.number, {s.sequence.kv.number: s.count for s in shares})
        self._send(builder.build())

    def _settle(self, sequence: PipelinedSequence) -> PassRecord[PipelinedSequence] | None:
        """Commit as far as the choices are known."""
        done = walk(sequence)
        if not done.sampled:
            return None
        sequence.losses = 0
        record = record_of(sequence, done)
        found = (one.logprob for one in done.sampled)
        sequence.unsent_logprobs += [logprob for logprob in found if logprob is not None]
        if done.finish is None:
            self._move(sequence, commit(sequence, done))
            return record
        failed = done.finish is Finish.FAILED  # its KV may be why
        sequence.kv.computed = 0 if failed else sequence.length
        self.end(sequence, done.path)
        if len(record.tokens):
            sequence.mirror.commit(record.tokens)
            sequence.length += len(record.tokens)
        return record

    def _detached(self, sequence: PipelinedSequence) -> None:
        """Have the rows of nodes die that a sequence's mirror could not keep without its draft."""
        if sequence.placed is not None:
            kept = len(sequence.mirror)
            lost = [row for row in sequence.placed.rows[kept:] if row is not None]
            del sequence.placed.rows[kept:]
            self._move(sequence, Rerooted([], lost))

    def _move(self, sequence: PipelinedSequence, rerooted: Rerooted) -> None:
        """Tell the stages which rows are committed and which are dead, and take their slots."""
        promoted, dead = ([row.slot for row in rows] for rows in rerooted)
        if not promoted and not dead:
            return
        placed = sequence.kv
        first = placed.sent - len(promoted)
        positions = np.arange(first, placed.sent, dtype=np.int32)
        self._send(
            Move(
                sequence=placed.number,
                sources=placed.slots.in_pool(promoted),
                destinations=placed.block_table.writable(positions),
                freed=placed.slots.in_pool(dead),
            )
        )
        for slot in (*promoted, *dead):
            placed.slots.give_back(slot)
        self._forget(sequence, rerooted.dead)
        if self.log is not None:
            self.log.decided(rerooted.promoted, rerooted.dead)

    def _forget(self, sequence: PipelinedSequence, rows: Iterable[SentRow]) -> None:
        """Forget rows that have died: their results, if any, are ignored."""
        for row in rows:
            if self._rows.pop(row.number, None) is not None:
                self.segments.lose(row.segment, sequence.kv.number)

    def _admit(self) -> None:
        """Give KV to waiting requests, in order, while there is room; suspects run before others,
        each alone."""
        if any(sequence.suspected for sequence in self.running):
            return
        suspects = (sequence for sequence in self.waiting if sequence.suspected)
        suspect = next(suspects, None)
        if suspect is not None:
            self._admit_alone(suspect)
            return
        while self.waiting and len(self.running) < self.limits.max_running:
            if not self._start(next(iter(self.waiting))):
                return

    def _admit_alone(self, suspect: PipelinedSequence) -> None:
        """Give KV to a suspect once nothing of others is on its way."""
        for sequence in tuple(self.running):
            self._preempt(sequence)
        if self.segments.all_back:
            self._start(suspect)

    def _start(self, sequence: PipelinedSequence) -> bool:
        """Start a waiting sequence; False where there is no room."""
        placed = self._place(sequence)
        if placed is None:
            return False
        self.waiting.take(sequence)
        sequence.placed = placed
        bisect.insort(self.running, sequence, key=priority_key)
        self._send(sequence.begin())
        return True

    def _place(self, sequence: PipelinedSequence) -> KVPlacement | None:
        """Take the blocks of a sequence; None, and nothing taken, where there are too few."""
        tree = self.pool.admit(NO_PROMPT, BLOCK * self.limits.tree_blocks)
        if tree is None:
            return None
        table = self.pool.admit(sequence.committed(), sequence.length)
        if table is None:
            self.pool.free(tree)
            return None
        number, cached = next(self._sequence_numbers), table.cached
        return KVPlacement(number, table, TreeSlots(tree), sent=cached, computed=cached)

    def _make_room(self, sequence: PipelinedSequence) -> None:
        """Get blocks for the root and, if some are free, for all nodes; preempt for the root."""
        while sequence.placed is not None:
            table = sequence.placed.block_table
            if table.room >= sequence.length or self.pool.extend(table, sequence.length):
                deepest = int(sequence.mirror.depth.max(initial=0))
                wanted = sequence.length + min(deepest, max(0, sequence.remaining - 1))
                self.pool.extend(table, wanted)
                return
            self._preempt(self.running[-1])

    def _preempt(self, sequence: PipelinedSequence) -> None:
        """Free a request's KV; it is computed again when there is room, to the same text."""
        self.preemptions += 1
        self.end(sequence)
        self.waiting.put(sequence)
