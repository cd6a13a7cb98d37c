"""A target's runner over ranks with devices: they draw among themselves, filters included.

Only what a shaper changes, and what somebody wants to see, is gathered as logits; the rest is as of
one device (`target`), and so are the tokens.
"""

import numpy as np

from outrider.worker.engine.runner import NOTHING_DRAWN, Draw, Drawn, Draws, TargetRunner, spans
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import DeviceDrawn, LeadingGpuModel, records
from outrider.worker.gpu.target_runner import GREEDY, GpuTargetRunner, drawing_of, variant_of
from outrider.worker.parallel.step_message import DeviceDraws

NO_LOGITS = np.empty((0, 0), np.float32)


class SharedGpuTargetRunner(TargetRunner):
    """A target's ranks and dice."""

    def __init__(self, model: LeadingGpuModel, vocabulary: int) -> None:
        super().__init__(model, vocabulary)
        self._leading = model
        self._vocabulary = vocabulary

    def run(self, step: Draws) -> list[Drawn]:
        """For each part the token drawn after each row with output."""
        parts = list(spans(step.parts, [part.rows for part in step.parts]))
        if len(step.rows.outputs) == 0:
            self._leading.forward(step.rows)
            return [NOTHING_DRAWN] * len(parts)
        found = self._leading.draw(step.rows, self._wanted(step))
        return [self._drawn(part, found, begin, end) for part, begin, end in parts]

    def _wanted(self, step: Draws) -> DeviceDraws:
        samplings = [GREEDY if part.shaper else part.sampling for part in step.parts]
        logits = any(seen(part) for part in step.parts if len(part.rows.outputs))
        each = records(drawing_of(step, samplings))
        return DeviceDraws(self._vocabulary, variant_of(samplings).value, logits, each)

    def _drawn(self, part: Draw, found: DeviceDrawn, begin: int, end: int) -> Drawn:
        if end == begin:
            return NOTHING_DRAWN
        if not seen(part):
            return Drawn(found.tokens[begin:end], NO_LOGITS)
        logits = found.logits[begin:end, : self._vocabulary]
        return self._draw(part, logits) if part.shaper else Drawn(found.tokens[begin:end], logits)


def runner_of(model: GpuModel | LeadingGpuModel, vocabulary: int) -> TargetRunner:
    """Of a target on one device or on several."""
    if isinstance(model, GpuModel):
        return GpuTargetRunner(model, vocabulary)
    return SharedGpuTargetRunner(model, vocabulary)


def seen(part: Draw) -> bool:
    """Whether somebody needs the part's logits on the host."""
    return part.shaper is not None or part.logits_wanted
