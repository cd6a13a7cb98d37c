from collections.abc import Callable

import pytest
import torch

triton = pytest.importorskip("triton")

from bench import kernels  # noqa: E402
from bench.gpu.cases import linear_cases  # noqa: E402
from bench.gpu.cases.attention_peers import FLASH  # noqa: E402
from bench.gpu.cases.kernel_case import OURS, SHAPES, Case, Launch  # noqa: E402
from bench.gpu.device_run import Entry  # noqa: E402
from bench.record.report import Spread  # noqa: E402
from bench.roofline.work import Shape  # noqa: E402
from tests.kernel_outputs import assert_close  # noqa: E402

TINY = Shape(name="tiny", layers=1, hidden=128, ffn=128, heads=2, kv_heads=1, head_dim=64,
             vocabulary=192)  # fmt: skip
CASES = list(linear_cases.of_shape(TINY, 1, 3, "cpu", torch.float32))


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} {case.weights}")
def test_all_sides_compute_the_same(case: Case) -> None:
    results = []
    for make in case.sides.values():
        torch.manual_seed(0)
        results.append(make()().clone())
    assert_close(results[0], results[1], torch.float16)


def measured(case: Case) -> Entry:
    """Figures without a device: ours takes 10 microseconds, each other side 10 more."""
    times = iter(range(10, 100, 10))
    return {"case": case.name} | kernels.measure(
        case, 1e9, lambda make, size: Spread(next(times), 9.0, 11.0, 3)
    )


def test_a_measurement_has_its_share_and_its_ratio() -> None:
    sides = dict.fromkeys((OURS, "a"), torch.empty)
    case = Case(kernel="gated", shape="tiny", weights="bf16", rows=4, bytes=8e3, sides=sides)  # type: ignore[arg-type]
    one = measured(case)
    assert one["share"] == {OURS: 0.8, "a": 0.4}
    assert kernels.ratios([one]) == {"gated tiny bf16 m=4: a / outrider": 2.0}


def test_a_peer_that_fails_says_why_and_costs_no_figure() -> None:
    def absent() -> Launch:
        raise TypeError("no such argument\nand more")

    def time(make: Callable[[], Launch], size: float) -> Spread:
        make()
        return Spread(10.0, 9.0, 11.0, 3)

    sides = {"peer": absent, OURS: lambda: lambda: torch.empty(0)}
    case = Case(kernel="gated", shape="tiny", weights="bf16", rows=4, bytes=8e3, sides=sides)
    one: Entry = {"case": case.name} | kernels.measure(case, 1e9, time)
    assert one["microseconds"]["peer"] == "failed: TypeError: no such argument"
    assert one["share"] == {OURS: 0.8}
    assert kernels.ratios([one]) == {}


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in kernels.cases([shape.name for shape, _ in SHAPES])]
    assert len(names) > 200
    assert len(set(names)) == len(names)  # a run is resumed by them


def test_linear_layers_come_before_attention_and_the_rest_is_not_chosen() -> None:
    chosen = list(kernels.chosen(kernels.cases(["Llama-3-8B"]), [1, 8], [4096], False))
    assert {case.rows for case in chosen} == {1, 8}
    assert all(case.shape.startswith("Llama-3-8B TP 1") for case in chosen)
    assert {kernels.context(case) for case in chosen} == {None, 4096}
    names = [case.kernel for case in chosen]
    assert names[-1] == "sample"
    assert max(i for i, name in enumerate(names) if name.startswith("linear")) < names.index(
        "attention"
    )


def test_peers_are_left_out_unless_they_are_asked_for() -> None:
    sides = dict.fromkeys((OURS, "torch", "torch sdpa", "flex attention", *FLASH.values()))
    case = Case(kernel="k", shape="s", weights="w", rows=1, bytes=1, sides=sides)  # type: ignore[arg-type]
    (alone,), (beside,) = (kernels.chosen([case], None, None, peers) for peers in (False, True))
    assert list(alone.sides) == [OURS, "torch", "torch sdpa"]
    assert beside is case
