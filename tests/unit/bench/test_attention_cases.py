import pytest
import torch

triton = pytest.importorskip("triton")

from bench.gpu.cases import attention_cases  # noqa: E402
from bench.gpu.cases.kernel_case import Backing, Case  # noqa: E402
from bench.roofline.work import Shape  # noqa: E402
from tests.kernel_outputs import assert_close  # noqa: E402

TINY = Shape(name="tiny", layers=2, hidden=64, ffn=64, heads=2, kv_heads=1, head_dim=16,
             vocabulary=192)  # fmt: skip
CASES = [
    attention_cases.attention(TINY, 1, 3, 130, Backing("cpu", torch.float32), 3),
    attention_cases.attention(TINY, 1, 1, 130, Backing("cpu", torch.float32), 3),
    attention_cases.moves(TINY, 1, 3, "cpu", torch.float32),
    attention_cases.greedy(TINY, 1, 3, "cpu", torch.float32),
]


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_sides_compute_the_same(case: Case) -> None:
    results = []
    for make in case.sides.values():
        torch.manual_seed(0)
        results.append(make()().clone())
    assert len(results) > 1
    for other in results[1:]:
        assert_close(results[0], other, torch.float32)
