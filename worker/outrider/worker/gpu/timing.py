"""Step costs on a device: passes as a target runs them, of rows that mean nothing.

Leaves measuring to `costs.step_timing`.
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton

from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.engine.runner import SampledTokens
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.target_runner import GREEDY, GpuTargetRunner
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.logits_processor import NO_PATH
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.growth import Ints

INTERPRETED = StepCosts(
    rows=(1, 64),
    contexts=(128, 512),
    measured=np.array([[[0.020, 0.025], [0.021, 0.026]]]),
)
"""Taken for kernels in Triton's interpreter, whose times say nothing of any device."""


def machine(device: str) -> tuple[str, ...]:
    """Return what costs depend on besides the processor."""
    return torch.cuda.get_device_name(device), torch.__version__, triton.__version__


@dataclass(frozen=True, slots=True)
class DummyStep:
    """A target's step of one part, sampled after each row with output."""

    rows: Rows
    sampling: SamplingParams = GREEDY
    logits_processor: None = None
    logits_wanted: bool = False

    @property
    def parts(self) -> tuple["DummyStep"]:
        """This one."""
        return (self,)

    @property
    def path_tokens(self) -> Ints:
        """None: there is no logits processor."""
        return NO_PATH


class GreedyPasses:
    """Passes of a model as `step_timing` measures them."""

    def __init__(self, model: GpuModel | LeadingGpuModel) -> None:
        self.config, self.path = model.config, model.path
        self.kv_cache, self.row_capacity = model.kv_cache, model.row_capacity
        self._runner = GpuTargetRunner(model, model.config.outputs)

    def forward(self, rows: Rows) -> list[SampledTokens]:
        """Run a pass, sample, and wait for the ids."""
        return self._runner.run(DummyStep(rows))
