"""Formats of matrices on a device: what a checkpoint has, if kernels take it, else its values."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from outrider.contract.settings import Dtype
from outrider.kernels.cpu.grouped_packing import Q4_NESTED, Grouped
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.tiling import plan
from outrider.kernels.gpu.weights import WeightFormat, Weights, dense
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.load import stored_tensors
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.shard import precision_of
from outrider.worker.gpu.weights import Precision
from outrider.worker.model.llama import Llama
from outrider.worker.model.matrix import AsStored
from outrider.worker.model.rows import prompt_rows
from outrider.worker.model.sharding import Shard
from tests.fp8_folders import FP8, as_e4m3, fp8
from tests.gpu_device import HALF
from tests.gpu_models import LONGEST, loaded, on_cpu, on_device, write
from tests.kernel_outputs import TOLERANCE, assert_close, normal, unwritten
from tests.linear_layers import scratch_for
from tests.quantised_folders import AWQ, GPTQ, Pack, awq, gptq, quantised
from tests.unit.worker.gpu.test_gpu_model import TOKENS, block_table, every

WIDE: dict[str, Any] = {"hidden": 256, "heads": 8, "intermediate_size": 512}
THREE_HEADS = {"hidden": 384, "heads": 3, "kv_heads": 3, "head_dim": 128}


class Case(NamedTuple):
    """A folder of quants, and the formats that its matrices have on a device."""

    pack: Pack
    config: dict[str, Any]
    formats: str
    shape: dict[str, Any] = {"hidden": 128, "intermediate_size": 256}  # noqa: RUF012


def blocks(size: int) -> dict[str, Any]:
    return FP8 | {"weight_block_size": [size, size]}


KEPT = {
    "awq": Case(lambda w: awq(w, 128), AWQ, "int4"),
    "awq, groups of 256": Case(lambda w: awq(w, 256), AWQ, "int4", WIDE),
    "gptq": Case(lambda w: gptq(w, group=128), GPTQ, "int4"),
    "gptq, groups of 256": Case(lambda w: gptq(w, group=256), GPTQ, "int4", WIDE),
    "fp8": Case(lambda w: fp8(w, "tensor"), FP8, "fp8"),
    "fp8 channels": Case(lambda w: fp8(w, "channel"), FP8, "fp8"),
}
WIDENED = {
    "groups of 32": Case(awq, AWQ, "plain"),
    "fp8 blocks of 32": Case(lambda w: fp8(w, "blocks"), blocks(32), "plain"),
    "fp8 blocks of 128": Case(
        lambda w: fp8(w, "blocks", 128),
        blocks(128),
        "plain",
        {"hidden": 192, "heads": 6, "intermediate_size": 320},
    ),
    "of both": Case(lambda w: awq(w, 128) if len(w) == 128 else awq(w), AWQ, "plain and int4"),
}
CASES = KEPT | WIDENED


def folder_of(case: Case, folder: Path, layers: int) -> dict[str, np.ndarray]:
    """Write a case's folder; returns the values of its quants."""
    values = quantised(write(folder, layers=layers, **case.shape), case.pack, **case.config)
    as_e4m3(folder)
    return values


def assert_held(gpu: GpuModel, values: dict[str, np.ndarray], rounded: torch.dtype) -> None:
    """Matrices have the values of the quants, and widened ones those `rounded`."""

    def assert_equal(weights: Weights, *names: str) -> None:
        expected = torch.from_numpy(np.concatenate([values[f"{name}.weight"] for name in names]))
        if weights.format is WeightFormat.PLAIN:
            assert weights.values.dtype is rounded
            expected = expected.to(rounded).float()
        assert torch.equal(dense(weights).cpu(), expected)

    for number, layer in enumerate(gpu.forward_pass.weights.layers):
        attention, mlp = f"model.layers.{number}.self_attn.", f"model.layers.{number}.mlp."
        assert_equal(layer.qkv, *(f"{attention}{part}_proj" for part in "qkv"))
        assert_equal(layer.output, f"{attention}o_proj")
        assert_equal(layer.gates, f"{mlp}gate_proj", f"{mlp}up_proj")
        assert_equal(layer.down, f"{mlp}down_proj")


def logits(model: GpuModel | Llama) -> np.ndarray:
    return model.forward(every(prompt_rows(TOKENS[:2], 0, block_table(model), True)))


