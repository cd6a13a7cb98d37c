"""Which passes the shares of a worker's compilation begin with."""

from dataclasses import replace

import pytest

from outrider.cli.workers.compilation import shares_of
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from outrider.kernels.cpu.numeric_kind import NumericPath, kind_of
from outrider.worker.costs.numeric_path import CHOSEN, worth_timing
from outrider.worker.launch.compilation import passes_of

MODEL = ModelSettings(uri="file:///model", dtype=Dtype.AUTO)
TARGET = WorkerSettings(role=Role.TARGET, name="tiny", model=MODEL)
DRAFT = replace(TARGET, role=Role.DRAFT)


PAIR = replace(TARGET, colocated=MODEL)


@pytest.mark.parametrize("workers", [[TARGET, DRAFT], [PAIR], [TARGET]])
def test_target_and_draft_compile_each_path_that_auto_compares_once(
    workers: list[WorkerSettings],
) -> None:
    shares = [passes_of(share) for share in shares_of(workers)]
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
def test_a_path_that_is_named_is_the_only_one(dtype: Dtype) -> None:
    named = replace(MODEL, dtype=dtype)
    assert passes_of(replace(TARGET, model=named, colocated=named)) == [NumericPath(dtype)]
