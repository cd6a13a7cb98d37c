from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from triton.runtime.errors import OutOfResources

from bench.gpu import tuning
from outrider.kernels.gpu.linear import linear_reference
from outrider.kernels.gpu.tiles import make_scratch
from outrider.kernels.gpu.tiling import Tiling, plan
from outrider.kernels.gpu.weights import WeightFormat, Weights, plain
from tests.kernel_outputs import assert_close, normal, unwritten


@pytest.mark.parametrize("kind", list(WeightFormat), ids=str)
def test_every_candidate_covers_the_layer(kind: WeightFormat) -> None:
    cuts = list(tuning.candidates(Weights(kind, 4096, 1792, torch.empty(0))))
    assert all(cut.tiles * 2 * cut.columns >= 4096 for cut in cuts)
    assert all((cut.splits - 1) * cut.share < 1792 <= cut.splits * cut.share for cut in cuts)
    assert all(cut.share % cut.block == 0 for cut in cuts)


def test_a_candidate_computes_what_the_plan_does() -> None:
    weights = plain(normal(96, 384, dtype=torch.float32, device="cpu") / 20)
    x = normal(tuning.ROWS, 384, dtype=torch.float32, device="cpu", seed=1)
    out, expected = (unwritten(tuning.ROWS, 96, dtype=x.dtype, device="cpu") for _ in range(2))
    linear_reference(x, weights, expected, make_scratch(0, [], "cpu"))
    cut = replace(plan(weights, 16, 2), block=64, share=192)
    assert_close(tuning.launched(x, weights, out, cut)(), expected)


def test_the_fastest_come_first_and_what_does_not_fit_is_left_out() -> None:
    def time(cut: Tiling) -> float:
        if cut.stages == 6:
            raise OutOfResources(300_000, 200_000, "shared memory")
        return cut.splits + cut.warps

    cuts = list(tuning.candidates(Weights(WeightFormat.INT4, 4096, 4096, torch.empty(0))))
    best = tuning.fastest(cuts, time)
    assert [one["microseconds"] for one in best] == [5, 5, 5]
    assert {one["splits"] for one in best} == {1}
