import json

import pytest

from bench.roofline.__main__ import PAGE, REPORT, page, report, usual, written
from bench.roofline.work import (
    H100,
    H200,
    LLAMA_8B,
    LLAMA_70B,
    WEIGHTS,
    Work,
    matrix_bytes,
    seconds,
    step,
    total,
)


def test_page_and_json_are_those_of_the_arithmetic() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m bench.roofline`"
    assert json.loads(REPORT.read_text(encoding="utf-8")) == json.loads(written(report()))


def test_a_step_reads_every_weight_once() -> None:
    kernels = {work.kernel: work for work in step(LLAMA_8B, 1, 1, 1024, "bf16")}
    names = ("projection", "linear out", "gated", "linear down", "linear head")
    weights = sum(kernels[name].bytes for name in names)
    embedding = 128256 * 4096
    assert weights == pytest.approx(2 * (8.03e9 - embedding), rel=0.002)


def test_ranks_share_weights_and_keys_and_send_their_sums() -> None:
    alone, shared = (
        {w.kernel: w for w in step(LLAMA_70B, ranks, 8, 4096, "bf16")} for ranks in (1, 8)
    )
    for name in ("projection", "attention", "gated", "linear head"):
        assert shared[name].bytes == pytest.approx(alone[name].bytes / 8, rel=0.02)
    assert "all-reduce" not in alone
    assert shared["all-reduce"].sent == 160 * 7 * 8 * 8192 * 2


def test_a_kernel_takes_what_its_slowest_resource_takes() -> None:
    assert seconds(Work("k", 1, 3.35e12), H100) == 1
    assert seconds(Work("k", 1, 1, 2 * 989.4e12), H200) == 2
    assert seconds(Work("k", 1, 1, 1, 450e9 * 3), H200) == 3


def test_a_plain_step_of_the_small_model_is_bound_by_its_weights() -> None:
    assert total(usual(LLAMA_8B, 1, rows=1, context=1024), H100) == pytest.approx(4.5e-3, rel=0.02)


def test_packed_weights_are_read_with_their_scales() -> None:
    assert [matrix_bytes(128, 256, kind) for kind in WEIGHTS] == [65536, 33280, 16384 + 768]
