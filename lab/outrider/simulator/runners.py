"""Runners of simulated passes: rows in, tokens or children out, and no time of their own.

They take the batches that the real runners take (`worker.engine.runner`). Leaves how long a pass
takes to `pass_times`.
"""

import numpy as np

from outrider.simulator.kv import SimulatedKV
from outrider.simulator.language import (
    Pair,
    RowArrays,
    draft_children,
    extend,
    target_tokens,
)
from outrider.worker.engine.runner import (
    NO_CHILDREN,
    NOTHING_SAMPLED,
    QueryBatch,
    SampleBatch,
    SampledTokens,
    TopChildren,
    spans,
)
from outrider.worker.kv.block_pool import Int32
from outrider.worker.model.rows import Rows

NO_LOGITS = np.empty((0, 0), np.float32)


class SimulatedTargetRunner:
    """Runner of a target."""

    def __init__(self, kv_cache: SimulatedKV, pair: Pair) -> None:
        self._kv, self._pair = kv_cache, pair

    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """Return for each part the token sampled after each row with output."""
        slots = _run(self._kv, step.rows, self._pair)
        tokens = target_tokens(self._kv.contexts, slots, self._pair)
        return [
            SampledTokens(tokens[begin:end], NO_LOGITS) if end > begin else NOTHING_SAMPLED
            for _, begin, end in spans(step.parts, [len(p.rows.outputs) for p in step.parts])
        ]


class SimulatedDraftRunner:
    """Runner of a draft."""

    def __init__(self, kv_cache: SimulatedKV, pair: Pair) -> None:
        self._kv, self._pair = kv_cache, pair

    def run(self, step: QueryBatch) -> list[TopChildren]:
        """Return the top children of each part."""
        slots, parts = _run(self._kv, step.rows, self._pair), step.parts
        branch = max((part.query.rules.branch for part in parts), default=0)
        tokens, logprobs = draft_children(self._kv.contexts, slots, self._pair, branch)
        return [
            TopChildren(tokens[begin:end], logprobs[begin:end]) if end > begin else NO_CHILDREN
            for _, begin, end in spans(parts, [len(p.query.positions) for p in parts])
        ]


def _run(kv_cache: SimulatedKV, rows: Rows, pair: Pair) -> Int32:
    """Write the contexts of all rows; return the slots of those with output."""
    extend(
        kv_cache.contexts,
        RowArrays(
            tokens=rows.tokens,
            positions=rows.positions,
            slots=rows.slots,
            sequence=rows.sequence,
            prefix=rows.prefix,
            ancestors=rows.ancestors,
            depth=rows.depth,
            tables=rows.tables,
        ),
        pair.passage_tokens,
    )
    outputs: Int32 = rows.slots[rows.outputs]
    return outputs
