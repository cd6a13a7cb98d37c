"""Target runner on one device or several: a pass, then sampling, of which the host sees token ids.

The host waits once, for the ids, and not at all in a step without any. Chunks of prompts by the
vendor's library are passes of their own, before that of all other rows. A part with a logits
processor is sampled on the host by the same noise, from a copy of its rows of logits; one that
wants logits gets such a copy beside its ids. Leaves passes and sampling to `device_share`, and to
`parallel_model` over several ranks.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.worker.engine.runner import (
    NOTHING_SAMPLED,
    SampleBatch,
    SampledTokens,
    SamplePart,
    TargetRunner,
    spans,
)
from outrider.worker.gpu.buckets import ROWS
from outrider.worker.gpu.device_share import DeviceShare, SampleVariant
from outrider.worker.gpu.model import GpuModel, lasting_errors
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.model.rows import Rows, joined
from outrider.worker.parallel.step_message import DeviceSampleSpec
from outrider.worker.sampling.params import SETTINGS, SamplingParams

NO_LOGITS = np.empty((0, 0), np.float32)
GREEDY = SamplingParams()
GREEDY_RECORDS = np.full(ROWS[-1], np.array(GREEDY.settings, SETTINGS))


class GpuTargetRunner(TargetRunner):
    """Runs a target's passes on its devices, and samples there."""

    def __init__(self, model: GpuModel | LeadingGpuModel, vocabulary: int) -> None:
        super().__init__(model, vocabulary)
        self._share = DeviceShare(model) if isinstance(model, GpuModel) else model
        self._vocabulary = vocabulary

    @lasting_errors
    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """Return for each part the token sampled after each row with output."""
        if not any([part.rows.by_library for part in step.parts]):
            return self._run(step.parts, step.rows)
        others = [part for part in step.parts if not part.rows.by_library]
        chunks = iter(
            [kept(*self._run([part], part.rows)) for part in step.parts if part.rows.by_library]
        )
        beside = iter(self._run(others, joined([part.rows for part in others])) if others else ())
        return [next(chunks if part.rows.by_library else beside) for part in step.parts]

    def _run(self, parts: Sequence[SamplePart], rows: Rows) -> list[SampledTokens]:
        """Run one pass, of which the parts have all `rows`."""
        each_span = list(spans(parts, [len(part.rows.outputs) for part in parts]))
        if len(rows.outputs) == 0:
            self._model.forward(rows)
            return [NOTHING_SAMPLED] * len(parts)
        wanted = [
            (begin, end)
            for part, begin, end in each_span
            if end > begin and (part.logits_processor or part.logits_wanted)
        ]
        samplings = [GREEDY if part.logits_processor else part.sampling for part in parts]
        variant = variant_of(samplings)
        each = (
            GREEDY_RECORDS[: len(rows.outputs)]
            if variant is SampleVariant.GREEDY
            else sampling_records(parts, samplings)
        )
        spec = DeviceSampleSpec(self._vocabulary, variant.value, bool(wanted), each)
        tokens, logits = self._share.sample(rows, spec, wanted)
        return [
            self._sampled(part, tokens[begin:end], logits.get(begin, NO_LOGITS))
            for part, begin, end in each_span
        ]

    def _sampled(
        self, part: SamplePart, tokens: NDArray[np.int32], logits: NDArray[np.float32]
    ) -> SampledTokens:
        """Return what came of a part's outputs."""
        if not len(tokens):
            return NOTHING_SAMPLED
        if part.logits_processor:
            return self._sample(part, logits, tokens)
        return SampledTokens(tokens, logits)


def variant_of(samplings: Sequence[SamplingParams]) -> SampleVariant:
    """Return the least variant that serves all of them."""
    random = [sampling for sampling in samplings if not sampling.greedy]
    if any(sampling.top_k > 0 or sampling.top_p < 1 for sampling in random):
        return SampleVariant.FILTERED
    return SampleVariant.SAMPLED if random else SampleVariant.GREEDY


def kept(sampled: SampledTokens) -> SampledTokens:
    """Return the same, valid beyond the next pass."""
    return sampled._replace(logits=sampled.logits.copy())


def sampling_records(
    parts: Sequence[SamplePart], samplings: Sequence[SamplingParams]
) -> NDArray[np.void]:
    """Return the settings of each row with output, in the order of the parts: [outputs] of
    `SETTINGS`."""
    counts = [len(part.rows.outputs) for part in parts]
    return np.repeat(np.array([s.settings for s in samplings], SETTINGS), counts)
