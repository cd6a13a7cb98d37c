"""What steps on a device cost: passes as a target runs them, with ids coming back and no logits.

Leaves measuring to `step_timing`.
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton

from outrider.worker.costs import StepCosts
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.pool import DevicePool
from outrider.worker.gpu.target import GREEDY, GpuTargetRunner
from outrider.worker.model.config import ModelConfig
from outrider.worker.rows import Rows
from outrider.worker.runner import Drawn
from outrider.worker.sampling import Sampling
from outrider.worker.shaping import NO_PATH
from outrider.worker.tree import Ints

INTERPRETED = StepCosts(
    rows=(1, 64),
    contexts=(128, 512),
    measured=np.array([[[0.020, 0.025], [0.021, 0.026]]]),
)
"""Taken for kernels in Triton's interpreter, whose times say nothing of any device."""


def machine(device: str) -> tuple[str, ...]:
    """What costs depend on besides the processor."""
    return torch.cuda.get_device_name(device), torch.__version__, triton.__version__


@dataclass(frozen=True, slots=True)
class GreedyStep:
    """A step of one part, which draws greedily after each row with output."""

    rows: Rows
    sampling: Sampling = GREEDY
    shaper: None = None
    logits_wanted: bool = False

    @property
    def path_tokens(self) -> Ints:
        """None: there is no shaper."""
        return NO_PATH

    @property
    def parts(self) -> tuple["GreedyStep"]:
        """Itself."""
        return (self,)


class GreedyPasses:
    """A model as `step_timing` measures it."""

    def __init__(self, model: GpuModel) -> None:
        self._model = model
        self._runner = GpuTargetRunner(model, model.config.outputs)

    @property
    def config(self) -> ModelConfig:
        """Of the model."""
        return self._model.config

    @property
    def path(self) -> str:
        """How weights are held."""
        return self._model.path

    @property
    def pool(self) -> DevicePool:
        """Keys and values."""
        return self._model.pool

    @property
    def max_rows(self) -> int:
        """Most rows of a pass."""
        return self._model.max_rows

    def forward(self, rows: Rows) -> list[Drawn]:
        """One pass, its draw, and the wait for its ids."""
        return self._runner.run(GreedyStep(rows))
