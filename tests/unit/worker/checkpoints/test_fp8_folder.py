"""Folders of FP8: every weight has the value that torch reads, times its scale."""

from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import CheckpointTensors, load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.model.matrix import E4M3
from tests.fp8_folders import FP8, as_e4m3, fp8
from tests.quantised_folders import quantised
from tests.tiny_models import write_tiny


@pytest.mark.parametrize("scales", ["tensor", "channel", "blocks"])
def test_fp8_is_what_torch_reads_times_its_scales(tmp_path: Path, scales: str) -> None:
    write_tiny(tmp_path, hidden=64, intermediate_size=144)
    blocks = {"weight_block_size": [32, 32]} if scales == "blocks" else {}
    values = quantised(tmp_path, lambda weight: fp8(weight, scales), **FP8, **blocks)
    as_e4m3(tmp_path)
    model = PreparedModel("tiny", tmp_path, tmp_path, tmp_path, "0")
    assert CheckpointTensors(model).path is NumericPath.BF16
    _, found = load(model)
    for name, expected in values.items():
        assert np.array_equal(found[name], expected), name


def test_every_fp8_byte_is_read_as_torch_reads_it() -> None:
    theirs = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(E4M3, theirs, equal_nan=True)
