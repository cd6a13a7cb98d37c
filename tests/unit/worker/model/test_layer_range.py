"""Stages of a model: each loads its own tensors alone, and together they give the model's bits."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import load_part
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.rows import Rows, joined, prompt_rows, tree_rows
from outrider.worker.pipeline.cut import cut_as_given
from tests.tiny_models import write_shards, write_tiny

LAYERS = 5
CUTS = ((5,), (2, 3), (1, 2, 1, 1), (1, 1, 1, 1, 1))
MODELS = {
    "llama": ("llama", True),
    "llama untied": ("llama", False),
    "mistral window": ("mistral", True),
    "qwen2 bias and window": ("qwen2", False),
    "qwen3 head norms": ("qwen3", True),
    "gemma3": ("gemma3_text", True),
    "phi3": ("phi3", True),
}
Floats = NDArray[np.float32]


def prepared(folder: Path) -> PreparedModel:
    return PreparedModel("tiny", folder, folder, folder, "0" * 64)


def stage_of(
    folder: Path,
    layers: LayerRange,
    path: NumericPath = NumericPath.FP32,
    threads: int = 1,
) -> Llama:
    model = prepared(folder)
    whole = model.config()
    config = layers.config(whole)
    weights = tensors_of(folder, layers)
    kv_cache = HostKVCache(config.kv_shape, 4, 192)
    return Llama(config, weights, path, kv_cache, 64, PassOptions(threads, layers=layers))


def tensors_of(folder: Path, layers: LayerRange) -> dict[str, Floats]:
    """What a stage loads."""
    model = prepared(folder)
    whole = model.config()
    return load_part(model, lambda name, tensor: tensor, lambda name: layers.holds(name, whole))


def through(stages: list[Llama], rows: Rows) -> Floats:
    """Logits of the last stage."""
    hidden: Floats | None = None
    for stage in stages:
        hidden = stage.forward_layers(rows, hidden).copy()
    assert hidden is not None
    return hidden


def passes(kv_cache: HostKVCache) -> list[Rows]:
    """Two prompts in one pass, then a tree behind each of them, in one pass."""
    random = np.random.default_rng(0)
    tables = [kv_cache.admit(np.empty(0, np.int32), 100) for _ in range(2)]
    prompts, trees = [], []
    for table, length in zip(tables, (30, 17), strict=True):
        assert table is not None
        tokens = random.integers(0, 256, length).astype(np.int32)
        prompts.append(prompt_rows(tokens, 0, table, True))
        offsets = length + np.array([0, 5, 2, 9], np.int32)
        chains = [(0,), (0, 1), (0, 2), (0, 1, 3)]
        ancestors = np.zeros((4, 3), np.int32)
        for row, chain in enumerate(chains):
            ancestors[row, : len(chain)] = offsets[list(chain)]
        depth = np.array([len(chain) for chain in chains], np.int32)
        tokens = random.integers(0, 256, 4).astype(np.int32)
        prefix = np.full(4, length, np.int32)
        trees.append(tree_rows(tokens, offsets, table, prefix, ancestors, depth))
    return [joined(prompts), joined(trees)]


@pytest.mark.parametrize(
    ("model", "counts"),
    [(model, (1, 3, 1)) for model in MODELS] + [("llama untied", counts) for counts in CUTS],
)
def test_stages_together_give_the_bits_of_the_whole_model(
    tmp_path: Path, model: str, counts: tuple[int, ...]
) -> None:
    family, tied = MODELS[model]
    window = {"sliding_window": 24, "use_sliding_window": True, "max_window_layers": 2}
    write_tiny(tmp_path, family, layers=LAYERS, tie_word_embeddings=tied, **window)
    whole = stage_of(tmp_path, LayerRange(0, LAYERS, LAYERS))
    stages = [stage_of(tmp_path, layers) for layers in cut_as_given(LAYERS, counts)]
    for rows in passes(whole.kv_cache):
        expected = whole.forward(rows).copy()
        assert np.array_equal(through(stages, rows), expected)
        assert np.isfinite(expected).all()


@pytest.mark.parametrize("path", [NumericPath.BF16, NumericPath.INT8, NumericPath.INT4])
def test_stages_give_the_same_bits_on_every_numeric_path(tmp_path: Path, path: NumericPath) -> None:
    write_tiny(tmp_path, layers=3)
    whole = stage_of(tmp_path, LayerRange(0, 3, 3), path)
    stages = [stage_of(tmp_path, layers, path, threads=2) for layers in cut_as_given(3, (1, 2))]
    for rows in passes(whole.kv_cache):
        assert np.array_equal(through(stages, rows), whole.forward(rows))
    for stage in stages:
        stage.close()


def test_hidden_states_are_for_stages_behind_the_first(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    first, last = (stage_of(tmp_path, layers) for layers in cut_as_given(2, (1, 1)))
    rows = passes(first.kv_cache)[0]
    with pytest.raises(ValueError, match="hidden states are for stages behind the first"):
        first.forward_layers(rows, np.zeros((rows.count, 64), np.float32))
    with pytest.raises(ValueError, match="hidden states are for stages behind the first"):
        last.forward_layers(rows, None)


@pytest.mark.parametrize("tied", [True, False])
def test_a_stage_reads_its_own_tensors_alone(tmp_path: Path, tied: bool) -> None:
    """Tensors of other stages are of a dtype that cannot be read."""
    write_tiny(tmp_path, layers=3, tie_word_embeddings=tied)
    whole = prepared(tmp_path).config()
    good = load_file(tmp_path / "model.safetensors")
    everything: set[str] = set()
    for layers in cut_as_given(3, (1, 1, 1)):
        own = {name: value for name, value in good.items() if layers.holds(name, whole)}
        others = {name: value.astype(np.int32) for name, value in good.items() if name not in own}
        assert others
        save_file(own | others, tmp_path / "model.safetensors")
        stage = tensors_of(tmp_path, layers)
        assert stage.keys() == own.keys()
        everything |= own.keys()
    assert everything == good.keys()


def test_a_stage_opens_only_the_files_that_hold_its_layers(tmp_path: Path) -> None:
    folder = write_shards(write_tiny(tmp_path / "whole", layers=4), tmp_path / "cut")
    whole = prepared(folder).config()
    layers = LayerRange(1, 2, 4)
    places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {file for name, file in places.items() if layers.holds(name, whole)}
    lost = set(places.values()) - needed
    assert lost
    for file in lost:
        (folder / file).unlink()
    stage = load_part(prepared(folder), lambda n, t: t, lambda n: layers.holds(n, whole))
    assert all(name.startswith("model.layers.1.") for name in stage)
    (folder / next(iter(needed))).unlink()
    with pytest.raises(ModelError, match="does not exist"):
        load_part(prepared(folder), lambda n, t: t, lambda n: layers.holds(n, whole))


def test_a_tensor_that_a_stage_lacks_is_named(tmp_path: Path) -> None:
    write_tiny(tmp_path, layers=2)
    whole = prepared(tmp_path).config()
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    first, last = cut_as_given(2, (1, 1))
    load_part(prepared(tmp_path), lambda n, t: t, lambda n: first.holds(n, whole))
    with pytest.raises(ModelError, match=r"1 missing: model\.layers\.1\.mlp\.up_proj\.weight"):
        load_part(prepared(tmp_path), lambda n, t: t, lambda n: last.holds(n, whole))
