"""Threads that wait in compiled code from pass to pass, and what two models share."""

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import Rows, prompt_rows
from tests.tiny_models import write_tiny
from tests.unit.worker.model.test_llama import block_table_of, build

TOKENS = np.arange(7, dtype=np.int32)
PATIENCE = 30.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def rows_of(model: Llama) -> Rows:
    return prompt_rows(TOKENS, 0, block_table_of(model), wants_output=True)


def test_helpers_that_sleep_are_woken(folder: Path) -> None:
    one, three = build(folder), build(folder, threads=3)
    alone, together = rows_of(one), rows_of(three)
    for _ in range(3):
        assert np.array_equal(one.forward(alone), three.forward(together))
        until(lambda: three.pass_threads.asleep)
    three.close()


def test_two_models_take_turns_on_the_same_threads(folder: Path) -> None:
    """One of them uses fewer: its passes go by the third thread."""
    before = threading.active_count()
    alone = build(folder)
    first, second = build(folder, threads=3), build(folder, NumericPath.INT8, threads=2)
    first.share_threads(second)
    assert threading.active_count() == before + 2
    expected = build(folder, NumericPath.INT8)
    inputs = [rows_of(model) for model in (alone, first, second, expected)]
    for _ in range(20):
        assert np.array_equal(alone.forward(inputs[0]), first.forward(inputs[1]))
        assert np.array_equal(expected.forward(inputs[3]), second.forward(inputs[2]))
    first.close()
    assert threading.active_count() == before


def test_a_model_that_is_dropped_ends_its_threads(folder: Path) -> None:
    before = threading.active_count()
    model = build(folder, threads=3)
    model.forward(rows_of(model))
    assert threading.active_count() == before + 2
    del model
    gc.collect()
    assert threading.active_count() == before
