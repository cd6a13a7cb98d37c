"""Choosing a numeric path: the probe of row independence, and what is remembered."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from outrider.contract.settings import Dtype, Role
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.costs.numeric_path import (
    CHOSEN,
    NARROW,
    PathChoice,
    admitted,
    auto_curves,
    choose,
    compared,
    independent_rows,
    known_curves,
    resolve,
    worth_timing,
)
from outrider.worker.costs.path_timing import (
    HOPELESS,
    ROWS,
    SHARES,
    Curve,
    hopeful,
    mean_pass,
)
from outrider.worker.errors import ModelError
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
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

    def forward_layers(self, rows: Rows, hidden: NDArray[np.float32] | None) -> NDArray[np.float32]:
        logits = super().forward_layers(rows, hidden)
        step = np.abs(logits).max(initial=np.finfo(np.float32).tiny) / 127  # of a prompt: none
        return np.asarray(np.rint(logits / step) * step, np.float32)


class DifferentAtNine(Llama):
    """A model whose last row differs by one bit beside eight others."""

    def forward_layers(self, rows: Rows, hidden: NDArray[np.float32] | None) -> NDArray[np.float32]:
        logits = super().forward_layers(rows, hidden)
        if rows.count == 9:
            logits[-1, 5] = np.nextafter(logits[-1, 5], np.inf)
        return logits


@pytest.mark.parametrize("path", NumericPath)
def test_every_path_keeps_rows_independent(folder: Path, path: NumericPath) -> None:
    assert independent_rows(build(folder, path))


@pytest.mark.parametrize("kind", [OneScale, DifferentAtNine])
def test_the_probe_finds_rows_that_feel_their_neighbours(folder: Path, kind: type[Llama]) -> None:
    assert not independent_rows(build(folder, kind=kind))


def facts(folder: Path) -> tuple[Path, dict[str, dict[str, float]]]:
    [file] = folder.glob("curves-*.json")
    return file, json.loads(file.read_text())


def test_auto_measures_what_it_may_choose_and_remembers_the_curves(
    folder: Path, tmp_path: Path
) -> None:
    config, weights = read_config(folder), load_file(folder / "model.safetensors")
    choice = resolve(Dtype.AUTO, Role.TARGET, config, weights, 1, tmp_path)
    file, curves = facts(tmp_path)
    assert set(curves) == set(choice.seconds) == set(CHOSEN)
    assert all(seconds > 0 for curve in curves.values() for seconds in curve.values())
    curves["bf16"] = {rows: 1e-9 for rows in curves["bf16"]}
    file.write_text(json.dumps(curves))
    for role in Role:
        again = resolve(Dtype.AUTO, role, config, weights, 1, tmp_path)
        assert again.path is NumericPath.BF16
        assert str(again).startswith("bf16 (ms a pass: fp32 ")


@pytest.mark.parametrize("unfit", ["[]", "{}", '{"int3": {}}', '{"int8": {"1": 0.1}}', "nonsense"])
def test_facts_that_are_no_curves_are_measured_again(
    folder: Path, tmp_path: Path, unfit: str
) -> None:
    config, weights = read_config(folder), load_file(folder / "model.safetensors")
    known_curves((NumericPath.INT8,), config, weights, 1, tmp_path)
    facts(tmp_path)[0].write_text(unfit)
    curves = known_curves((NumericPath.INT8,), config, weights, 1, tmp_path)
    assert set(curves) == {NumericPath.INT8}
    assert set(curves[NumericPath.INT8]) == set(ROWS)


@pytest.mark.parametrize(
    ("bf16", "int8", "worth"),
    [
        (NumericKind.BF16, NumericKind.INT8_AVX2, ["int8"]),
        (NumericKind.BF16_AVX512, NumericKind.INT8_AVX512, ["int8"]),
        (NumericKind.BF16, NumericKind.INT8_DOTPROD, ["int8"]),
        (NumericKind.BF16, NumericKind.INT8, ["fp32", "bf16", "int8"]),  # without instructions
        (NumericKind.BF16_AVX512, NumericKind.INT8, ["bf16", "int8"]),  # beats fp32 alone
    ],
)
def test_a_path_is_timed_where_none_reads_half_and_multiplies_twice_as_much_at_once(
    bf16: NumericKind, int8: NumericKind, worth: list[str]
) -> None:
    assert list(map(str, worth_timing([NumericKind.FP32, bf16, int8]))) == worth


def test_all_paths_are_compared_for_a_model_so_narrow_that_linear_layers_are_not_most_of_it(
    folder: Path,
) -> None:
    config = read_config(folder)
    narrow, wide = (dataclasses.replace(config, hidden=n) for n in (NARROW - 1, NARROW))
    assert compared(narrow) == CHOSEN
    assert NumericPath.INT8 in compared(wide)


class Mixing:
    """Measures paths, some of which mix rows."""

    def __init__(self, refused: set[NumericPath]) -> None:
        self.refused = refused
        self.asked: list[Sequence[NumericPath]] = []

    def __call__(self, paths: Sequence[NumericPath]) -> Mapping[NumericPath, Curve]:
        self.asked.append(paths)
        curves = {path: dict.fromkeys(ROWS, 1.0) for path in paths if path not in self.refused}
        if not curves:
            raise ModelError("rows depend on their neighbours")
        return curves


def test_where_the_paths_worth_timing_mix_rows_the_others_are_compared() -> None:
    first = (NumericPath.INT8,)
    measure = Mixing(set(first))
    curves = auto_curves(measure, first)
    assert measure.asked == [first, CHOSEN]
    assert set(curves) == set(CHOSEN) - set(first)
    with pytest.raises(ModelError):
        auto_curves(Mixing(set(CHOSEN)), first)


def scaled(curve: dict[int, float], factor: float) -> dict[int, float]:
    return {rows: factor * seconds for rows, seconds in curve.items()}


AVX2_INT8 = {1: 8.3, 2: 9.8, 4: 14.7, 8: 35.8, 16: 77.0, 32: 160.0, 64: 335.0}
"""Milliseconds of a processor with AVX2 alone, on which further rows are dear in any path."""


@pytest.mark.parametrize("role", Role)
def test_the_path_that_is_slower_for_one_user_is_not_taken_for_a_noisy_measurement_of_many_rows(
    role: Role,
) -> None:
    bf16 = scaled(AVX2_INT8, 1.35)
    for noisy in (8, 16):  # what bf16 was once taken for: a good moment at eight rows
        curves = {NumericPath.BF16: bf16 | {noisy: AVX2_INT8[noisy]}, NumericPath.INT8: AVX2_INT8}
        assert choose(curves, role).path is NumericPath.INT8


def test_rows_count_by_how_often_a_role_runs_them() -> None:
    flat = dict.fromkeys(ROWS, 1.0)
    few, many = flat | {1: 0.5}, flat | {8: 0.5}
    curves = {NumericPath.BF16: few, NumericPath.INT8: many}
    assert choose(curves, Role.TARGET).path is NumericPath.BF16
    dear = {NumericPath.BF16: flat | {64: 100.0}, NumericPath.INT8: flat}
    assert choose(dear, Role.TARGET).path is NumericPath.INT8, "prompts count too"
    assert choose({NumericPath.INT8: flat}, Role.DRAFT).path is NumericPath.INT8


def test_every_pass_of_a_role_is_counted_once() -> None:
    for role in Role:
        assert sum(SHARES[role].values()) == pytest.approx(1)
        assert mean_pass(dict.fromkeys(ROWS, 3.0), role) == pytest.approx(3.0)


@pytest.mark.parametrize(("factor", "taken"), [(1.04, "bf16"), (0.97, "bf16"), (1.06, "int8")])
def test_a_tie_goes_to_the_more_exact_path(factor: float, taken: str) -> None:
    curves = {NumericPath.INT8: AVX2_INT8, NumericPath.BF16: scaled(AVX2_INT8, factor)}
    assert choose(curves, Role.TARGET).path == taken


@pytest.mark.parametrize("path", [NumericPath.BF16, NumericPath.INT4])
def test_a_path_asked_for_by_name_is_taken(folder: Path, tmp_path: Path, path: NumericPath) -> None:
    choice = resolve(Dtype(path), Role.TARGET, read_config(folder), {}, 1, tmp_path)
    assert choice == PathChoice(path, {})
    assert str(choice) == path
    assert not list(tmp_path.glob("curves-*.json"))


def test_paths_that_mix_rows_are_refused(folder: Path) -> None:
    models = {NumericPath.INT8: build(folder, kind=OneScale), NumericPath.FP32: build(folder)}
    assert set(admitted(models)) == {NumericPath.FP32}
    del models[NumericPath.FP32]
    with pytest.raises(ModelError, match="dtype int8: a row's result depends on its neighbours"):
        admitted(models)


def test_a_path_that_no_role_can_choose_is_timed_no_further() -> None:
    def curve(seconds: float, many: float) -> dict[int, float]:
        return {rows: many if rows > 8 else seconds for rows in ROWS}

    curves = {
        NumericPath.FP32: curve(1.0 * HOPELESS, 1.0 * HOPELESS),
        NumericPath.BF16: curve(0.9 * HOPELESS, 1.0),
        NumericPath.INT8: curve(1.0, 1.0),
    }
    assert hopeful(curves) == {NumericPath.BF16, NumericPath.INT8}
