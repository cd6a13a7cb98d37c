"""A GPU that failed ends the engine: no step that follows could be run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.worker.costs.step_timing import borrowed
from outrider.worker.engine.loop import Engine
from outrider.worker.errors import DeviceLost
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.gpu.timing import DummyStep
from outrider.worker.gpu.transfers import Transfers
from outrider.worker.messages import EngineReport
from outrider.worker.model.rows import prompt_rows
from tests.gpu_models import on_device, write

WHY = "CUDA error: an illegal memory access was encountered"
LAUNCH = "Triton Error [CUDA]: an illegal memory access was encountered"


class FailedCopies(Transfers):
    """Of a device whose last kernel failed: the first call that follows says so."""

    error: Exception

    def next_host(self) -> int:
        raise self.error


class Planned:
    """A scheduler with one step, which has no request to blame."""

    host_seconds = 0.0

    def __init__(self, step: DummyStep) -> None:
        self.outbox: list[Any] = []
        self._step = step

    def next(self, now: float) -> DummyStep:
        return self._step

    def report(self) -> EngineReport:
        return EngineReport()


class Silent:
    """A post that brings nothing and takes everything."""

    def drain(self) -> list[Any]:
        return []

    def drain_peers(self) -> list[Any]:
        return []

    def send(self, *messages: Any) -> None:
        pass


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize(
    ("error", "why"),
    [(torch.AcceleratorError(WHY), WHY), (RuntimeError(LAUNCH), "Triton Error .CUDA.: an illegal")],
)
def test_a_device_that_failed_ends_the_engine(
    role: str, error: Exception, why: str, tmp_path: Path, device: str
) -> None:
    model = on_device(write(tmp_path, layers=1, heads=2, kv_heads=1), device)
    runner: Any = (
        GpuTargetRunner(model, 260) if role == "target" else GpuDraftRunner(model, None, 260)
    )
    model.inputs.copies = copies = FailedCopies(1, device)
    copies.error = error
    with borrowed(model.kv_cache) as block_table:
        step: Any = DummyStep(prompt_rows(np.zeros(1, np.int32), 0, block_table, False))
        if role == "draft":
            step = type("Several", (), {"parts": (), "rows": step.rows})()
        with pytest.raises(DeviceLost, match=why):
            Engine[Any, Any](Planned(step), runner, Silent()).step()  # type: ignore[arg-type]
