"""Threads that wait in compiled code from pass to pass, and what two models share."""

import gc
import threading
import time
from collections.abc import Callable, Sequence
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


def alive(threads: Sequence[threading.Thread]) -> int:
    """How many of them have not ended."""
    return sum(thread.is_alive() for thread in threads)


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
    alone = build(folder)
    first, second = build(folder, threads=3), build(folder, NumericPath.INT8, threads=2)
    own = (*first.pass_threads.helpers, *second.pass_threads.helpers)
    first.share_threads(second)
    assert alive(own) == 0
    shared = first.pass_threads.helpers
    assert second.pass_threads.helpers is shared
    assert alive(shared) == len(shared) == 2
    expected = build(folder, NumericPath.INT8)
    inputs = [rows_of(model) for model in (alone, first, second, expected)]
    for _ in range(20):
        assert np.array_equal(alone.forward(inputs[0]), first.forward(inputs[1]))
        assert np.array_equal(expected.forward(inputs[3]), second.forward(inputs[2]))
    first.close()
    assert alive(shared) == 0


def test_a_model_that_is_dropped_ends_its_threads(folder: Path) -> None:
    model = build(folder, threads=3)
    model.forward(rows_of(model))
    helpers = model.pass_threads.helpers
    assert alive(helpers) == 2
    del model
    gc.collect()
    assert alive(helpers) == 0
