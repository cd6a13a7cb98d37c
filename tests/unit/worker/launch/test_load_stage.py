"""What a pipeline stage refuses before it loads anything."""

from typing import Any

import pytest

from outrider.contract.settings import (
    Device,
    Dtype,
    ModelSettings,
    PipelineSettings,
    Role,
    SettingsError,
    WorkerSettings,
)
from outrider.worker.errors import ModelError
from outrider.worker.launch.load_stage import check_ranks, path_of
from outrider.worker.parallel.placement import RankPlacement


def test_a_stage_on_a_gpu_is_refused_with_the_devices_that_it_may_have() -> None:
    model, pipeline = ModelSettings(uri="file:///tiny"), PipelineSettings(stages=2)
    settings = WorkerSettings(
        role=Role.TARGET, name="tiny", model=model, device=Device.GPU, pipeline=pipeline
    )
    with pytest.raises(SettingsError, match=r"^settings\.device: gpu .*; allowed: auto, cpu$"):
        check_ranks(settings, RankPlacement.of({}))


def test_a_dtype_of_gpus_is_refused_with_those_of_a_stage() -> None:
    weights: Any = None  # not asked
    with pytest.raises(ModelError, match=r"^dtype: fp8 .* on a CPU; allowed: auto, "):
        path_of(Dtype.FP8, weights)
