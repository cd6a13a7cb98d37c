"""Folders of FP8: every weight has the value that torch reads, times its scale."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import CheckpointTensors, load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.quantised_folder import E4M3
from tests.tiny_models import write_tiny


@pytest.mark.parametrize("scales", ["tensor", "channel", "blocks"])
def test_fp8_is_what_torch_reads_times_its_scales(tmp_path: Path, scales: str) -> None:
    write_tiny(tmp_path, hidden=64, intermediate_size=144)
    tensors = {
        name: torch.from_numpy(x) for name, x in load_file(tmp_path / "model.safetensors").items()
    }
    values: dict[str, np.ndarray] = {}
    for name in [name for name in tensors if "_proj" in name]:
        weight = tensors[name]
        rows, columns = weight.shape
        factor = {
            "tensor": torch.rand(1) + 0.5,
            "channel": torch.rand(rows, 1) + 0.5,
            "blocks": torch.rand(-(-rows // 32), -(-columns // 32)) + 0.5,
        }[scales]
        tensors[name] = weight.to(torch.float8_e4m3fn)
        spread = factor
        if scales == "blocks":
            spread = factor.repeat_interleave(32, 0)[:rows].repeat_interleave(32, 1)[:, :columns]
        values[name] = (tensors[name].float() * spread).numpy()
        tensors[f"{name}_scale{'_inv' * (scales == 'blocks')}"] = factor
    save_file(tensors, tmp_path / "model.safetensors")
    fields = json.loads((tmp_path / "config.json").read_text())
    kind = {"quant_method": "fp8"} | ({"weight_block_size": [32, 32]} if scales == "blocks" else {})
    (tmp_path / "config.json").write_text(json.dumps(fields | {"quantization_config": kind}))
    model = PreparedModel("tiny", tmp_path, tmp_path, tmp_path, "0")
    assert CheckpointTensors(model).path is NumericPath.BF16
    _, found = load(model)
    for name, expected in values.items():
        assert np.array_equal(found[name], expected), name


def test_every_fp8_byte_is_read_as_torch_reads_it() -> None:
    theirs = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(E4M3, theirs, equal_nan=True)
