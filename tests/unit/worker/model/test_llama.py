"""The forward pass: rows of a tree have the bits of plain decoding, beside others as alone."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quantize
from safetensors.numpy import load_file

from outrider.kernels.cpu.grouped_packing import encode
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.gguf_blocks import READERS
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.matrix import Matrix, Quantised
from outrider.worker.model.rows import Rows, joined, prompt_rows, tree_rows
from tests.kv_arrays import keys_by_slot
from tests.tiny_models import LONG_ROPE, write_tiny

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama untied": ("llama", {"tie_word_embeddings": False}),
    "llama 3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama odd widths": ("llama", {"hidden": 48, "heads": 6, "kv_heads": 1, "vocab": 301}),
    "mistral window": ("mistral", {"sliding_window": 24}),
    "qwen2 bias": ("qwen2", {"tie_word_embeddings": False}),
    "qwen2 window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    "qwen3 head norms": ("qwen3", {}),
    "gemma3": ("gemma3_text", {}),
    "phi3 window": ("phi3", {"sliding_window": 24}),
    "phi3 long rope": ("phi3", LONG_ROPE),
}
NOTHING = np.empty(0, np.int32)
TOKENS = np.random.default_rng(0).integers(0, 256, 100).astype(np.int32)


def build(
    folder: Path,
    path: NumericPath = NumericPath.FP32,
    threads: int = 1,
    kind: NumericKind | None = None,
    served: int | None = None,
) -> Llama:
    """A model over a pool of two sequences."""
    prepared = PreparedModel("tiny", folder, folder, folder, "0" * 64, served=served)
    config, weights = load(prepared)
    kv_cache = HostKVCache(config.kv_shape, 6, 192)
    return Llama(config, weights, path, kv_cache, 64, PassOptions(threads, kind))


def scattered(model: Llama) -> tuple[BlockTable, BlockTable]:
    """All blocks of the pool as two block tables, the second with its blocks in no order."""
    kv_cache = model.kv_cache
    small = [kv_cache.admit(NOTHING, 64) for _ in range(6)]
    for number in (4, 0, 5):
        kv_cache.free(admitted(small[number]))
    second = admitted(kv_cache.admit(NOTHING, 192))
    for number in (1, 3, 2):
        kv_cache.free(admitted(small[number]))
    assert second.table.tolist() == [5, 0, 4]
    return admitted(kv_cache.admit(NOTHING, 192)), second


def admitted(block_table: BlockTable | None) -> BlockTable:
    assert block_table is not None
    return block_table


def block_table_of(model: Llama) -> BlockTable:
    """The longest block table of a model's pool."""
    return admitted(model.kv_cache.admit(NOTHING, model.kv_cache.longest))


def every(rows: Rows) -> Rows:
    """The same rows, with logits of all."""
    return dataclasses.replace(rows, outputs=np.arange(rows.count, dtype=np.int32))


def run_prompt(
    model: Llama, tokens: np.ndarray, block_table: BlockTable, start: int = 0
) -> np.ndarray:
    """Logits of committed tokens, in chunks of 41."""
    chunks = [
        model.forward(every(prompt_rows(tokens[i : i + 41], start + i, block_table, True))).copy()
        for i in range(0, len(tokens), 41)
    ]
    return np.concatenate(chunks)


def run_chain(
    model: Llama, tokens: np.ndarray, block_table: BlockTable, prefix: int, offsets: np.ndarray
) -> np.ndarray:
    """Logits of a verify pass: a root and a chain of nodes at any offsets, between other rows."""
    nodes = len(tokens)
    ancestors = np.zeros((2 * nodes, nodes), np.int32)
    depth = np.zeros(2 * nodes, np.int32)
    others = np.setdiff1d(prefix + np.arange(4 * nodes + 40), offsets)[:nodes]
    places, all_tokens = np.empty(2 * nodes, np.int32), np.empty(2 * nodes, np.int32)
    for i in range(nodes):
        ancestors[2 * i, : i + 1], ancestors[2 * i + 1, :i] = offsets[: i + 1], offsets[:i]
        ancestors[2 * i + 1, i] = others[i]
        depth[2 * i : 2 * i + 2] = i + 1
        places[2 * i : 2 * i + 2] = offsets[i], others[i]
        all_tokens[2 * i : 2 * i + 2] = tokens[i], 255 - tokens[i]
    prefixes = np.full(2 * nodes, prefix, np.int32)
    rows = tree_rows(all_tokens, places, block_table, prefixes, ancestors, depth)
    return model.forward(rows)[::2].copy()


