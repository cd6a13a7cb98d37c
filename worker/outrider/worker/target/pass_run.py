"""Runs of passes: steps in which one sequence decodes plainly, pass after pass, in compiled code.

Leaves the passes themselves to `target/pass_loop`, and what follows from them to the scheduler,
which books each as if it had been a step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.collectives import ALONE
from outrider.kernels.jit.handle import Handle, handle
from outrider.worker.engine.runner import SampledTokens, TargetRunner
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.target.batch import TargetBatch, TargetPart
from outrider.worker.target.pass_loop import (
    LoopFunctions,
    LoopTables,
    PassLog,
    Reason,
    Stops,
    decode,
)
from outrider.worker.target.selection import NO_NODES
from outrider.worker.target.sequence import Sequence
from outrider.worker.target.tree_pass import Hunt


class Pass(NamedTuple):
    """One pass of a run."""

    began: float
    ended: float
    token: int
    """That it committed; -1: none."""


@dataclass(frozen=True, slots=True)
class RunOutput:
    """What a run did."""

    passes: list[Pass]
    reason: Reason
    """For which it returned."""

    @property
    def seconds(self) -> float:
        """From the beginning of the first pass to the end of the last."""
        return self.passes[-1].ended - self.passes[0].began

    @property
    def pass_seconds(self) -> float:
        """Seconds of all passes, without what lies between them."""
        return sum([one.ended - one.began for one in self.passes])


@dataclass(frozen=True, slots=True)
class PassRun:
    """A step of one sequence that decodes plainly."""

    part: TargetPart
    """Its root's row in the first pass."""
    hunt: Hunt
    """What may end it before."""
    block_tokens: int
    """Committed tokens at which its block table wants something."""
    started: float
    passes: int
    """At most; `MOST_PASSES` or fewer."""

    @classmethod
    def of(
        cls, sequence: Sequence, hunt: Hunt, max_rows: int, now: float, passes: int
    ) -> Self | None:
        """Return a run of a sequence; None if its next pass has to be a step of its own.

        `max_rows`: node rows that a step makes room for.
        """
        if not decodes_plainly(sequence) or (len(sequence.mirror) and not hunt.sources):
            return None
        block_tokens = tokens_until_block(sequence, max_rows)
        if sequence.length >= block_tokens:
            return None
        return cls(TargetPart.verify(sequence, NO_NODES), hunt, block_tokens, now, passes)

    @property
    def parts(self) -> tuple[TargetPart]:
        """The sequence's, as of a batch."""
        return (self.part,)


def tokens_until_block(sequence: Sequence, max_rows: int) -> int:
    """Return the committed tokens at which a sequence's block table wants something: a block more
    for a pass of so many node rows, or to publish one."""
    kv = sequence.kv
    tokens = kv.room - max_rows
    return min(tokens, (kv.published + 1) * BLOCK + 1) if kv.findable else tokens


def decodes_plainly(sequence: Sequence) -> bool:
    """True if the sequence has no draft, and its passes need nothing but its tokens."""
    return sequence.session is None and needs_tokens_alone(sequence)


def needs_tokens_alone(sequence: Sequence) -> bool:
    """True if the sequence's passes need nothing but its tokens, whatever nodes its tree has."""
    return (
        sequence.generated > 0
        and not sequence.needs_prefill
        and sequence.logits_processor is None
        and sequence.submit.logprobs is None
    )


class LoopModel(Protocol):
    """A model on one CPU rank, as `model.llama.Llama`, for compiled code."""

    @property
    def crew(self) -> Any: ...
    @property
    def compiled(self) -> Any: ...


class RunRunner:
    """Runs steps of a target on one CPU rank: passes of any batch, and runs of passes."""

    def __init__(
        self, runner: TargetRunner, model: LoopModel, vocabulary: int, arrived: NDArray[np.int64]
    ) -> None:
        """`arrived` [1]: not 0 while there may be a message for the engine."""
        self.runner = runner
        self._model = model
        self.vocabulary = vocabulary
        self._arrived = arrived
        self._log = PassLog.empty()
        self._functions: LoopFunctions | None = None
        """Made with the first sequence; they fit all."""
        self._known: tuple[Sequence, Handle[LoopTables]] | None = None
        """The tables of the last sequence."""

    def run(self, step: TargetBatch | PassRun) -> list[SampledTokens] | RunOutput:
        """Run one step."""
        if isinstance(step, PassRun):
            return self._run(step)
        return self.runner.run(step)

    def _run(self, step: PassRun) -> RunOutput:
        sequence = step.part.sequence
        stops = Stops(
            self.vocabulary,
            sequence.most_tokens,
            step.block_tokens,
            sequence.sent_at,
            sequence.submit.stream_seconds,
            step.passes,
        )
        tables = self._tables(sequence, step.hunt)
        count, reason = decode(tables, sequence.kv.table, stops, step.hunt)
        return RunOutput(list(self._logged(count)), Reason(reason))

    def _logged(self, count: int) -> Iterator[Pass]:
        columns = (column[:count].tolist() for column in self._log)
        return map(Pass, *columns)

    def _tables(self, sequence: Sequence, hunt: Hunt) -> Handle[LoopTables]:
        if self._known is None or self._known[0] is not sequence:
            sampling = self.runner.sampler.compiled(sequence.submit.sampling)
            model, crew = self._model.compiled, self._model.crew
            if self._functions is None:
                self._functions = LoopFunctions.of(sequence.tree, hunt)
            tables = LoopTables(
                sequence.tree,
                crew,
                model,
                ALONE,
                sampling,
                self._arrived,
                self._log,
                self._functions,
            )
            self._known = sequence, handle(tables)
        return self._known[1]
