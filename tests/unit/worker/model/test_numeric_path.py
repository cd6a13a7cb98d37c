"""Choosing a numeric path: the probe of row independence, and what is remembered."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from outrider.contract.settings import Dtype
from outrider.kernels.cpu.linear import NumericPath
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config_file import read_config
from outrider.worker.model.llama import Llama
from outrider.worker.model.numeric_path import CHOSEN, independent_rows, resolve
from outrider.worker.model.rows import Rows
from tests.tiny_models import write_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "model")


def build(folder: Path, path: NumericPath = NumericPath.INT8, kind: type[Llama] = Llama) -> Llama:
    config = read_config(folder)
    return kind(
        config,
        load_file(folder / "model.safetensors"),
        path,
        HostKVCache(config.kv_shape, 2, 128),
        16,
    )


class OneScale(Llama):
    """A model whose logits feel all rows, as activations with one scale per tensor would."""

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        logits = super().forward(rows)
        step = np.abs(logits).max() / 127
        return np.asarray(np.rint(logits / step) * step, np.float32)


class DifferentAtNine(Llama):
    """A model whose last row differs by one bit beside eight others."""

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        logits = super().forward(rows)
        if rows.count == 9:
            logits[-1, 5] = np.nextafter(logits[-1, 5], np.inf)
        return logits


@pytest.mark.parametrize("path", NumericPath)
def test_every_path_keeps_rows_independent(folder: Path, path: NumericPath) -> None:
    assert independent_rows(build(folder, path))


@pytest.mark.parametrize("kind", [OneScale, DifferentAtNine])
def test_the_probe_finds_rows_that_feel_their_neighbours(folder: Path, kind: type[Llama]) -> None:
    assert not independent_rows(build(folder, kind=kind))


def test_auto_measures_what_it_may_choose_and_remembers_the_fastest(
    folder: Path, tmp_path: Path
) -> None:
    config, weights = read_config(folder), load_file(folder / "model.safetensors")
    chosen = resolve(Dtype.AUTO, config, weights, 1, tmp_path)
    [file] = tmp_path.glob("path-*.json")
    facts = json.loads(file.read_text())
    assert set(facts["seconds"]) == {NumericPath.FP32, NumericPath.BF16, NumericPath.INT8}
    assert facts["path"] == chosen == min(facts["seconds"], key=lambda p: facts["seconds"][p])
    other = next(path for path in CHOSEN if path != chosen)
    file.write_text(json.dumps({"path": other}))
    assert resolve(Dtype.AUTO, config, weights, 1, tmp_path) == other
    for unfit in ("int4", "int3"):
        file.write_text(json.dumps({"path": unfit}))
        assert resolve(Dtype.AUTO, config, weights, 1, tmp_path) in CHOSEN


@pytest.mark.parametrize("path", [NumericPath.BF16, NumericPath.INT4])
def test_a_path_asked_for_by_name_is_taken(folder: Path, tmp_path: Path, path: NumericPath) -> None:
    config, weights = read_config(folder), load_file(folder / "model.safetensors")
    assert resolve(Dtype(path), config, weights, 1, tmp_path) is path
    assert not list(tmp_path.glob("path-*.json"))


def test_measured_paths_are_logged(
    folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    config, weights = read_config(folder), load_file(folder / "model.safetensors")
    resolve(Dtype.AUTO, config, weights, 1, tmp_path)
    assert any("ms int8" in record.getMessage() for record in caplog.records)
