"""An engine on a device, from its settings to the text of a request."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from outrider.contract.settings import (
    Device,
    Dtype,
    ModelSettings,
    PolicySettings,
    Role,
    WorkerSettings,
)
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.errors import ModelError
from outrider.worker.gpu import kv_cache
from outrider.worker.gpu import weights as gpu_weights
from outrider.worker.gpu.device_pages import NoPages
from outrider.worker.launch.load_gpu import blocks_of
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.launch.run import run_engine
from outrider.worker.messages import Failed, Finished, Ready, Submit, Tokens
from outrider.worker.model.rows import prompt_rows
from outrider.worker.sampling.params import SamplingParams
from tests.gpu_models import on_cpu, write
from tests.tiny_models import save

NOTHING = np.empty(0, np.int32)
PROMPT = np.array([72, 105, 33], np.int32)
COUNT = 4
SAMPLING = SamplingParams(temperature=0.8, seed=9)


class Desk:
    """A server that asks at once, and is gone when all was answered."""

    def __init__(self, *messages: Any) -> None:
        self._inbox = list(messages)
        self._asked = len(messages)
        self.sent: list[Any] = []
        self.arrived = np.zeros(1, np.int64)

    @property
    def answered(self) -> bool:
        return sum(isinstance(message, Finished) for message in self.sent) == self._asked

    def drain(self) -> list[Any]:
        if self.answered:
            raise ChannelClosed
        found, self._inbox = self._inbox, []
        return found

    def drain_peers(self) -> list[Any]:
        return []

    def wait(self, seconds: float | None) -> None:
        assert seconds is not None or self.answered

    def send(self, *messages: Any) -> None:
        self.sent += messages


def settings(folder: Path, cache: Path, **changes: Any) -> WorkerSettings:
    base = WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{folder}"),
        device=Device.GPU,
        max_context=64,
        kv_bytes=64 << 20,  # not most of the card: tests run beside each other
        cache=str(cache),
    )
    return dataclasses.replace(base, **changes)


def run(own: WorkerSettings, *requests: Submit) -> list[Any]:
    """Messages that the engine sent."""
    desk = Desk(*requests or [Submit(1, PROMPT, SAMPLING, COUNT, (), True, 0.0, logprobs=1)])
    run_engine(own, prepare_models(own), desk)
    return desk.sent


def text_of(found: list[Any], request: int) -> list[int]:
    return [
        token for m in found if isinstance(m, Tokens) and m.request == request for token in m.ids
    ]


def with_faint_layer(draft: Path, target: Path) -> None:
    """Make all of `target` but its last layer the draft's, and that one faint: its text is nearly
    the draft's."""
    tensors = load_file(target / "model.safetensors")
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.1.{name}.weight"] *= 0.1
    save(tensors | load_file(draft / "model.safetensors"), target)


def expected(folder: Path, vocabulary: int) -> list[int]:
    """Plain decoding on the CPU's fp32 path."""
    model, sampler = on_cpu(folder), Sampler(vocabulary)
    block_table = model.kv_cache.admit(NOTHING, 64)
    assert block_table is not None
    tokens, start = PROMPT.tolist(), 0
    while len(tokens) < len(PROMPT) + COUNT:
        rows = prompt_rows(np.array(tokens[start:], np.int32), start, block_table, True)
        start = len(tokens)
        tokens.append(int(sampler.sample(model.forward(rows), np.array([start]), SAMPLING)[0]))
    return tokens[len(PROMPT) :]


def test_an_engine_on_a_gpu_writes_the_text_of_the_cpu(tmp_path: Path, device: str) -> None:
    folder = write(tmp_path / "tiny", layers=1, heads=2, kv_heads=1)
    own = settings(folder, tmp_path, model=ModelSettings(uri=f"file://{folder}", dtype=Dtype.FP32))
    found = run(own)
    text = text_of(found, 1)
    assert text == expected(folder, prepare_models(own).vocabulary)
    assert len(text) == COUNT
    (ready,) = [m for m in found if isinstance(m, Ready)]
    assert ready.dtype == "fp32"
    assert ready.kv_bytes >= 129 * 2 * 32 * 4