def some_path_of_each(turn: int) -> pytest.MarkDecorator:
    """Run each model on one path; four tests with other turns run each model on each path."""
    paths = tuple(NumericPath)
    cases = [(name, paths[(i + turn) % len(paths)]) for i, name in enumerate(MODELS)]
    return pytest.mark.parametrize(("folder", "path"), cases, indirect=["folder"])


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    family, fields = MODELS[request.param]
    return write_tiny(tmp_path, family, **fields)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_tiny(tmp_path)


@some_path_of_each(0)
def test_a_tree_row_gives_the_bits_of_plain_decoding(folder: Path, path: NumericPath) -> None:
    model = build(folder, path)
    first, second = scattered(model)
    plain = run_prompt(model, TOKENS[:60], first)
    one_by_one = [run_prompt(model, TOKENS[i : i + 1], first, i) for i in range(60, 70)]
    assert np.array_equal(plain, run_prompt(model, TOKENS[:60], second))
    offsets = 60 + np.random.default_rng(1).permutation(40)[:10].astype(np.int32)
    verified = run_chain(model, TOKENS[60:70], second, 60, offsets)
    assert np.array_equal(verified, np.concatenate(one_by_one))


@pytest.mark.parametrize("path", NumericPath)
def test_accepted_rows_leave_the_kv_of_plain_decoding(llama: Path, path: NumericPath) -> None:
    model = build(llama, path)
    first, second = scattered(model)
    run_prompt(model, TOKENS[:70], first)
    run_prompt(model, TOKENS[:60], second)
    offsets = np.arange(79, 59, -2, dtype=np.int32)  # out of order, overlapping where they go
    run_chain(model, TOKENS[60:70], second, 60, offsets)
    model.kv_cache.move(second, offsets, np.arange(60, 70, dtype=np.int32))
    model.kv_cache.run_moves()
    keys, values = keys_by_slot(model.kv_cache.k_t), model.kv_cache.v
    plain, moved = (
        block_table.slots(np.arange(70, dtype=np.int32)) for block_table in (first, second)
    )
    assert np.array_equal(keys[..., plain], keys[..., moved])
    assert np.array_equal(values[:, :, plain], values[:, :, moved])
    assert keys[..., plain].all()


@some_path_of_each(3)
def test_a_pass_moves_kv_before_it_writes_where_that_was(folder: Path, path: NumericPath) -> None:
    model = build(folder, path, threads=2)
    first, second = scattered(model)
    run_prompt(model, TOKENS[:65], first)
    expected = run_prompt(model, TOKENS[65:70], first, 65)
    run_prompt(model, TOKENS[:60], second)
    offsets = np.arange(69, 59, -2, dtype=np.int32)  # three of them are written by the next pass
    run_chain(model, TOKENS[60:65], second, 60, offsets)
    model.kv_cache.move(second, offsets, np.arange(60, 65, dtype=np.int32))
    assert np.array_equal(run_prompt(model, TOKENS[65:70], second, 65), expected)


@some_path_of_each(1)
def test_rows_of_several_sequences_in_one_pass_give_the_bits_of_each_alone(
    folder: Path, path: NumericPath
) -> None:
    model = build(folder, path)
    first, second = scattered(model)
    run_prompt(model, TOKENS[:50], first)
    parts = [
        every(prompt_rows(TOKENS[50:80], 50, first, True)),
        every(prompt_rows(TOKENS[:30], 0, second, True)),
    ]
    alone = np.concatenate([model.forward(part).copy() for part in parts])
    assert np.array_equal(model.forward(joined(parts)), alone)
    assert np.array_equal(model.forward(joined(parts[::-1]))[:30], alone[30:])


@some_path_of_each(2)
def test_threads_change_no_bit(folder: Path, path: NumericPath) -> None:
    one, three = build(folder, path), build(folder, path, threads=3)
    places = block_table_of(one), block_table_of(three)
    for _ in range(3):
        found = [run_prompt(m, TOKENS, r) for m, r in zip((one, three), places, strict=True)]
        assert np.array_equal(*found)
    found = [run_prompt(m, TOKENS[:1], r) for m, r in zip((one, three), places, strict=True)]
    assert np.array_equal(*found)


PORTABLE = {
    NumericPath.BF16: NumericKind.BF16,
    NumericPath.INT8: NumericKind.INT8,
    NumericPath.INT4: NumericKind.INT4,
}


@pytest.mark.parametrize("path", PORTABLE)
def test_portable_paths_agree_with_those_of_this_machine(llama: Path, path: NumericPath) -> None:
    def run(model: Llama) -> np.ndarray:
        return run_prompt(model, TOKENS, block_table_of(model))

    exact = run(build(llama))
    portable, own = build(llama, path, kind=PORTABLE[path]), build(llama, path)
    error, own_error = (np.abs(run(m) - exact).mean() for m in (portable, own))
    assert 0 < error <= own_error * 1.1  # float32 activations lose less


