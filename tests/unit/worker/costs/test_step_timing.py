"""Measuring step costs, and what is remembered between processes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.costs.measurement_cache import KERNELS
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.costs.step_timing import (
    DOUBTS,
    MIN_PREFILL_SHARE,
    MOST_DOUBTS,
    NO_TOKENS,
    Finding,
    TimedPass,
    borrowed,
    chain_rows,
    finding_of,
    least_seconds,
    measure,
    measured_costs,
    prefill_share,
)
from outrider.worker.host.disk_cache import sources_sha256
from outrider.worker.kv.block_pool import BlockPool
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from tests.tiny_models import write_tiny


@pytest.fixture
def model(tmp_path: Path) -> Llama:
    write_tiny(tmp_path)
    config = read_config(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    return Llama(config, weights, NumericPath.FP32, HostKVCache(config.kv_shape, 4, 200), 8)


def remembered_file(folder: Path) -> Path:
    [file] = folder.glob("costs-*.json")
    return file


def test_measuring_fills_the_table_and_gives_the_region_back(model: Llama, tmp_path: Path) -> None:
    costs = measured_costs(model, 1, tmp_path)
    assert costs.rows == (1, 2, 3, 4, 6, 8)
    assert costs.contexts == (124, 248)
    assert model.kv_cache.used == 0
    assert json.loads(remembered_file(tmp_path).read_text()) == json.loads(
        json.dumps(costs.to_json())
    )


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [1], "contexts": 3, "seconds": 4}'])
def test_a_damaged_memo_costs_only_measuring_again(model: Llama, tmp_path: Path, text: str) -> None:
    measured_costs(model, 1, tmp_path)
    remembered_file(tmp_path).write_text(text)
    assert measured_costs(model, 1, tmp_path).rows == (1, 2, 3, 4, 6, 8)
    assert json.loads(remembered_file(tmp_path).read_text())["rows"] == [1, 2, 3, 4, 6, 8]


def test_remembered_costs_that_are_far_off_are_measured_afresh(
    model: Llama, tmp_path: Path
) -> None:
    slow = measured_costs(model, 1, tmp_path)
    file = remembered_file(tmp_path)
    wrong = StepCosts(slow.rows, slow.contexts, slow.measured * 100)
    file.write_text(json.dumps(wrong.to_json()))
    assert measured_costs(model, 1, tmp_path).seconds(1, 124) < wrong.seconds(1, 124) / 10


def test_remembered_costs_of_the_right_level_and_wrong_rows_are_measured_afresh(
    model: Llama, tmp_path: Path
) -> None:
    right = measured_costs(model, 1, tmp_path)
    file = remembered_file(tmp_path)
    tilted = right.measured * np.geomspace(1.0, 16.0, len(right.rows)) / 4.0  # 8 rows: 4, 1: 1/4
    file.write_text(json.dumps(StepCosts(right.rows, right.contexts, tilted).to_json()))
    measured_costs(model, 1, tmp_path)
    assert json.loads(file.read_text())["seconds"] != tilted.tolist()


def test_the_least_time_of_each_pass_counts() -> None:
    one, other = iter([3.0, 1.0]), iter([5.0, 6.0])
    assert least_seconds([lambda: next(one), lambda: next(other)], spend=0.0) == [1.0, 5.0]


class EvenPasses(TimedPass):
    """Passes whose seconds change evenly with rows, with sequences and with their context."""

    def once(self, rows: int, context: int, sequences: int = 1) -> float:
        return 4.0 + 0.25 * rows + sequences * (0.5 + context / 256)

    def prefill(self, rows: int, context: int) -> float:
        return self.once(rows, context) - 0.125 * rows


def test_few_measured_passes_say_what_every_pass_takes(model: Llama) -> None:
    tables = [table for _ in range(4) if (table := model.kv_cache.admit(NO_TOKENS, 40))]
    passes = EvenPasses(model, tables)
    costs = measure(model, passes)
    assert costs.batches == (1, 4)
    for batch, sequences in enumerate(costs.batches):
        for c, context in enumerate(costs.contexts):
            exact = [passes.once(rows, context, sequences) for rows in costs.rows]
            assert costs.measured[batch, c] == pytest.approx(exact)


class ColdPasses(EvenPasses):
    """Those, where a pass takes two seconds more after one of more than twice as many rows."""

    before = 64

    def once(self, rows: int, context: int, sequences: int = 1) -> float:
        cold, self.before = self.before > 2 * rows, rows
        return super().once(rows, context, sequences) + 2.0 * cold


def test_no_pass_is_measured_after_one_of_many_more_rows(model: Llama) -> None:
    table = model.kv_cache.admit(NO_TOKENS, 40)
    assert table is not None
    passes = ColdPasses(model, [table])
    costs = measure(model, passes)
    exact = [EvenPasses.once(passes, rows, costs.contexts[0]) for rows in costs.rows]
    assert len(exact) > 2
    assert costs.measured[0, 0] == pytest.approx(exact)


def test_made_up_rows_are_a_chain_behind_the_context() -> None:
    kv_cache = BlockPool(3, 128)
    kv_cache.admit(np.empty(0, np.int32), 64)
    with borrowed(kv_cache) as block_table:
        rows = chain_rows(3, 62, block_table, 11)
    assert rows.slots.tolist() == [126, 127, 128]
    assert rows.positions.tolist() == [62, 63, 64]
    chains = [rows.ancestors[i, : rows.depth[i]].tolist() for i in range(3)]
    assert chains == [[62], [62, 63], [62, 63, 64]]
    assert rows.tokens.max() < 11


@pytest.mark.parametrize("source", ["cpu/linear.py", "gpu/attention.py", "jit/compiled.py"])
def test_a_change_of_any_kernel_is_another_measurement(tmp_path: Path, source: str) -> None:
    copies = [shutil.copytree(KERNELS, tmp_path / name) for name in ("as it is", "changed")]
    assert sources_sha256(copies[0]) == sources_sha256(KERNELS)
    with (copies[1] / source).open("a") as file:
        file.write("# another line")
    assert sources_sha256(copies[1]) != sources_sha256(KERNELS)


@pytest.mark.parametrize(
    ("prefill", "share"), [(8.0, 0.75), (10.0, 1.0), (11.0, 1.0), (2.5, MIN_PREFILL_SHARE)]
)
def test_a_prefill_row_costs_a_part_of_one_with_logits(prefill: float, share: float) -> None:
    assert prefill_share(one=2.0, most=10.0, prefill=prefill) == share


def test_where_rows_cost_nothing_prefill_rows_cost_the_same() -> None:
    assert prefill_share(one=2.0, most=2.0, prefill=1.0) == 1.0


@pytest.mark.parametrize(
    ("one", "several", "finding"),
    [
        (1.0, 1.0, Finding.RIGHT),
        (1.2, 1.2, Finding.RIGHT),
        (0.85, 0.85, Finding.RIGHT),  # a tenth faster at once, and both alike: within the noise
        (1.3, 1.3, Finding.SLOWER),
        (1.0, 1.5, Finding.SLOWER),
        (1.5, 1.0, Finding.SLOWER),
        (0.95, 1.2, Finding.SLOWER),
        (0.7, 0.7, Finding.WRONG),
        (1.0, 0.8, Finding.WRONG),
        (0.8, 1.0, Finding.WRONG),
        (0.8, 3.0, Finding.WRONG),
    ],
)
def test_only_passes_that_take_less_say_that_the_memory_is_wrong(
    one: float, several: float, finding: Finding
) -> None:
    assert finding_of(one, several) is finding


def test_passes_that_are_slower_are_measured_afresh_by_the_third_start_in_a_row(
    model: Llama, tmp_path: Path
) -> None:
    right = measured_costs(model, 1, tmp_path)
    file = remembered_file(tmp_path)
    quick = StepCosts(right.rows, right.contexts, right.measured / 100)  # as no machine can be
    file.write_text(json.dumps(quick.to_json()))
    for _ in range(MOST_DOUBTS - 1):
        assert measured_costs(model, 1, tmp_path).seconds(1, 124) == quick.seconds(1, 124)
    assert measured_costs(model, 1, tmp_path).seconds(1, 124) > 10 * quick.seconds(1, 124)
    assert DOUBTS not in json.loads(file.read_text())


def test_a_cache_that_cannot_be_written_costs_only_measuring_again(
    model: Llama, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert measured_costs(model, 1, tmp_path / "file" / "cache").rows == (1, 2, 3, 4, 6, 8)
