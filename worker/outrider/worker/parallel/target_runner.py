"""A target's runner over several ranks: they draw among themselves wherever they can.

A pass whose rows all want a token of an unfiltered distribution, greedy or not, sends no logits;
any other gathers all of them, and is drawn as without ranks. The tokens are the same.
"""

import numpy as np

from outrider.worker.engine.runner import (
    SampleBatch,
    SampledTokens,
    SamplePart,
    TargetRunner,
    spans,
)
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.step_message import SAMPLE_FIELDS, SampleSpec

NO_LOGITS = np.empty((0, 0), np.float32)


class ParallelTargetRunner(TargetRunner):
    """A target's ranks and dice."""

    def __init__(self, model: LeadingModel, vocabulary: int) -> None:
        super().__init__(model, vocabulary)
        self._leading = model
        self._vocabulary = vocabulary

    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """For each part the token drawn after each row with output."""
        if not all(unfiltered(part) for part in step.parts if len(part.rows.outputs)):
            return super().run(step)
        draws = SampleSpec(self._vocabulary, draws_of(step))
        tokens = self._leading.draw(step.rows, draws)
        rows = [part.rows for part in step.parts]
        return [
            SampledTokens(tokens[begin:end], NO_LOGITS) for _, begin, end in spans(step.parts, rows)
        ]


def unfiltered(part: SamplePart) -> bool:
    """Whether a token can be drawn from parts of a row of logits, which nobody wants to see."""
    if part.logits_processor is not None or part.logits_wanted:
        return False
    own = part.sampling
    return own.greedy or (own.top_k == 0 and own.top_p >= 1 and own.min_p == 0)


def draws_of(step: SampleBatch) -> np.ndarray:
    """[outputs] of DRAW, in the order of the parts' outputs."""
    each = [
        (part.sampling.seed, part.sampling.temperature, part.sampling.choice)
        for part in step.parts
        for _ in range(len(part.rows.outputs))
    ]
    return np.array(each, SAMPLE_FIELDS)
