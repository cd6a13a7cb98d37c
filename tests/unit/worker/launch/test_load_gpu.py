"""Files that are loaded onto a GPU, which machines with one need no library for."""

from pathlib import Path

import gguf
import pytest
from safetensors.numpy import load_file, save_file

from outrider.contract.settings import ModelSettings
from outrider.worker.checkpoints.fingerprint import ignore_progress
from outrider.worker.checkpoints.prepare import prepare
from tests.gpu_models import on_device, write
from tests.tiny_gguf import quantise, write_tiny_gguf
from tests.unit.worker.gpu.test_gpu_formats import WIDE, assert_logits_of_the_cpu


def test_a_file_of_q4_k_has_the_logits_of_its_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "tiny", layers=1, **(WIDE | {"intermediate_size": 256}))
    kind = gguf.GGMLQuantizationType.Q4_K
    file = write_tiny_gguf(folder, tmp_path / "tiny.gguf", kind)
    prepared = prepare(ModelSettings(uri=f"file://{file}"), tmp_path / "cache", ignore_progress)
    gpu = on_device(prepared.directory, "cpu", matrices=None)
    assert gpu.path == "fp32"
    assert "7 matrices of quants were widened to fp32" in caplog.text
    tensors = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        if value.ndim > 1:
            tensors[name] = gguf.dequantize(quantise(value, kind), kind)
    save_file(tensors, folder / "model.safetensors")
    assert_logits_of_the_cpu(gpu, folder, 1e-4)
