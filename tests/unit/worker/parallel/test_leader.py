"""One model over several ranks: the numbers of one process, the same bits on every rank."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import joined, prompt_rows, tree_rows
from outrider.worker.parallel.leader import LeadingModel
from tests.pairwise import pairwise
from tests.tiny_models import write_tiny
from tests.unit.worker.parallel.rank_threads import shared_model

NOTHING = np.empty(0, np.int32)
TOKENS = np.random.default_rng(0).integers(0, 256, 60).astype(np.int32)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"hidden": 72, "heads": 9, "kv_heads": 3, "vocab": 301}),
    "mistral": ("mistral", {"sliding_window": 24, "tie_word_embeddings": False}),
    "qwen2": ("qwen2", {"intermediate_size": 100}),
    "qwen3": ("qwen3", {"heads": 4, "kv_heads": 1}),
    "gemma3": ("gemma3_text", {}),
    "phi3": ("phi3", {"sliding_window": 24}),
}


def whole(folder: Path) -> Llama:
    config, weights = load(PreparedModel("tiny", folder, folder, folder, "0" * 64))
    return Llama(config, weights, NumericPath.FP32, HostKVCache(config.kv_shape, 6, 192), 64)


def block_table_of(model: Llama | LeadingModel) -> BlockTable:
    block_table = model.kv_cache.admit(NOTHING, model.kv_cache.longest)
    assert block_table is not None
    return block_table


def answer(model: Llama | LeadingModel) -> np.ndarray:
    """Logits of a prompt, of a tree behind it, and of a token after an accepted path."""
    block_table = block_table_of(model)
    found = [model.forward(prompt_rows(TOKENS[:41], 0, block_table, True)).copy()]
    model.forward(prompt_rows(TOKENS[41:50], 41, block_table, False))
    offsets = np.array([50, 51, 52, 53], np.int32)
    ancestors = np.array([[50, 0, 0], [50, 51, 0], [50, 52, 0], [50, 52, 53]], np.int32)
    depth = np.array([1, 2, 2, 3], np.int32)
    prefix = np.full(4, 50, np.int32)
    tree = tree_rows(TOKENS[50:54], offsets, block_table, prefix, ancestors, depth)
    found.append(model.forward(tree).copy())
    model.kv_cache.move(block_table, np.array([52, 53], np.int32), np.array([51, 52], np.int32))
    found.append(model.forward(prompt_rows(TOKENS[54:55], 53, block_table, True)).copy())
    model.kv_cache.free(block_table)
    return np.concatenate(found)


@pytest.mark.parametrize(
    ("family", "degree"),
    [
        ("llama", 2),
        ("llama", 3),
        ("mistral", 2),
        ("qwen2", 4),
        ("qwen3", 3),
        ("qwen3", 4),
        ("gemma3", 2),
        ("phi3", 3),
    ],
)
def test_ranks_give_the_logits_of_one_process(tmp_path: Path, family: str, degree: int) -> None:
    name, fields = MODELS[family]
    folder = write_tiny(tmp_path, name, **fields)
    expected = answer(whole(folder))
    with shared_model(folder, degree) as model:
        given = answer(model)
    assert given.shape == expected.shape
    assert np.abs(given - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("path", "degree", "memory"),
    pairwise(path=NumericPath, degree=[3, 4], memory=[True, False]),
)
def test_a_row_keeps_its_bits_beside_any_others(
    tmp_path: Path, path: NumericPath, degree: int, memory: bool
) -> None:
    """Whatever runs beside it, and wherever in the batch it stands: ranks add in one order."""
    folder = write_tiny(tmp_path, hidden=96, heads=6, kv_heads=3)
    with shared_model(folder, degree, path, memory=memory) as model:
        first = region_of_half(model)
        second = region_of_half(model)
        for block_table in (first, second):
            model.forward(prompt_rows(TOKENS[:40], 0, block_table, False))
        alone = model.forward(prompt_rows(TOKENS[40:41], 40, first, True)).copy()
        for before in (1, 2, 5, 17):
            other = prompt_rows(TOKENS[:before], 40, second, False)
            row = prompt_rows(TOKENS[40:41], 40, first, True)
            beside = model.forward(joined([other, row]))
            assert np.array_equal(beside, alone), before


def region_of_half(model: LeadingModel) -> BlockTable:
    block_table = model.kv_cache.admit(NOTHING, 128)
    assert block_table is not None
    return block_table


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_equal_passes_give_equal_bits(tmp_path: Path, family: str) -> None:
    """Twice, with two threads a rank, and whichever way parts travel."""
    folder = write_tiny(tmp_path, family, hidden=96, heads=6, kv_heads=3)
    with shared_model(folder, 3) as model:
        one = answer(model)
        again = answer(model)
    with shared_model(folder, 3, threads=2) as model:
        threaded = answer(model)
    with shared_model(folder, 3, memory=False) as model:
        sent = answer(model)
    for other in (again, threaded, sent):
        assert np.array_equal(one, other)
