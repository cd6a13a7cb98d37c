"""Folders of AWQ and GPTQ: every weight has the value that their layout says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from outrider.kernels.cpu.grouped_packing import Grouped
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import CheckpointTensors, load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from tests.tiny_models import write_tiny

GROUP = 32
Packed = dict[str, np.ndarray]
Pack = Callable[[np.ndarray], tuple[Packed, np.ndarray]]


def quantised(
    folder: Path, pack: Callable[[np.ndarray], tuple[Packed, np.ndarray]], **config: Any
) -> dict[str, np.ndarray]:
    """Quantise the layers' matrices of a tiny model; returns the values that these have then."""
    write_tiny(folder, hidden=64, intermediate_size=128)
    tensors, values = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if name.startswith("model.layers") and "proj" in name]:
        parts, values[name] = pack(tensors.pop(name))
        tensors |= {f"{name.removesuffix('.weight')}.{part}": x for part, x in parts.items()}
    save_file(
        {name: np.ascontiguousarray(x) for name, x in tensors.items()}, folder / "model.safetensors"
    )
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"quantization_config": config}))
    return values


def in_groups(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return quants [out, in], zeros and scales [groups, out], and values."""
    groups = weight.reshape(len(weight), -1, GROUP)
    scales = ((groups.max(axis=2) - groups.min(axis=2)) / 15).astype(np.float16)
    wide = scales.astype(np.float32)[..., None]
    zeros = np.clip(np.rint(-groups.min(axis=2, keepdims=True) / wide), 1, 15)
    quants = np.clip(np.rint(groups / wide) + zeros, 0, 15)
    values = ((quants - zeros) * wide).reshape(weight.shape).astype(np.float32)
    return (
        quants.reshape(weight.shape).astype(np.int64),
        zeros[..., 0].T.astype(np.int64),
        scales.T,
        values,
    )


def integers(numbers: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """Pack eight numbers along the last axis into an int32: number order[i] in bits 4 i."""
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8)
    packed = sum(eights[..., at] << 4 * i for i, at in enumerate(order))
    return np.asarray(packed).astype(np.uint32).view(np.int32)


def awq(weight: np.ndarray) -> tuple[Packed, np.ndarray]:
    quants, zeros, scales, values = in_groups(weight)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": integers(quants.T, order),
        "qzeros": integers(zeros, order),
        "scales": scales,
    }, values


def gptq(weight: np.ndarray, less: int = 1) -> tuple[Packed, np.ndarray]:
    quants, zeros, scales, values = in_groups(weight)
    index = np.arange(weight.shape[1], dtype=np.int32) // GROUP
    packed = {"qweight": integers(quants).T, "qzeros": integers(zeros - less), "scales": scales}
    return packed | {"g_idx": index}, values


def tensors_of(folder: Path) -> CheckpointTensors:
    return CheckpointTensors(PreparedModel("tiny", folder, folder, folder, "0"))


@pytest.mark.parametrize(
    ("pack", "config"),
    [
        (awq, {"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True}),
        (gptq, {"quant_method": "gptq", "bits": 4, "desc_act": False}),
        (
            lambda weight: gptq(weight, 0),
            {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
        ),
    ],
    ids=["awq", "gptq", "gptq_v2"],
)
def test_quants_in_groups_keep_their_values(
    tmp_path: Path, pack: Any, config: dict[str, Any]
) -> None:
    values = quantised(tmp_path, pack, **config)
    tensors = tensors_of(tmp_path)
    assert tensors.path is NumericPath.INT4
    for name, expected in values.items():
        matrix = tensors[name]
        assert isinstance(matrix, Grouped)
        assert np.array_equal(matrix.floats(), expected), name


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method: 'bitsandbytes'"),
        ({"quant_method": "awq", "bits": 8}, "bits: 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version: 'gemv'"),
        ({"quant_method": "gptq", "bits": 4, "desc_act": True}, "desc_act: True"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "'pack-quantized'"),
        ("awq", "quant_method: None"),
    ],
)
def test_another_layout_is_refused_by_its_field(tmp_path: Path, config: Any, named: str) -> None:
    write_tiny(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {"quantization_config": config}))
    with pytest.raises(
        ModelError, match=f"quantization_config: .*{named}.* is not supported; allowed"
    ):
        load(PreparedModel("tiny", tmp_path, tmp_path, tmp_path, "0"))


def test_inputs_in_another_order_are_refused(tmp_path: Path) -> None:
    def shuffled(weight: np.ndarray) -> tuple[Packed, np.ndarray]:
        parts, values = gptq(weight)
        return parts | {"g_idx": parts["g_idx"][::-1]}, values

    quantised(tmp_path, shuffled, quant_method="gptq", bits=4)
    with pytest.raises(ModelError, match=r"g_idx.*another order of inputs.*desc_act: false"):
        dict(tensors_of(tmp_path))
