"""Folders of AWQ and GPTQ: every weight has the value that their layout says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.kernels.cpu.grouped_packing import Grouped
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import CheckpointTensors, load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from tests.quantised_folders import AWQ, GPTQ, Packed, awq, gptq, quantised
from tests.tiny_models import write_tiny


def tensors_of(folder: Path) -> CheckpointTensors:
    return CheckpointTensors(PreparedModel("tiny", folder, folder, folder, "0"))


@pytest.mark.parametrize(
    ("pack", "config"),
    [
        (awq, AWQ),
        (gptq, GPTQ),
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
    write_tiny(tmp_path, hidden=64, intermediate_size=128)
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

    write_tiny(tmp_path, hidden=64, intermediate_size=128)
    quantised(tmp_path, shuffled, quant_method="gptq", bits=4)
    with pytest.raises(ModelError, match=r"g_idx.*another order of inputs.*desc_act: false"):
        dict(tensors_of(tmp_path))