@pytest.mark.slow
def test_a_colocated_draft_changes_no_text_and_tokens_of_it_are_accepted(
    tmp_path: Path, device: str
) -> None:
    """Each request is asked with drafting and without, of one engine: its warm-up takes minutes."""
    small: dict[str, Any] = {"heads": 2, "kv_heads": 1}
    draft = write(tmp_path / "draft", layers=1, **small)
    target = write(tmp_path / "target", layers=2, **small)
    with_faint_layer(draft, target)
    own = settings(
        target,
        tmp_path,
        colocated=ModelSettings(uri=f"file://{draft}"),
        policy=PolicySettings(off_below_percent=0),
    )
    samplings = SamplingParams(), SAMPLING
    found = run(
        own,
        *(
            Submit(2 * number + drafted, PROMPT, sampling, 12, (), bool(drafted), 0.0)
            for number, sampling in enumerate(samplings)
            for drafted in (False, True)
        ),
    )
    assert not any(message.refused_draft for message in found if isinstance(message, Ready))
    usage = {message.request: message.usage for message in found if isinstance(message, Finished)}
    for plain in (0, 2):
        assert text_of(found, plain + 1) == text_of(found, plain)
        assert len(set(text_of(found, plain))) > 1
        assert usage[plain].accepted_rows == 0
        assert usage[plain + 1].accepted_rows > 0
        assert usage[plain + 1].passes < usage[plain].passes


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ((gpu_weights, "rotary_table"), torch.OutOfMemoryError("CUDA out of memory.")),
        ((kv_cache.DeviceKVCache, "_arrays"), torch.OutOfMemoryError("CUDA out of memory.")),
        ((kv_cache.DeviceKVCache, "_arrays"), NoPages("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY")),
    ],
    ids=["weights", "KV", "pages"],
)
def test_too_little_memory_says_what_takes_less(
    place: tuple[Any, str],
    error: Exception,
    tmp_path: Path,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*args: Any) -> Any:
        raise error

    monkeypatch.setattr(*place, full)
    (failed,) = run(settings(write(tmp_path / "tiny", layers=1), tmp_path))
    assert isinstance(failed, Failed)
    assert failed.detail.startswith(f"{device} has too little memory for weights, KV and passes; ")
    assert "settings.kv_bytes (engine.kvMemory of a service)" in failed.detail
    assert failed.detail.endswith(str(error))


@pytest.mark.parametrize(
    ("free", "allowed"),
    [(5 << 20, "at most 191"), (2 << 20, "none, but dtype fp8 and more ranks in settings.tensor")],
)
def test_a_context_that_does_not_fit_is_refused_with_the_one_that_does(
    free: int, allowed: str, tmp_path: Path
) -> None:
    own = dataclasses.replace(settings(tmp_path, tmp_path), kv_bytes=None)
    fitting = blocks_of(own, context=1000, beyond=65, each=1 << 20, device="cuda:0")
    assert fitting(22 << 20) == 17
    with pytest.raises(ModelError, match=rf"^settings\.max_context: 1000 .* allowed: {allowed}"):
        fitting(free)


@pytest.mark.parametrize(
    ("changes", "shape", "reason"),
    [
        (
            {},
            {"family": "gemma3_text"},
            "model_type: gemma3_text is not allowed on a GPU; allowed: llama, mistral",
        ),
        ({}, {"head_dim": 16}, "head_dim: 16 is not allowed on a GPU; allowed: 32, 64, 128, 256"),
        (
            {"tensor_parallel": 2, "kv_bytes": 1000},
            {"kv_heads": 1},
            "settings.kv_bytes: 1000 is not allowed; one sequence of 129 tokens and nodes needs",
        ),
        ({"kv_bytes": 1000}, {}, "settings.kv_bytes: 1000 is not allowed"),
    ],
)
def test_what_a_gpu_does_not_hold_is_named_at_start_up(
    changes: dict[str, Any], shape: dict[str, Any], reason: str, tmp_path: Path, device: str
) -> None:
    folder = write(tmp_path / "tiny", layers=1, **shape)
    (failed,) = run(settings(folder, tmp_path, **changes))
    assert isinstance(failed, Failed)
    assert reason in failed.detail