def test_logits_are_those_of_the_outputs_in_their_order(llama: Path) -> None:
    model = build(llama)
    block_table = block_table_of(model)
    rows = every(prompt_rows(TOKENS[:9], 0, block_table, True))
    whole = model.forward(rows).copy()
    some = dataclasses.replace(rows, outputs=np.array([7, 2], np.int32))
    assert np.array_equal(model.forward(some), whole[[7, 2]])
    assert model.forward(prompt_rows(TOKENS[:9], 0, block_table, False)).shape == (0, 512)


def test_a_reduced_head_gives_columns_of_the_whole_one(llama: Path) -> None:
    config, kv_cache = read_config(llama), HostKVCache(read_config(llama).kv_shape, 1, 64)
    weights = load_file(llama / "model.safetensors")
    ids = (3, 500, 17)
    rows = prompt_rows(TOKENS[:5], 0, admitted(kv_cache.admit(NOTHING, 64)), True)
    whole = Llama(config, weights, NumericPath.FP32, kv_cache, 8).forward(rows)
    reduced = dataclasses.replace(config, output_ids=ids, tied=False)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"][list(ids)]
    found = Llama(reduced, weights, NumericPath.FP32, kv_cache, 8).forward(rows)
    assert np.array_equal(found, whole[:, list(ids)])


@pytest.mark.parametrize(
    "name", ["model.layers.1.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"]
)
def test_weights_that_are_no_numbers_are_refused_by_name(llama: Path, name: str) -> None:
    config, weights = read_config(llama), load_file(llama / "model.safetensors")
    config = dataclasses.replace(config, tied=False)
    weights.setdefault("lm_head.weight", weights["model.embed_tokens.weight"].copy())
    weights[name][-1] = np.nan
    for path in (NumericPath.FP32, NumericPath.INT8):
        with pytest.raises(ModelError, match=rf"^{re.escape(name)} holds NaN"):
            Llama(config, weights, path, HostKVCache(config.kv_shape, 1, 64), 8)


@pytest.mark.parametrize("path", [NumericPath.FP32, NumericPath.INT8, NumericPath.INT4])
def test_quants_whose_scale_is_no_number_are_refused_by_name(
    llama: Path, path: NumericPath
) -> None:
    config, weights = read_config(llama), load_file(llama / "model.safetensors")
    name, kind = "model.layers.1.mlp.down_proj.weight", GGMLQuantizationType.Q8_0
    outputs, inputs = weights[name].shape
    blocks = quantize(weights[name], kind).reshape(outputs, inputs // 32, -1)
    blocks[-1, -1, :2] = 0xFF
    stored = Quantised(blocks, int(kind), (outputs, inputs), READERS[kind])
    for matrix in (stored, stored.grouped()):
        with pytest.raises(ModelError, match=rf"^{re.escape(name)} holds NaN"):
            Llama(config, weights | {name: matrix}, path, HostKVCache(config.kv_shape, 1, 64), 8)


def test_floats_of_16_bits_beside_quants_are_computed_as_they_are(llama: Path) -> None:
    config, stored = read_config(llama), load_file(llama / "model.safetensors")
    halves = {name: x.astype(np.float16).astype(np.float32) for name, x in stored.items()}
    quants = {name: encode(x) for name, x in halves.items() if "mlp" in name}
    values = halves | {name: matrix.floats() for name, matrix in quants.items()}

    def run(weights: Mapping[str, Matrix], path: NumericPath, kind: NumericKind) -> np.ndarray:
        kv_cache = HostKVCache(config.kv_shape, 6, 192)
        model = Llama(config, weights, path, kv_cache, 64, PassOptions(1, kind))
        return run_prompt(model, TOKENS, block_table_of(model))

    exact = run(values, NumericPath.FP32, NumericKind.FP32)
    found, rounded = (
        np.abs(run(weights, NumericPath.INT4, NumericKind.INT4) - exact).max()
        for weights in (halves | quants, values)
    )
    assert found < 1e-4 < rounded


def test_what_cannot_run_is_refused(llama: Path) -> None:
    model = build(llama)
    with pytest.raises(ValueError, match="65 rows: a pass takes 1 to 64"):
        model.forward(prompt_rows(TOKENS[:65], 0, block_table_of(model), True))
    weights = load_file(llama / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ModelError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        Llama(model.config, weights, NumericPath.FP32, model.kv_cache, 8)
