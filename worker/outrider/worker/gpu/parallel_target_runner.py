"""Target runner over ranks with devices: they sample among themselves, filters included.

Only logits that a logits processor changes, and those that are wanted, are gathered; the rest is
as on one device (`target_runner`), and so are the tokens.
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
from outrider.worker.gpu.target_runner import GREEDY, GpuTargetRunner, sampling_columns, variant_of
from outrider.worker.parallel.step_message import DeviceSampleSpec

NO_LOGITS = np.empty((0, 0), np.float32)


class ParallelGpuTargetRunner(TargetRunner):
    """Runs a target's passes over its ranks, and samples there."""

    def __init__(self, model: LeadingGpuModel, vocabulary: int) -> None:
        super().__init__(model, vocabulary)
        self._leading = model
        self._vocabulary = vocabulary

    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """Return for each part the token sampled after each row with output."""
        parts = list(spans(step.parts, [len(part.rows.outputs) for part in step.parts]))
        if len(step.rows.outputs) == 0:
            self._leading.forward(step.rows)
            return [NOTHING_SAMPLED] * len(parts)
        found = self._leading.sample(step.rows, self._wanted(step))
        return [self._sampled(part, found, begin, end) for part, begin, end in parts]

    def _wanted(self, step: SampleBatch) -> DeviceSampleSpec:
        samplings = [GREEDY if part.logits_processor else part.sampling for part in step.parts]
        logits = any(needs_logits(part) for part in step.parts if len(part.rows.outputs))
        each = records(sampling_columns(step, samplings))
        return DeviceSampleSpec(self._vocabulary, variant_of(samplings).value, logits, each)

    def _sampled(
        self, part: SamplePart, found: DeviceSampled, begin: int, end: int
    ) -> SampledTokens:
        if end == begin:
            return NOTHING_SAMPLED
        if not needs_logits(part):
            return SampledTokens(found.tokens[begin:end], NO_LOGITS)
        logits = found.logits[begin:end, : self._vocabulary]
        return (
            self._sample(part, logits, np.empty(len(logits), np.int32))
            if part.logits_processor
            else SampledTokens(found.tokens[begin:end], logits)
        )


def runner_of(model: GpuModel | LeadingGpuModel, vocabulary: int) -> TargetRunner:
    """Return the runner of a target on one device or on several."""
    if isinstance(model, GpuModel):
        return GpuTargetRunner(model, vocabulary)
    return ParallelGpuTargetRunner(model, vocabulary)


def needs_logits(part: SamplePart) -> bool:
    """True if the part's logits are needed on the host."""
    return part.logits_processor is not None or part.logits_wanted
