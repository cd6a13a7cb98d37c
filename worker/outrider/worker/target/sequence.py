"""Sequence: the state of one request in a target in one piece, its KV and its part of a pass.

Derived numbers are properties. Leaves text, tree and answer to `target/request`, every decision to
`target/scheduler`.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.jit.handle import handle
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.model.rows import CHUNK
from outrider.worker.sampling.logits_processor import LogitsProcessor
from outrider.worker.speculation.answer_index import NO_ANSWERS, AnswerIndex
from outrider.worker.speculation.prediction_source import Prediction
from outrider.worker.speculation.suffix_automaton import SuffixTables
from outrider.worker.target.pass_arrays import PassArrays, PassViews
from outrider.worker.target.request import Request
from outrider.worker.target.tree_pass import TreeHandle, TreeTables, read_prediction
from outrider.worker.tree.mirror_table import PREDICTION, SUFFIX


@dataclass(slots=True, eq=False)
class Sequence(Request):
    """One request of a target in one piece."""

    sources: int = 0
    """Local sources that have tables for it, a bit each."""
    searched: int = 0
    """Committed tokens when local sources last looked for draft tokens after them."""
    answers: AnswerIndex = NO_ANSWERS
    """Index of finished answers that the request may see, and to which its own is added."""
    logits_processor: LogitsProcessor | None = None
    """Its penalties, logit bias and grammar; None if it has none."""
    block_table: BlockTable | None = None
    """Its KV; None while it waits."""
    computed: int = 0
    """Committed tokens that have KV; `length - 1` after prefill."""
    library_tokens: int = 0
    """Tokens that the vendor's library computes, and no verify pass: the prompt's, or none."""
    suffix: SuffixTables = field(init=False)
    """Suffix tables of the request's text."""
    tree: TreeHandle = field(init=False)
    """Arrays of mirror, calibration and passes, for compiled code."""
    views: PassViews = field(init=False)
    """Views of the passes' arrays, for everything but compiled code."""

    def __post_init__(self) -> None:
        Request.__post_init__(self)
        own, average = self.calibration.curves, self.calibration.average
        arrays = PassArrays.empty(len(self.mirror.tables.nodes.parent))
        room = min(self.most_tokens, len(self.tokens))
        suffix = self.suffix = SuffixTables.empty(room if self.sources >> SUFFIX & 1 else 0)
        tables = TreeTables(
            self.mirror.tables,
            own,
            average,
            suffix,
            self.answers,
            Prediction.of(self.submit.prediction, self.prompt_length),
            self.ends,
            arrays,
        )
        self.tree = handle(tables)
        self.views = PassViews(arrays)

    @property
    def lag(self) -> int:
        """Committed tokens that its draft was not sent; all of them where it has no session."""
        return self.length if self.session is None else self.position - self.session.told

    @property
    def draft_lag(self) -> int:
        """Tokens by which what its draft has grown from is behind; 0 where it has no session."""
        return 0 if self.session is None else self.mirror.root_position - self.mirror.acknowledged

    @property
    def needs_prefill(self) -> bool:
        """True if tokens before the root lack KV; the root itself gets its own in a verify pass,
        unless it is the library's."""
        return self.computed < max(self.length - 1, self.library_tokens)

    @property
    def chunk(self) -> int:
        """Rows of the library's next chunk, up to a multiple of `CHUNK` or the last of its tokens;
        0: it has computed them all."""
        return min(CHUNK - self.computed % CHUNK, max(self.library_tokens - self.computed, 0))

    @property
    def needs_search(self) -> bool:
        """True if local sources have not looked for draft tokens after its root: a colocated
        draft's step is planned anew before each of the draft's passes."""
        return self.sources != 0 and self.searched < self.length

    @property
    def kv(self) -> BlockTable:
        """Block table of a sequence that is admitted."""
        assert self.block_table is not None
        return self.block_table

    def admit(self, block_table: BlockTable, now: float) -> None:
        """Take KV, some of which may hold tokens already."""
        self.block_table, self.computed = block_table, block_table.cached
        if not self.started:
            self.start(block_table.cached, now)
            if self.sources >> PREDICTION & 1:
                read_prediction(self.tree)
        self.committed_at = now

    def append(self, tokens: NDArray[np.int32], now: float) -> None:
        """Count tokens that the mirror has committed, and reset what is counted for each root."""
        if self.logits_processor is not None:
            self.logits_processor.commit(tokens)
        self.length += len(tokens)
        self.committed_at = now
        self.growths = 0
