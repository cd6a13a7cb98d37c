"""Weights that leave their memory for a file, and come back to the same addresses."""

import contextlib
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.movable_weights import CopyFailed, MovableWeights
from outrider.worker.model.rows import prompt_rows
from tests.resident_memory import resident_between
from tests.tiny_models import write_tiny

TOKENS = np.random.default_rng(0).integers(0, 256, 40).astype(np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@contextlib.contextmanager
def built(folder: Path, path: NumericPath, host: Path) -> Iterator[tuple[Llama, MovableWeights]]:
    config = read_config(folder)
    kv_cache = HostKVCache(config.kv_shape, 2, 128)
    weights = load_file(folder / "model.safetensors")
    model = Llama(config, weights, path, kv_cache, 64, PassOptions(host_folder=host))
    assert model.movable is not None
    yield model, model.movable
    model.close()


def logits(model: Llama) -> np.ndarray:
    block_table = model.kv_cache.admit(TOKENS, len(TOKENS))
    assert block_table is not None
    found = model.forward(prompt_rows(TOKENS, 0, block_table, True)).copy()
    model.kv_cache.free(block_table)
    return found


def resident(weights: MovableWeights) -> int:
    first = weights.weights.down.weights
    return resident_between(first.ctypes.data, first.ctypes.data + first.nbytes)


def wait(weights: MovableWeights) -> None:
    deadline = time.monotonic() + 60
    while not weights.finished():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for resident pages")
@pytest.mark.parametrize("path", [NumericPath.FP32, NumericPath.INT8])
def test_passes_after_a_return_have_the_same_bits(
    folder: Path, tmp_path: Path, path: NumericPath
) -> None:
    with built(folder, path, tmp_path) as (model, weights):
        before, matrix = logits(model), weights.weights.down.weights
        for _ in range(2):
            weights.offload()
            wait(weights)
            assert resident(weights) < matrix.nbytes / 2
            assert not matrix.any(), "its memory is gone, its addresses are not"
            weights.reload()
            wait(weights)
            assert np.array_equal(logits(model), before)
    assert list(tmp_path.iterdir()) == [], "nobody else can open the file, nothing is left of it"


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files as Linux does")
def test_weights_that_cannot_be_written_stay(folder: Path, tmp_path: Path) -> None:
    with built(folder, NumericPath.FP32, tmp_path) as (model, weights):
        before = logits(model)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
        try:
            weights.offload()
            with pytest.raises(CopyFailed, match="File too large"):
                wait(weights)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert np.array_equal(logits(model), before)
        weights.offload()
        wait(weights)
        weights.reload()
        wait(weights)
        assert np.array_equal(logits(model), before)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for resident pages")
def test_weights_that_cannot_be_read_take_no_memory(folder: Path, tmp_path: Path) -> None:
    with built(folder, NumericPath.FP32, tmp_path) as (model, weights):
        before, matrix = logits(model), weights.weights.down.weights
        weights.offload()
        wait(weights)
        file = weights._file
        assert file is not None
        file.seek(weights.bytes - 1)
        last = file.read(1)
        file.truncate(weights.bytes - 1)
        weights.reload()
        with pytest.raises(CopyFailed, match="the file of weights ends after"):
            wait(weights)
        assert resident(weights) < matrix.nbytes / 2
        file.seek(weights.bytes - 1)
        file.write(last)
        weights.reload()
        wait(weights)
        assert np.array_equal(logits(model), before)


def test_weights_without_a_file_or_a_thread_stay(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with built(folder, NumericPath.FP32, tmp_path / "missing") as (model, weights):
        before = logits(model)
        weights.offload()
        with pytest.raises(CopyFailed, match="No such file"):
            wait(weights)
        monkeypatch.setattr(threading.Thread, "start", refused)
        with pytest.raises(CopyFailed, match="can't start new thread"):
            weights.offload()
        assert not weights.finished()
        assert np.array_equal(logits(model), before)


def test_what_is_mapped_from_a_checkpoint_is_not_copied(folder: Path, tmp_path: Path) -> None:
    prepared = PreparedModel("tiny", folder, folder, folder, "0" * 64)
    config, weights = load(prepared)
    model = Llama(
        config,
        weights,
        NumericPath.FP32,
        HostKVCache(config.kv_shape, 2, 128),
        64,
        PassOptions(host_folder=tmp_path),
    )
    assert model.movable is not None
    embedding = model.movable.weights.embedding
    assert np.shares_memory(embedding, weights["model.embed_tokens.weight"])
    moved = sum(x.nbytes for x in model.movable.weights.gates)
    assert moved < model.movable.bytes < moved * 10
    model.close()
