import pytest
import torch

triton = pytest.importorskip("triton")

from bench import decode_step  # noqa: E402
from bench.gpu import timed_steps  # noqa: E402
from bench.gpu.cases.kernel_case import Backing  # noqa: E402
from bench.gpu.random_model import random_model  # noqa: E402
from bench.gpu.timed_steps import GrowingDraft  # noqa: E402
from bench.record.report import Spread  # noqa: E402
from bench.roofline.work import (  # noqa: E402
    H100,
    LLAMA_1B,
    LLAMA_8B,
    Shape,
    matrix_bytes,
)
from outrider.worker.gpu.model import GpuModel  # noqa: E402
from outrider.worker.model.rows import CHUNK  # noqa: E402

TINY = Shape(name="tiny", layers=1, hidden=64, ffn=64, heads=2, kv_heads=1, head_dim=32,
             vocabulary=128)  # fmt: skip


def tiny(weights: str = "bf16") -> GpuModel:
    return random_model(TINY, weights, 128, 4, Backing("cpu", torch.float32), 3)


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
def test_a_step_is_run_and_timed() -> None:
    model = tiny("fp8")
    begun = model.copies.waits
    step = timed_steps.one_step(model, 2, 40, repeats=1)
    assert step.step.median > 0
    assert step.device.median > 0
    assert model.copies.waits - begun == 1 + timed_steps.WARMUPS  # one wait a step
    assert model.logits[:2].isfinite().all()


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
def test_a_chunk_of_a_prompt_is_timed_by_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_steps, "WARMUPS", 0)  # the interpreter is slow
    model = random_model(TINY, "bf16", CHUNK, CHUNK, Backing("cpu", torch.float32), 3)
    computed: list[bool] = []
    body = model.forward_pass.body

    def noted(n: int, groups: int, by_library: bool = False) -> None:
        computed.append(by_library)
        body(n, groups, by_library)

    monkeypatch.setattr(model.forward_pass, "body", noted)
    found = timed_steps.prompt_chunk(model, 0, True, repeats=1)
    assert min(found.step.median, found.device.median) > 0
    assert computed == [True, True]  # of a step, and of the device alone


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled")
def test_a_draft_grows_and_hears_of_commits() -> None:
    model = random_model(TINY, "bf16", 128, 64, Backing("cpu", torch.float32), 3)
    draft = GrowingDraft(model, 3, 1, 2)
    root = draft.session.tree.root_position
    assert draft.seconds(2) > 0
    assert draft.session.tree.root_position == root + 1
    assert draft.runner.launched > 1
    draft.close()
    assert not draft.scheduler.sessions.live


def test_every_step_of_a_model_is_measured_on_one_and_the_same() -> None:
    built: list[tuple[str, str]] = []

    def holding(shape: Shape, weights: str) -> None:
        built.append((shape.name, weights))
        raise RuntimeError("out of memory")

    tasks = list(
        decode_step.tasks([LLAMA_8B, LLAMA_1B], ["bf16"], [1024, 4096], [1, 64], holding, H100)
    )
    names = [task.name for task in tasks]
    assert "Llama-3-8B bf16 step of 64 at 4096" in names
    assert not any("step of 16" in name for name in names)
    assert "Llama-3.2-1B bf16 growth by 8, 4 a launch, at 1024" in names
    assert not any("8B" in name and "growth" in name for name in names)
    prompts = [name for name in names if "prompt" in name]
    assert "Llama-3-8B bf16 prompt of 128 at 4096, library" in prompts
    assert len(prompts) == 4
    assert len(set(names)) == len(names)
    for task in tasks:
        with pytest.raises(RuntimeError):
            task.measure()
    assert list(dict.fromkeys(built)) == [("Llama-3-8B", "bf16"), ("Llama-3.2-1B", "bf16")]


def test_the_goal_is_had_within_15_percent() -> None:
    def figures(took: float) -> dict[str, object]:
        spread = Spread(took, took, took, 3)
        return decode_step.entry(timed_steps.Timed(spread, Spread(80.0, 80, 80, 3)), 100.0)

    assert figures(114.0)["goal"] == "met"
    assert figures(116.0)["goal"] == "missed"
    assert figures(160.0) | {"share_of_roofline": 0.625, "host_share": 0.5} == figures(160.0)


def test_an_unknown_device_is_as_fast_as_its_memory_copies() -> None:
    part = decode_step.part_of({"name": "some GPU", "bandwidth": 1e12})
    one = next(iter(decode_step.step(LLAMA_8B, 1, 1, 1024, "bf16")))
    assert decode_step.total([one], part) == one.bytes / 1e12
    assert decode_step.part_of({"name": "NVIDIA H100 80GB HBM3", "bandwidth": 1e12}) is H100


def test_random_weights_take_the_bytes_that_the_roofline_counts() -> None:
    layer = tiny("fp8").forward_pass.weights.layers[0]
    assert layer.gates.size == matrix_bytes(2 * TINY.ffn, TINY.hidden, "fp8")
