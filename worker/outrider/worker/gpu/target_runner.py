"""Target runner on a device: a pass, then sampling, of which the host sees token ids alone.

Head and sampling are one graph; the host waits once, for the ids, and not at all in a step without
any. A part with a logits processor is sampled on the host by the same noise, from a copy of its
rows of logits; one that wants logits gets such a copy beside its ids. Leaves the pass to `model`,
sampling to `outrider.kernels.gpu.sampling`.
"""

import enum
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.kernels.gpu.sampling import sample
from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR
from outrider.worker.engine.runner import (
    NOTHING_SAMPLED,
    SampleBatch,
    SampledTokens,
    SamplePart,
    TargetRunner,
    spans,
)
from outrider.worker.gpu.input_buffers import InputShape, SamplingColumns
from outrider.worker.gpu.model import GpuModel, lasting_errors
from outrider.worker.sampling.params import SamplingParams

NO_LOGITS = np.empty((0, 0), np.float32)
GREEDY = SamplingParams()
READ_TOGETHER = 4
"""Columns that the sampling kernel reads at once."""


class SampleVariant(enum.Enum):
    """Work of a launch of sampling; each is a graph of its own."""

    GREEDY = enum.auto()
    SAMPLED = enum.auto()
    """Some row has a temperature, min-p included."""
    FILTERED = enum.auto()
    """Some row with a temperature has top-k or top-p."""


class GpuTargetRunner(TargetRunner):
    """Runs a target's passes on a device, and samples there."""

    def __init__(self, model: GpuModel, vocabulary: int) -> None:
        super().__init__(model, vocabulary)
        self._gpu = model
        self._vocabulary = vocabulary
        self._columns = -(-vocabulary // READ_TOGETHER) * READ_TOGETHER
        self._tokens = torch.zeros(model.row_capacity, dtype=torch.int32, device=model.device)
        self._logprobs = torch.zeros(model.row_capacity, dtype=torch.float32, device=model.device)
        self._ids = model.copies.host(model.row_capacity, dtype=torch.int32)
        model.copies.synchronize()

    @lasting_errors()
    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """Return for each part the token sampled after each row with output."""
        parts = list(spans(step.parts, [len(part.rows.outputs) for part in step.parts]))
        count = len(step.rows.outputs)
        if count == 0:
            self._gpu.launch(step.rows)
            return [NOTHING_SAMPLED] * len(parts)
        samplings = [GREEDY if part.logits_processor else part.sampling for part in step.parts]
        shape = self._gpu.launch(step.rows, sampling_columns(step, samplings))
        self._sample_on_device(shape, variant_of(samplings))
        seen = [self._wanted(part, begin, end) for part, begin, end in parts]
        copies = self._gpu.copies
        copies.fetch(self._tokens[:count], self._ids[:count])
        copies.wait()
        tokens: NDArray[np.int32] = self._ids[:count].numpy().copy()
        return [
            self._sampled(part, tokens, logits, begin, end)
            for (part, begin, end), logits in zip(parts, seen, strict=True)
        ]

    def _sample_on_device(self, shape: InputShape, variant: SampleVariant) -> None:
        def work() -> None:
            self._gpu.forward_pass.head(shape.outputs)
            self._launch_sampling(shape.outputs, variant)

        with self._gpu.copies.computing():
            self._gpu.graphs.run((self, shape.outputs, variant), work)  # with buffers of its own

    def _launch_sampling(self, m: int, variant: SampleVariant) -> None:
        """Sample tokens of the first m outputs."""
        logits = self._gpu.logits[:m]
        logits[:, self._vocabulary : self._columns].fill_(-torch.inf)
        inputs = self._gpu.inputs.sampling_inputs(
            m,
            sampled=variant is not SampleVariant.GREEDY,
            filtered=variant is SampleVariant.FILTERED,
        )
        sample(logits, self._columns, inputs, self._tokens[:m], self._logprobs[:m])

    def _wanted(self, part: SamplePart, begin: int, end: int) -> NDArray[np.float32]:
        """Return a part's logits, there after the wait; none if they are not needed on the host."""
        if end == begin or not (part.logits_processor or part.logits_wanted):
            return NO_LOGITS
        return self._gpu.fetch_logits(begin, end)[:, : self._vocabulary]

    def _sampled(
        self,
        part: SamplePart,
        tokens: NDArray[np.int32],
        logits: NDArray[np.float32],
        begin: int,
        end: int,
    ) -> SampledTokens:
        """Return what came of outputs begin … end - 1; `tokens` of all, `logits` of these."""
        if begin == end:
            return NOTHING_SAMPLED
        if part.logits_processor:
            return self._sample(part, logits, tokens[begin:end])
        return SampledTokens(tokens[begin:end], logits)


def variant_of(samplings: Sequence[SamplingParams]) -> SampleVariant:
    """Return the least variant that serves all of them."""
    random = [sampling for sampling in samplings if not sampling.greedy]
    if any(sampling.top_k > 0 or sampling.top_p < 1 for sampling in random):
        return SampleVariant.FILTERED
    return SampleVariant.SAMPLED if random else SampleVariant.GREEDY


def sampling_columns(step: SampleBatch, samplings: Sequence[SamplingParams]) -> SamplingColumns:
    """Return the settings of each row with output, in the order of the parts."""
    counts = [len(part.rows.outputs) for part in step.parts]

    def each(values: list[float], kind: type) -> NDArray:
        return np.repeat(np.array(values, kind), counts)

    most = np.iinfo(np.int32).max
    return SamplingColumns(
        temperature=each([effective_temperature(s.temperature) for s in samplings], np.float32),
        top_k=each([min(s.top_k, most) for s in samplings], np.int32),
        top_p=each([s.top_p for s in samplings], np.float64),
        log_min_p=each(
            [np.log(s.min_p) if s.min_p > 0 else -np.inf for s in samplings], np.float32
        ),
        seed=each([s.seed for s in samplings], np.uint64).view(np.int64),
        choice=each([s.choice for s in samplings], np.uint32).view(np.int32),
        sampled_at=step.rows.positions[step.rows.outputs] + np.int32(1),
    )


def effective_temperature(temperature: float) -> float:
    """Return what logits are divided by; 0: nothing, the row is greedy."""
    return max(temperature, TEMPERATURE_FLOOR) if temperature > 0 else 0.0
