"""A target's runner over ranks with devices: they draw among themselves, filters included.

Only what a shaper changes, and what somebody wants to see, is gathered as logits; the rest is as of
one device (`target`), and so are the tokens.
"""

import numpy as np

from outrider.worker.engine.runner import (
    NOTHING_SAMPLED,
    SampleBatch,
    SampledTokens,
    SamplePart,
    TargetRunner,
    spans,
)
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import DeviceSampled, LeadingGpuModel, records
from outrider.worker.gpu.target_runner import GREEDY, GpuTargetRunner, drawing_of, variant_of
from outrider.worker.parallel.step_message import DeviceSampleSpec

NO_LOGITS = np.empty((0, 0), np.float32)


class ParallelGpuTargetRunner(TargetRunner):
    """A target's ranks and dice."""

    def __init__(self, model: LeadingGpuModel, vocabulary: int) -> None:
        super().__init__(model, vocabulary)
        self._leading = model
        self._vocabulary = vocabulary

    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """For each part the token drawn after each row with output."""
        parts = list(spans(step.parts, [part.rows for part in step.parts]))
        if len(step.rows.outputs) == 0:
            self._leading.forward(step.rows)
            return [NOTHING_SAMPLED] * len(parts)
        found = self._leading.draw(step.rows, self._wanted(step))
        return [self._drawn(part, found, begin, end) for part, begin, end in parts]

    def _wanted(self, step: SampleBatch) -> DeviceSampleSpec:
        samplings = [GREEDY if part.logits_processor else part.sampling for part in step.parts]
        logits = any(seen(part) for part in step.parts if len(part.rows.outputs))
        each = records(drawing_of(step, samplings))
        return DeviceSampleSpec(self._vocabulary, variant_of(samplings).value, logits, each)

    def _drawn(self, part: SamplePart, found: DeviceSampled, begin: int, end: int) -> SampledTokens:
        if end == begin:
            return NOTHING_SAMPLED
        if not seen(part):
            return SampledTokens(found.tokens[begin:end], NO_LOGITS)
        logits = found.logits[begin:end, : self._vocabulary]
        return (
            self._draw(part, logits)
            if part.logits_processor
            else SampledTokens(found.tokens[begin:end], logits)
        )


def runner_of(model: GpuModel | LeadingGpuModel, vocabulary: int) -> TargetRunner:
    """Of a target on one device or on several."""
    if isinstance(model, GpuModel):
        return GpuTargetRunner(model, vocabulary)
    return ParallelGpuTargetRunner(model, vocabulary)


def seen(part: SamplePart) -> bool:
    """Whether somebody needs the part's logits on the host."""
    return part.logits_processor is not None or part.logits_wanted
