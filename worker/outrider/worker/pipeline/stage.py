"""State machine of one stage: handles records in the order in which they came.

It owns no policy: rows, slots and deaths are the leader's. Leaves the layers and their KV to an
`Executor`, sampling to `stage_sampler`, clock and transport to whoever calls it. Slots are the
leader's, so the block pool of an executor's KV cache gives out nothing.
"""

from collections import deque
from typing import Protocol

import numpy as np

from outrider.contract.settings import MAX_RUNNING
from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import (
    Begin,
    End,
    Floats,
    Ints,
    Move,
    Record,
    Results,
    Segment,
    drop_killed,
)
from outrider.worker.pipeline.stage_sampler import (
    RankSampler,
    StageSampler,
    no_results,
    sampled_results,
    samplings,
)
from outrider.worker.pipeline.stage_sequence import StageSequence, by_sequence, pass_rows


class Executor(Protocol):
    """A stage's layers and their KV."""

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Run the layers and write the rows' KV; n rows.

        `hidden` float32[n, hidden size] of the stage before, None for the first stage, which
        embeds. Returns float32[n, hidden size]; the last stage returns logits
        float32[len(rows.outputs), >= vocabulary] instead. Valid until the next call.
        """

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy KV between slots over all layers, as if all were read before any is written."""


class Stage:
    """One stage; a `sampler` makes it the last one."""

    def __init__(
        self,
        executor: Executor,
        sampler: StageSampler | None = None,
        ranks: RankSampler | None = None,
    ) -> None:
        """`ranks`: those that the executor runs on, where they can sample among themselves."""
        self._executor = executor
        self._sampler = sampler
        self._ranks = ranks
        self._sequences: dict[int, StageSequence] = {}
        self.incoming: deque[Record] = deque()
        """Records that wait, the oldest first."""
        self.outgoing: deque[Record | Results] = deque()
        """Records for the next stage, or results for the leader; the caller takes them away."""

    @property
    def sequences(self) -> int:
        """Sequences that have begun and not ended."""
        return len(self._sequences)

    @property
    def waits(self) -> bool:
        """True if rows are set aside until `answer_aside` finds their grammars compiled."""
        return self._sampler is not None and self._sampler.waits

    def receive(self, record: Record) -> None:
        """Queue a record; drop what it kills of all that has not left yet."""
        drop_killed(record, self.incoming, self.outgoing)
        self.incoming.append(record)

    def step(self) -> bool:
        """Handle the oldest record, after `answer_aside`; False if none waits.

        Raises `ProtocolViolation` for a record that a leader would not send.
        """
        self.answer_aside()
        if not self.incoming:
            return False
        record = self.incoming.popleft()
        match record:
            case Segment():
                self.outgoing.append(self._run(record))
                return True
            case Begin():
                self._begin(record)
            case Move():
                self._move(record)
            case End():
                self._end(record)
        if self._sampler is None:
            self.outgoing.append(record)
        return True

    def answer_aside(self) -> None:
        """Answer rows that were set aside, where their grammars are compiled."""
        if self._sampler is not None and self._sampler.waits:
            self.outgoing += self._sampler.sample_aside()

    def _begin(self, begin: Begin) -> None:
        if begin.sequence in self._sequences:
            raise ProtocolViolation(f"sequence {begin.sequence} begins a second time")
        if self.sequences >= MAX_RUNNING:
            raise ProtocolViolation(
                f"sequence {begin.sequence} begins beside {self.sequences}; {MAX_RUNNING} may run"
            )
        self._sequences[begin.sequence] = StageSequence(begin)
        if self._sampler is not None:
            self._sampler.begin(begin)

    def _run(self, segment: Segment) -> Segment | Results:
        """Compute a segment; one without rows goes on as it is."""
        if segment.count == 0:
            return segment if self._sampler is None else no_results(segment.number)
        parts = list(by_sequence(segment, self._sequences))
        rows = pass_rows(parts, wants_logits=self._sampler is not None)
        if self._sampler is None:
            return segment.with_hidden(self._executor.compute(rows, segment.hidden).copy())
        for part in parts:
            tokens = part.sequence.answered(part.rows, part.placed)
            self._sampler.commit(part.sequence.begin.sequence, tokens)
        if self._ranks is not None and self._sampler.samples_on_ranks(parts):
            tokens = self._ranks.sample(rows, segment.hidden, samplings(parts))
            return sampled_results(segment.number, parts, tokens)
        computed = self._executor.compute(rows, segment.hidden)
        return self._sampler.sample(segment.number, parts, computed)

    def _move(self, move: Move) -> None:
        sequence = self._sequence(move.sequence)
        tokens = sequence.move(move)
        if len(move.sources):  # even of rows that never came: the others may be a prefix soon
            self._executor.move(move.sources, move.destinations)
        if self._sampler is not None:
            self._sampler.commit(move.sequence, tokens)

    def _end(self, end: End) -> None:
        self._sequence(end.sequence)
        del self._sequences[end.sequence]
        if self._sampler is not None:
            self._sampler.end(end.sequence)

    def _sequence(self, number: int) -> StageSequence:
        """Return a sequence; raises `ProtocolViolation` where it has not begun or has ended."""
        if number not in self._sequences:
            raise ProtocolViolation(f"sequence {number} is not known")
        return self._sequences[number]


class LayerModel(Protocol):
    """The layers of one stage, or all of them: `model.llama.Llama`, alone or over ranks."""

    @property
    def kv_cache(self) -> HostKVCache: ...
    @property
    def path(self) -> str: ...
    def forward_layers(self, rows: Rows, hidden: Floats | None) -> Floats: ...
    def close(self) -> None: ...


class LayerExecutor:
    """A stage's layers and their KV."""

    def __init__(self, model: LayerModel) -> None:
        self.model = model

    @property
    def kv_cache(self) -> HostKVCache:
        return self.model.kv_cache

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Run the layers and write the rows' KV; see `Executor`."""
        return self.model.forward_layers(rows, hidden)

    def move(self, sources: Ints, destinations: Ints) -> None:
        """Copy KV between slots over all layers, as if all were read before any is written."""
        self.kv_cache.move_slots(np.array(sources, np.int32), np.array(destinations, np.int32))

    def close(self) -> None:
        """End the threads and processes of the model."""
        self.model.close()
