"""What steps on a device cost: passes as a target runs them, with ids coming back and no logits.

Leaves measuring to `step_timing`.
"""

import numpy as np
import torch
import triton

from outrider.worker.engine.runner import SampledTokens
from outrider.worker.gpu.dummy_step import DummyStep
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.parallel_model import LeadingGpuModel
from outrider.worker.gpu.parallel_target_runner import runner_of
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.rows import Rows
from outrider.worker.model.step_costs import StepCosts

INTERPRETED = StepCosts(
    rows=(1, 64),
    contexts=(128, 512),
    measured=np.array([[[0.020, 0.025], [0.021, 0.026]]]),
)
"""Taken for kernels in Triton's interpreter, whose times say nothing of any device."""


def machine(device: str) -> tuple[str, ...]:
    """What costs depend on besides the processor."""
    return torch.cuda.get_device_name(device), torch.__version__, triton.__version__


class GreedyPasses:
    """A model as `step_timing` measures it."""

    def __init__(self, model: GpuModel | LeadingGpuModel) -> None:
        self._model = model
        self._runner = runner_of(model, model.config.outputs)

    @property
    def config(self) -> ModelConfig:
        """Of the model."""
        return self._model.config

    @property
    def path(self) -> str:
        """How weights are held."""
        return self._model.path

    @property
    def kv_cache(self) -> DeviceKVCache:
        """Keys and values."""
        return self._model.kv_cache

    @property
    def row_capacity(self) -> int:
        """Most rows of a pass."""
        return self._model.row_capacity

    def forward(self, rows: Rows) -> list[SampledTokens]:
        """One pass, its draw, and the wait for its ids."""
        return self._runner.run(DummyStep(rows))
