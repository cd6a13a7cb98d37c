"""A model's passes on a device against the CPU's fp32 path."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_as_torch
from safetensors.torch import save_file
from torch import Tensor

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.kernels.gpu.weights import WeightFormat, dense, to_fp8
from outrider.worker.errors import ModelError
from outrider.worker.gpu import weights as gpu_weights
from outrider.worker.gpu.forward import PassLimits
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.weights import Precision, sent
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import Rows, joined, prompt_rows, tree_rows
from tests.gpu_models import FAMILIES, give_kv, loaded, on_cpu, on_device, write
from tests.kv_arrays import keys_by_slot
from tests.quantised_folders import AWQ, awq, quantised

NOTHING = np.empty(0, np.int32)
TOKENS = np.random.default_rng(0).integers(0, 256, 200).astype(np.int32)
TOLERANCE = 1e-4
Models = tuple[Llama, GpuModel]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def every(rows: Rows) -> Rows:
    """The same rows, with logits of all."""
    return dataclasses.replace(rows, outputs=np.arange(rows.count, dtype=np.int32))


def block_table(model: Llama | GpuModel) -> BlockTable:
    found = model.kv_cache.admit(NOTHING, model.kv_cache.longest)
    assert found is not None
    return found


def both(folder: Path, device: str) -> tuple[Models, list[tuple[BlockTable, ...]]]:
    """Two sequences in both models, the first with KV of 150 tokens, the second of 20."""
    cpu = on_cpu(folder)
    gpu = on_device(folder, device)
    block_tables = [(block_table(model), block_table(model)) for model in (cpu, gpu)]
    for own, count in zip(block_tables[0], (150, 20), strict=True):
        for i in range(0, count, 24):
            cpu.forward(prompt_rows(TOKENS[i : min(i + 24, count)], i, own, False))
    give_kv(cpu, gpu)
    return (cpu, gpu), block_tables


def tree(own: BlockTable, root: int) -> Rows:
    """A root, and nodes below it at offsets in no order: two branches of two."""
    offsets = ints(root, root + 7, root + 2, root + 5, root + 3)
    chains = np.zeros((5, 2), np.int32)
    chains[1:] = [[root + 7, 0], [root + 7, root + 2], [root + 5, 0], [root + 5, root + 3]]
    depth = ints(0, 1, 2, 1, 2)
    tokens = TOKENS[root : root + 5]
    return tree_rows(tokens, offsets, own, ints(*[root + 1] * 5), chains, depth)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_cpu(family: str, tmp_path: Path, device: str) -> None:
    """A tree beside a chunk of a prompt, an accepted path that moves, and what comes after it."""
    models, block_tables = both(write(tmp_path, family), device)
    results = []
    for model, (first, second) in zip(models, block_tables, strict=True):
        verified = joined([tree(first, 150), every(prompt_rows(TOKENS[20:26], 20, second, True))])
        logits = [model.forward(verified).copy()]
        model.kv_cache.move(first, ints(155, 153), ints(151, 152))
        last = [(TOKENS[60:61], 153, first), (TOKENS[26:27], 26, second)]
        rows = joined([prompt_rows(*where, True) for where in last])
        results.append(np.concatenate([*logits, model.forward(rows)]))
    assert results[1].shape == results[0].shape
    assert np.abs(results[1] - results[0]).max() <= TOLERANCE


def test_logits_are_those_of_the_outputs_in_their_order(tmp_path: Path, device: str) -> None:
    models, block_tables = both(write(tmp_path, layers=1), device)
    chunk = prompt_rows(TOKENS[20:26], 20, block_tables[1][1], False)
    assert models[1].forward(chunk).shape == (0, 300)
    whole = models[1].forward(every(chunk)).copy()
    some = models[1].forward(dataclasses.replace(chunk, outputs=ints(4, 1)))
    assert np.array_equal(some, whole[[4, 1]])


def test_a_reduced_head_gives_columns_of_the_whole_one(tmp_path: Path, device: str) -> None:
    folder = write(tmp_path, layers=1)
    gpu, tensors = on_device(folder, device), load_file(folder / "model.safetensors")
    ids = (3, 299, 17)
    rows = prompt_rows(TOKENS[:3], 0, block_table(gpu), True)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"][list(ids)]
    config = dataclasses.replace(gpu.config, output_ids=ids)
    weights = loaded(config, tensors, Precision(torch.float32), 192, device)
    reduced = GpuModel(config, weights, "fp32", gpu.kv_cache, PassLimits(24, 2, 3))
    whole = gpu.forward(rows)[:, list(ids)].copy()
    assert np.abs(reduced.forward(rows) - whole).max() <= TOLERANCE


def test_fp8_weights_are_rounded_by_output_and_embedding_and_head_are_not(
    tmp_path: Path, device: str
) -> None:
    folder = write(tmp_path, layers=1)
    tensors = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        if name.endswith("_proj.weight"):
            tensors[name] = dense(to_fp8(torch.from_numpy(value))).numpy()
    gpu = on_device(folder, device, matrices=WeightFormat.FP8)
    cpu = Llama(gpu.config, tensors, NumericPath.FP32, HostKVCache(gpu.config.kv_shape, 3, 192), 24)
    found, expected = (
        model.forward(every(prompt_rows(TOKENS[:2], 0, block_table(model), True)))
        for model in (gpu, cpu)
    )
    assert np.abs(found - expected).max() <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_reach_a_device_as_their_file_has_them(
    dtype: torch.dtype, tmp_path: Path, device: str
) -> None:
    folder = write(tmp_path, layers=1, head_dim=32)
    tensors = {n: x.to(dtype) for n, x in load_as_torch(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    weights = on_device(folder, device, dtype=dtype).forward_pass.weights
    name = "model.layers.0.mlp.down_proj.weight"
    assert torch.equal(weights.layers[0].down.values.cpu(), tensors[name])
    assert torch.equal(weights.final_norm.cpu(), tensors["model.norm.weight"])


def test_a_tensor_travels_in_pieces() -> None:
    tensor = torch.arange(70.0).view(7, 10)
    pieces = list(sent(tensor, "cpu", size=120))
    assert [(begin, len(piece)) for begin, piece in pieces] == [(0, 3), (3, 3), (6, 1)]
    assert torch.equal(torch.cat([piece for _, piece in pieces]), tensor)


def test_numbers_of_four_bits_travel_in_pieces_too(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, layers=1, hidden=128, intermediate_size=256)
    values = quantised(folder, lambda weight: awq(weight, 128), **AWQ)
    lengths: list[int] = []

    def in_pieces(tensor: Tensor, on: str) -> Iterator[tuple[int, Tensor]]:
        for begin, piece in sent(tensor, on, size=40 * 128):
            if piece.dtype is torch.uint8:
                lengths.append(len(piece))
            yield begin, piece

    monkeypatch.setattr(gpu_weights, "sent", in_pieces)
    (layer,) = on_device(folder, device, matrices=None).forward_pass.weights.layers
    assert lengths.count(40) > 1
    for own, names in ((layer.qkv, ("q", "k", "v")), (layer.gates, ("gate", "up"))):
        prefix = "model.layers.0." + ("self_attn" if own is layer.qkv else "mlp")
        expected = np.concatenate([values[f"{prefix}.{name}_proj.weight"] for name in names])
        assert own.format is WeightFormat.INT4
        assert np.array_equal(dense(own).cpu(), expected)


def test_what_cannot_run_is_refused(tmp_path: Path, device: str) -> None:
    folder = write(tmp_path, layers=1)
    model = on_device(folder, device)
    with pytest.raises(ValueError, match="25 rows: a pass takes 1 to 24"):
        model.forward(prompt_rows(TOKENS[:25], 0, block_table(model), True))
    tensors = load_file(folder / "model.safetensors")
    broken = {name: tensor.copy() for name, tensor in tensors.items()}
    broken["model.norm.weight"][3] = np.nan
    with pytest.raises(ModelError, match=r"^model\.norm\.weight holds NaN"):
        loaded(model.config, broken, Precision(torch.float32), 192, device)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    with pytest.raises(ModelError, match=r"lacks model\.layers\.0\.mlp\.up_proj\.weight"):
        loaded(model.config, tensors, Precision(torch.float32), 192, device)


@pytest.mark.parametrize("pairs", [40, 700])
def test_moves_of_a_pass_are_those_of_the_cpu_one_after_the_other(
    pairs: int, tmp_path: Path, device: str
) -> None:
    """Each may read what the one before it wrote; more than one launch holds are no exception."""
    folder = write(tmp_path, layers=1, kv_heads=1)
    generator = np.random.default_rng(pairs)
    model = on_device(folder, device, blocks=12, longest=768)
    cpu, gpu = HostKVCache(model.config.kv_shape, 12, 768), model.kv_cache
    cpu.k_t[:] = generator.standard_normal(cpu.k_t.shape)
    cpu.v[:] = generator.standard_normal(cpu.v.shape)
    gpu.k.copy_(torch.from_numpy(keys_by_slot(cpu.k_t)).transpose(2, 3))
    gpu.v.copy_(torch.from_numpy(cpu.v))
    model.copies.synchronize()
    for _ in range(4):
        slots = [generator.permutation(768)[:pairs].astype(np.int32) for _ in range(2)]
        cpu.move_slots(*slots)
        cpu.run_moves()
        gpu.move_slots(*slots)
    model.forward(prompt_rows(TOKENS[:1], 0, block_table(model), False))
    written = 1  # by that row, at its slot
    keys = keys_by_slot(cpu.k_t).swapaxes(2, 3)
    assert np.array_equal(gpu.k.cpu().numpy()[:, :, written:], keys[:, :, written:])
    assert np.array_equal(gpu.v.cpu().numpy()[:, :, written:], cpu.v[:, :, written:])
