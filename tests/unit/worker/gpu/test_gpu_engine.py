"""An engine on a device, from its settings to the text of a request."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import Device, Dtype, ModelSettings, Role, WorkerSettings
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.launch.run import run_engine
from outrider.worker.messages import Failed, Finished, Ready, Submit, Tokens
from outrider.worker.model.rows import prompt_rows
from outrider.worker.sampling.params import SamplingParams
from tests.gpu_models import on_cpu, write

NOTHING = np.empty(0, np.int32)
PROMPT = np.array([72, 105, 33], np.int32)
COUNT = 4
SAMPLING = SamplingParams(temperature=0.8, seed=9)


class Desk:
    """A server that asks once, and is gone when it was answered."""

    def __init__(self, *messages: Any) -> None:
        self._inbox = list(messages)
        self.sent: list[Any] = []
        self.arrived = np.zeros(1, np.int64)

    def drain(self) -> list[Any]:
        if any(isinstance(message, Finished) for message in self.sent):
            raise ChannelClosed
        found, self._inbox = self._inbox, []
        return found

    def drain_peers(self) -> list[Any]:
        return []

    def wait(self, seconds: float | None) -> None:
        assert seconds is not None or any(isinstance(m, Finished) for m in self.sent)

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


def run(own: WorkerSettings) -> list[Any]:
    """Messages that the engine sent."""
    desk = Desk(Submit(1, PROMPT, SAMPLING, COUNT, (), True, 0.0, logprobs=1))
    run_engine(own, prepare_models(own), desk)
    return desk.sent


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
    text = [token for m in found if isinstance(m, Tokens) for token in m.ids]
    assert text == expected(folder, prepare_models(own).vocabulary)
    assert len(text) == COUNT
    (ready,) = [m for m in found if isinstance(m, Ready)]
    assert ready.dtype == "fp32"
    assert ready.kv_bytes >= 129 * 2 * 32 * 4


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
