"""Which passes the shares of a worker's compilation begin with."""

from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from outrider.cli.workers.compilation import shares_of
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from outrider.kernels.cpu.numeric_kind import NumericPath, kind_of
from outrider.worker.checkpoints.load import CheckpointTensors
from outrider.worker.costs.numeric_path import CHOSEN, worth_timing
from outrider.worker.launch.compilation import passes_of, small_of
from outrider.worker.launch.small_model import write_small_model
from outrider.worker.model.matrix import Quantised
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import write_tiny

MODEL = ModelSettings(uri="file:///model", dtype=Dtype.AUTO)
TARGET = WorkerSettings(role=Role.TARGET, name="tiny", model=MODEL)
DRAFT = replace(TARGET, role=Role.DRAFT)


PAIR = replace(TARGET, colocated=MODEL)


@pytest.mark.parametrize("workers", [[TARGET, DRAFT], [PAIR], [TARGET]])
def test_target_and_draft_compile_each_path_that_auto_compares_once(
    workers: list[WorkerSettings], tmp_path: Path
) -> None:
    small = write_small_model(tmp_path)
    shares = [passes_of(share, small) for share in shares_of(workers)]
    assert len(shares) == 2
    compared = worth_timing(map(kind_of, CHOSEN))
    assert sorted(path for share in shares for path in share) == sorted(compared)


@pytest.mark.parametrize("workers", [[TARGET, DRAFT], [PAIR], [TARGET]])
def test_one_of_two_shares_begins_with_what_lies_between_passes(
    workers: list[WorkerSettings],
) -> None:
    assert [share.has_draft for share in shares_of(workers)] == [False, True]


def test_beside_a_target_of_several_ranks_nothing_is_compiled() -> None:
    target = replace(TARGET, tensor_parallel=2)
    assert [*shares_of([target])] == [target]


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.INT4])
def test_a_path_that_is_named_is_the_only_one(dtype: Dtype, tmp_path: Path) -> None:
    named = replace(MODEL, dtype=dtype)
    target = replace(TARGET, model=named, colocated=named)
    assert passes_of(target, write_small_model(tmp_path)) == [NumericPath(dtype)]


def test_quants_of_a_gguf_file_have_one_path(tmp_path: Path) -> None:
    checkpoint = write_tiny(tmp_path / "hf")
    path = write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf", GGMLQuantizationType.Q8_0)
    target = replace(TARGET, model=replace(MODEL, uri=f"file://{path}"))
    small = small_of(target.model, tmp_path / "small")
    assert passes_of(target, small) == [NumericPath.INT4]
    tensors = CheckpointTensors(small)
    assert tensors.path is NumericPath.INT4
    kinds = {tensor.kind for tensor in tensors.values() if isinstance(tensor, Quantised)}
    assert kinds == {GGMLQuantizationType.Q8_0}