def assert_logits_of_the_cpu(gpu: GpuModel, folder: Path, tolerance: float) -> None:
    found, expected = logits(gpu), logits(on_cpu(folder))
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_matrices_keep_their_values_and_the_format_if_kernels_take_it(
    case: Case, tmp_path: Path, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    values = folder_of(case, tmp_path, layers=2)
    gpu = on_device(tmp_path, device, matrices=None)
    assert gpu.path == case.formats.replace("plain", "fp32")
    assert ("were widened to fp32" in caplog.text) is ("plain" in case.formats)
    assert_held(gpu, values, torch.float32)
    assert_logits_of_the_cpu(gpu, tmp_path, 1e-4)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_matrices_beside_bf16_keep_format_and_values_or_become_bf16(
    case: Case, tmp_path: Path, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As they are loaded in production; no pass runs, which an interpreter would get wrong."""
    values = folder_of(case, tmp_path, layers=1)
    gpu = on_device(tmp_path, device, torch.bfloat16, matrices=None)
    assert gpu.path == case.formats.replace("plain", "bf16")
    assert ("were widened to bf16" in caplog.text) is ("plain" in case.formats)
    assert_held(gpu, values, torch.bfloat16)
    weights = gpu.forward_pass.weights
    for tensor in (weights.embedding, weights.final_norm, gpu.kv_cache.k):
        assert tensor.dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [HALF], indirect=True)
@pytest.mark.parametrize("case", KEPT.values(), ids=KEPT)
def test_passes_in_half_precision_take_every_format_that_is_kept(
    case: Case, tmp_path: Path, dtype: torch.dtype, device: str
) -> None:
    folder_of(case, tmp_path, layers=1)
    gpu = on_device(tmp_path, device, dtype, matrices=None)
    assert gpu.path == case.formats
    assert_logits_of_the_cpu(gpu, tmp_path, TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["awq, groups of 256", "gptq, groups of 256"])
def test_products_of_groups_of_256_are_those_of_the_files_values(
    name: str, tmp_path: Path, dtype: torch.dtype, device: str
) -> None:
    values = folder_of(CASES[name], tmp_path, layers=1)
    down = on_device(tmp_path, device, dtype, matrices=None).forward_pass.weights.layers[0].down
    x = normal(3, down.inputs, dtype=dtype, device=device)
    out = unwritten(3, down.outputs, dtype=dtype, device=device)
    linear(x, down, out, scratch_for(3, plan(down), device))
    whole = torch.from_numpy(values["model.layers.0.mlp.down_proj.weight"]).to(device)
    assert_close(out, x.double() @ whole.double().T)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_may_have_half_a_group_of_256(rank: int, tmp_path: Path, device: str) -> None:
    case = CASES["awq, groups of 256"]
    values = folder_of(case._replace(shape=WIDE | {"intermediate_size": 256}), tmp_path, layers=1)
    shard = Shard(read_config(tmp_path), rank, 2)
    precision = precision_of(Dtype.AUTO, "cuda:0", shard)
    stored = stored_tensors(PreparedModel("tiny", tmp_path, tmp_path, tmp_path, "0" * 64))
    tensors = {name: shard.cut(name, tensor.read()) for name, tensor in stored.items()}
    weights = loaded(shard.config, tensors, precision, LONGEST, device)
    assert weights.formats == "int4"
    own = values["model.layers.0.mlp.down_proj.weight"][:, 128 * rank : 128 * (rank + 1)]
    assert np.array_equal(dense(weights.layers[0].down).cpu(), own)


@pytest.mark.parametrize(
    ("shape", "ranks", "kept"),
    [
        ({"intermediate_size": 256}, 2, True),
        ({"intermediate_size": 384}, 2, False),
        ({"intermediate_size": 500}, 2, False),
        ({"heads": 4, "intermediate_size": 256}, 2, False),
        (THREE_HEADS | {"intermediate_size": 256}, 2, False),
        (THREE_HEADS | {"intermediate_size": 100}, 1, True),
    ],
    ids=["whole groups", "cut width", "padded width", "cut heads", "padded heads", "one rank"],
)
def test_auto_keeps_formats_where_ranks_have_whole_groups_of_one_size(
    shape: dict[str, Any], ranks: int, kept: bool, tmp_path: Path
) -> None:
    config = read_config(write(tmp_path, **(WIDE | shape)))
    matrices = None if kept else WeightFormat.PLAIN
    for rank in range(ranks):
        found = precision_of(Dtype.AUTO, "cuda:0", Shard(config, rank, ranks))
        assert found == Precision(torch.bfloat16, matrices)


def test_what_settings_name_is_the_precision_of_any_share(tmp_path: Path) -> None:
    shard = Shard(read_config(write(tmp_path)), 0, 3)
    expected = {
        Dtype.FP32: Precision(torch.float32),
        Dtype.BF16: Precision(torch.bfloat16),
        Dtype.FP8: Precision(torch.bfloat16, WeightFormat.FP8),
    }
    assert {dtype: precision_of(dtype, "cuda:0", shard) for dtype in expected} == expected


def test_nested_groups_as_of_q4_k_are_widened_to_their_values(
    tmp_path: Path, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path, layers=1, intermediate_size=256)
    tensors: dict[str, AsStored] = dict(load_file(folder / "model.safetensors"))
    random = np.random.default_rng(0)
    scales, least = random.uniform(1e-4, 1e-3, (2, 64, 1)).astype(np.float16)
    nested = random.integers(1, 64, (2, 64, 8)).astype(np.int8)
    quants = random.integers(0, 16, (64, 256)).astype(np.uint8)
    down = Grouped(Q4_NESTED, quants, scales, -least, *nested)
    tensors["model.layers.0.mlp.down_proj.weight"] = down
    config = on_device(folder, device).config
    weights = loaded(config, tensors, Precision(torch.float32, None), LONGEST, device)
    assert "1 matrices of quants were widened to fp32" in caplog.text
    assert np.array_equal(dense(weights.layers[0].down).cpu(), down.floats())
