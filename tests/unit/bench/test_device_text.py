"""A target with its draft in turn writes its own text; the device writes the CPU's."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from bench.gpu import device_text
from bench.gpu.cases.kernel_case import Backing
from bench.roofline.work import Shape
from outrider.worker.sampling.params import SamplingParams
from tests.gpu_models import write

TINY = Shape(
    name="tiny", layers=2, hidden=64, ffn=128, heads=2, kv_heads=1, head_dim=32, vocabulary=300
)


def test_a_draft_of_the_first_layers_is_accepted_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_text, "PROMPT_TOKENS", 3)
    pair = device_text.Pair.random(TINY, "bf16", Backing("cpu", torch.float32), 1, splits=3)
    found = device_text.compared(pair, SamplingParams(temperature=0.8, seed=3), 1, 6)
    assert found["differing"] == 0
    assert found["accepted"] > 0


def test_a_checkpoint_writes_the_same_text_on_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_text, "PROMPT_TOKENS", 5)
    folder = write(tmp_path / "tiny", layers=1, heads=2, kv_heads=1)
    found = device_text.beside_cpu(f"file://{folder}", 4)
    assert found["differing"] == 0
    assert len(found["texts"][0]) == 4
