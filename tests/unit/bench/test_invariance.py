from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

from bench.gpu import invariance  # noqa: E402
from bench.gpu.cases import attention_cases, linear_cases  # noqa: E402
from bench.gpu.cases.kernel_case import OURS, Backing, Case  # noqa: E402
from bench.gpu.device_run import Entry  # noqa: E402
from bench.record.report import Spread  # noqa: E402
from bench.roofline.work import LLAMA_8B, Shape  # noqa: E402
from tests.kernel_outputs import assert_close  # noqa: E402

TINY = Shape(name="tiny", layers=1, hidden=256, ffn=128, heads=2, kv_heads=1, head_dim=64,
             vocabulary=192)  # fmt: skip
LINEAR = [
    case
    for case in linear_cases.of_shape(TINY, 1, 3, "cpu", torch.float32)
    if case.choices and case.weights == "bf16"
]
ATTENTION = attention_cases.attention(TINY, 1, 2, 70, Backing("cpu", torch.float32), 3)


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
@pytest.mark.parametrize("case", [*LINEAR, ATTENTION], ids=lambda case: case.kernel)
def test_every_choice_computes_what_the_fixed_cut_does(case: Case) -> None:
    torch.manual_seed(0)
    expected = case.sides[OURS]()().clone()
    for make in list(case.choices.values())[:2]:
        torch.manual_seed(0)
        assert_close(make()(), expected, torch.float32)


def measured(sides: dict[str, Any], choices: dict[str, Any]) -> Entry:
    """With sides that make a time instead of a launch."""
    case = Case(
        kernel="k", shape="s", weights="w", rows=1, bytes=1, sides=sides, choices=choices
    )  # fmt: skip

    def time(make: Any, size: float) -> Spread:
        return Spread(make(), 0, 0, 1)

    return invariance.measure(case, time)


def test_the_best_way_is_never_slower_than_the_fixed_one_and_what_fails_is_left_out() -> None:
    def lost() -> float:
        raise RuntimeError("out of resources")

    sides = {OURS: lambda: 10.0, "a": lambda: 8.0, "b": lost}
    one = measured(sides, {"1 split": lambda: 11.0, "2 splits": lambda: 9.0, "3 splits": lost})
    assert one["microseconds"] == {"fixed": 10.0, "best cut": 9.0, "any": 8.0}
    assert one["cuts"] == {"1 split": 11.0, "2 splits": 9.0}
    assert set(measured({OURS: lambda: 3.0}, {})["microseconds"].values()) == {3.0}


def test_a_step_is_the_sum_of_its_launches() -> None:
    entries = [
        {"case": name, "microseconds": {"fixed": 3.0, "best cut": 2.0, "any": 1.0}}
        for name in invariance.launches_of(LLAMA_8B, "fp8", 4, 1024)
    ]
    (one,) = invariance.steps(entries, LLAMA_8B, ["bf16", "fp8"])
    launches = 5 * 32 + 1  # projection, attention, out, gated and down of each layer, and the head
    times = {"fixed": 3.0 * launches, "best cut": 2.0 * launches, "any": 1.0 * launches}
    assert one == {"weights": "fp8", "rows": 4, "context": 1024, "microseconds": times}
    assert invariance.ratios([one])["step fp8 m=4 at 1024: fixed / best cut"] == 1.5
    assert invariance.steps(entries[1:], LLAMA_8B, ["fp8"]) == []


def test_every_launch_of_a_step_is_a_case_that_is_measured() -> None:
    names = {task.name for task in invariance.tasks(invariance.cases(), ["bf16", "fp8"])}
    for weights in ("bf16", "fp8"):
        assert invariance.launches_of(LLAMA_8B, weights, 16, 32768).keys() <= names
