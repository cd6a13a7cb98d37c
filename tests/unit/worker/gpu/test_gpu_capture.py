"""Which graphs there are before a target serves."""

from pathlib import Path

import numpy as np

from outrider.worker.costs.step_timing import borrowed
from outrider.worker.gpu.buckets import MOVES
from outrider.worker.gpu.capture import capture
from outrider.worker.gpu.device_share import SampleVariant
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.gpu.timing import DummyStep
from outrider.worker.model.rows import prompt_rows
from tests.gpu_models import FirstWork, on_device, write


def test_every_bucket_and_variant_is_captured_and_another_runner_has_its_own(
    tmp_path: Path, device: str
) -> None:
    model = on_device(write(tmp_path, layers=1, heads=2, kv_heads=1), device, rows=2)
    model.graphs = graphs = FirstWork()
    first, second = (GpuTargetRunner(model, 260) for _ in range(2))
    capture(first, model)
    bodies = {("body", 1, 1), ("body", 2, 1), ("body", 2, 2)}
    samplings = {(first._share, n, variant, 260) for n in (1, 2) for variant in SampleVariant}
    moves = {("move", size) for size in MOVES}
    assert set(graphs.works) == bodies | samplings | moves
    with borrowed(model.kv_cache) as block_table:
        second.run(DummyStep(prompt_rows(np.zeros(1, np.int32), 0, block_table, True)))
    own = {(second._share, 1, SampleVariant.GREEDY, 260)}
    assert set(graphs.works) == bodies | samplings | moves | own
    assert model.kv_cache.used == 0
