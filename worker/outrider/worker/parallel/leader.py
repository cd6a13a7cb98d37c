"""Rank 0's model: runs its own share of each pass, and the other ranks run theirs with it.

To schedulers and runners it is a model like any other. The block pool is kept here alone: the other
ranks hold the same blocks of their own heads, and move KV as the leader's messages say.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.draft_scores import ScoredPart
from outrider.worker.errors import GroupLost
from outrider.worker.kv.kv_cache import KVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.step_message import (
    ChildSpec,
    Move,
    SampleSpec,
    StepMessage,
    Wanted,
    encode,
)
from outrider.worker.parallel.vocab_parallel import NOTHING_SCORED, ChildScores, sample
from outrider.worker.parallel.watchdog import Watchdog

if TYPE_CHECKING:
    from outrider.worker.parallel.collectives import ProcessGroup

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]
T = TypeVar("T")


class RankPart(Protocol):
    """This rank's part of a model."""

    @property
    def kv_cache(self) -> KVCache: ...
    @property
    def row_capacity(self) -> int: ...
    def close(self) -> None: ...


NO_TOKENS = np.empty(0, np.int32)


class RankLeader:
    """Sends each step to the other ranks, and runs this rank's share of it."""

    def __init__(
        self,
        config: ModelConfig,
        own: RankPart,
        group: "ProcessGroup",
        watchdog: Watchdog,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`config` is the whole model's, `own` this rank's share; `ended` is called by `close`."""
        self.config = config
        self.watchdog = watchdog
        self.row_capacity = own.row_capacity
        """Most rows of a pass."""
        self._share = own
        self._group = group
        self._ended = ended
        self._moves: list[Move] = []
        own.kv_cache.moved = lambda *slots: self._moves.append(slots)

    def lead(
        self, rows: Rows, wanted: Wanted, work: Callable[[], T], hidden: Floats | None = None
    ) -> T:
        """Run a pass on all ranks; `work` runs this one's part of it.

        `hidden` states are those that a pipeline stage behind the first begins with. Raises
        `GroupLost` when not all ranks have run the pass: no other can follow it.
        """
        if not 0 < rows.count <= self.row_capacity:
            raise ValueError(f"{rows.count} rows: a pass takes 1 to {self.row_capacity}")
        moves, self._moves = self._moves, []
        with self.watchdog:
            try:
                self._group.broadcast(encode(StepMessage(moves, rows, wanted, hidden)))
                return work()
            except GroupLost:
                raise
            except Exception as error:
                raise GroupLost(f"the leading rank failed in a pass: {error!r}") from error

    def close(self) -> None:
        """End the other ranks; the model cannot run any more."""
        self._group.broadcast(encode(StepMessage([], None)))
        self._share.close()
        self.watchdog.close()
        self._ended()


class LeadingModel(RankLeader):
    """A whole model, of which this process computes the first share."""

    def __init__(
        self,
        config: ModelConfig,
        own: Llama,
        group: "ProcessGroup",
        watchdog: Watchdog,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`config` is the whole model's, `own` this rank's share; `ended` is called by `close`."""
        super().__init__(config, own, group, watchdog, ended)
        self._own = own
        self.path, self.kv_cache = own.path, own.kv_cache
        self._logits = np.empty((0, config.outputs), np.float32)
        self._child_scores = ChildScores(config.output_ids, group.rank, own.config.outputs)

    def forward(self, rows: Rows) -> Floats:
        """Return logits [len(rows.outputs), config.outputs]; a view, valid until the next call.

        Raises `GroupLost` when not all ranks have run the pass: no other can follow it.
        """
        return self._run(rows, None, self._side_by_side)

    def forward_layers(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Run one stage's layers on all ranks, as `Llama.forward_layers`; raises as `forward`."""
        whole = self._side_by_side if self._own.layers.has_head else _unchanged
        return self._run(rows, None, whole, hidden)

    def sample(self, rows: Rows, spec: SampleSpec, hidden: Floats | None = None) -> Int32:
        """Sample the token after each row with output, -1 where no logit is a number: [outputs].

        Equal to what a `Sampler` takes from the logits of `forward`. Raises as that does.
        """
        if len(rows.outputs) == 0:
            self.forward_layers(rows, hidden)
            return NO_TOKENS

        def together(own: Floats) -> Int32 | None:
            return sample(self._group, own, self._own.config.outputs, rows, spec)

        tokens = self._run(rows, spec, together, hidden)
        assert tokens is not None  # this is the leader
        return tokens

    def score(self, rows: Rows, spec: ChildSpec) -> list[ScoredPart]:
        """Score the children of each row with output, on each rank those among its own ids.

        `outrider.kernels.sampling.draft_scores.merged` merges the parts. Raises as
        `forward` does.
        """
        if len(rows.outputs) == 0:
            self.forward(rows)
            return NOTHING_SCORED

        parts = self._run(
            rows, spec, lambda own: self._child_scores.score(self._group, own, rows, spec)
        )
        assert parts is not None  # this is the leader
        return parts

    def _run(
        self,
        rows: Rows,
        wanted: Wanted,
        finish: Callable[[Floats], T],
        hidden: Floats | None = None,
    ) -> T:
        """Run a pass on all ranks; `finish` takes the logits of this one, or hidden states."""

        def work() -> T:
            return finish(self._group.run(self._own, rows, hidden))

        return self.lead(rows, wanted, work, hidden)

    def _side_by_side(self, own: Floats) -> Floats:
        """Gather the logits of all ranks side by side; `own` [outputs, padded]."""
        count = len(own)
        if count == 0:
            return self._logits[:0]
        parts = self._group.gather(own)
        assert parts is not None
        if len(self._logits) < count:
            self._logits = np.empty((self.row_capacity, self.config.outputs), np.float32)
        width = self._own.config.outputs
        for rank, part in enumerate(parts):
            columns = self._logits[:count, rank * width : (rank + 1) * width]
            columns[:] = part[:, : columns.shape[1]]
        return self._logits[:count]


def _unchanged(hidden: Floats) -> Floats:
    """Return hidden states as they are: every rank has all of them."""
    return hidden
