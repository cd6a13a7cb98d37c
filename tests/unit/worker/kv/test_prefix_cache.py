"""Text with KV kept from earlier requests is the text without: real models, both schedulers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from outrider.contract.inference import Usage
from outrider.contract.settings import PolicySettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.draft.batch import MAX_WIDTH
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.sessions import MAX_NODES
from outrider.worker.engine.runner import DraftRunner, TargetRunner
from outrider.worker.kv.block_pool import blocks_for
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.colocated import ColocatedScheduler, LoopbackLink
from outrider.worker.messages import Cancel, Finished, Submit, Tokens
from outrider.worker.model.llama import Llama
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from tests.tiny_models import write_draft_of, write_tiny
from tests.unit.worker.fakes import FlatCosts

CONTEXT = 384
VOCABULARY = 512
ROWS = 65
ANSWER = 40
SAMPLINGS = [SamplingParams(), SamplingParams(temperature=0.7, seed=5)]
RANDOM = np.random.default_rng(7)
BEGINNING = RANDOM.integers(0, 256, 140).astype(np.int32)
"""What prompts share: two blocks and a bit."""


def prompt(number: int) -> np.ndarray:
    """A prompt of its own after the common beginning."""
    rest = np.random.default_rng(number).integers(0, 256, 30)
    return np.concatenate([BEGINNING, rest.astype(np.int32)])


@dataclass
class Service:
    """A target and its draft, colocated, with room for two sequences."""

    folder: Path
    prefix_cache: bool
    path: NumericPath = NumericPath.FP32
    now: float = 0.0
    outbox: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        target, draft = self.model("target", ROWS), self.model("draft", MAX_NODES + MAX_WIDTH)
        self.kv_cache, self.draft_kv_cache = target.kv_cache, draft.kv_cache
        row_selector = RowSelector.start(FlatCosts(), PolicySettings(), ROWS)  # type: ignore[arg-type]
        link = LoopbackLink()
        self.turns = ColocatedScheduler(
            TargetScheduler(
                target.kv_cache,
                CONTEXT,
                2,
                TargetSessions(link.send_to_draft, row_selector),
                self.outbox,
                LogitsProcessors(VOCABULARY),
            ),
            TargetRunner(target, VOCABULARY),
            DraftScheduler(
                draft.kv_cache,
                CONTEXT,
                2,
                VOCABULARY,
                SendBuffer(link.send_to_target, coalesce=False),
            ),
            DraftRunner(draft, None, VOCABULARY),
            link,
            TargetTokens(np.ones(VOCABULARY, np.bool_)),
        )

    def model(self, name: str, beyond: int) -> Llama:
        config = read_config(self.folder / name)
        weights = load_file(self.folder / name / "model.safetensors")
        longest = CONTEXT + beyond
        blocks = 2 * blocks_for(longest)
        kv_cache = HostKVCache(config.kv_shape, blocks, longest, prefix_cache=self.prefix_cache)
        return Llama(config, weights, self.path, kv_cache, ROWS)

    def submit(self, request: int, tokens: np.ndarray, sampling: SamplingParams) -> None:
        self.turns.receive(Submit(request, tokens, sampling, ANSWER, (), True, self.now), self.now)

    def steps(self, enough: Callable[[], bool]) -> None:
        while not enough():
            step = self.turns.next(self.now)
            assert step is not None
            self.now += 0.001
            self.turns.settle(step, self.turns.run(step), self.now)

    def finished(self, request: int) -> Finished | None:
        ends = [m for m in self.outbox if isinstance(m, Finished) and m.request == request]
        return ends[0] if ends else None

    def text(self, request: int) -> list[int]:
        sent = (m.ids for m in self.outbox if isinstance(m, Tokens) and m.request == request)
        return [token for ids in sent for token in ids]

    def answer(
        self, request: int, tokens: np.ndarray, sampling: SamplingParams
    ) -> tuple[list[int], Usage]:
        """Runs one request to its end."""
        self.submit(request, tokens, sampling)
        self.steps(lambda: self.finished(request) is not None)
        end = self.finished(request)
        assert end is not None
        return self.text(request), end.usage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_tiny(folder / "target")
    write_draft_of(folder / "target", folder / "draft")
    return folder


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("path", NumericPath)
def test_a_fork_and_a_second_turn_are_answered_as_without_the_cache(
    folder: Path, path: NumericPath, sampling: SamplingParams
) -> None:
    on, off = Service(folder, True, path), Service(folder, False, path)
    first, usage = on.answer(1, prompt(1), sampling)
    assert usage.cached_prompt_tokens == 0
    second_turn = np.concatenate([prompt(1), np.array(first, np.int32), prompt(3)[:9]])
    for request, tokens, cached in (
        (2, prompt(2), 128),
        (3, second_turn, 192),
        (4, prompt(1), 128),
    ):
        hits = on.draft_kv_cache.usage.hits
        text, usage = on.answer(request, tokens, sampling)
        assert text == off.answer(request, tokens, sampling)[0]
        assert usage.cached_prompt_tokens == cached
        assert usage.accepted_rows > 0, "speculation was at work"
        assert on.draft_kv_cache.usage.hits >= hits + cached
    assert on.kv_cache.usage.hits == 128 + 192 + 128
    assert off.kv_cache.usage.hits == off.draft_kv_cache.usage.hits == 0


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
def test_a_sequence_goes_on_after_the_one_it_shares_blocks_with_is_gone(
    folder: Path, sampling: SamplingParams
) -> None:
    service = Service(folder, True)
    service.submit(1, prompt(1), sampling)
    running = service.turns.target.admission.running
    service.steps(lambda: bool(running) and running[0].generated > 4)
    service.submit(2, prompt(2), sampling)
    service.steps(lambda: len(running) == 2)
    ours, theirs = (sequence.block_table.table[:2].tolist() for sequence in running)
    assert ours == theirs
    service.turns.receive(Cancel(1), service.now)
    service.submit(3, prompt(3)[:20], sampling)
    service.steps(lambda: all(service.finished(number) for number in (2, 3)))
    assert service.text(2) == Service(folder, False).answer(2, prompt(2), sampling)[0]
    assert service.text(3) == Service(folder, False).answer(3, prompt(3)[:20], sampling)[0]
    assert service.kv_cache.used == 0
    assert service.kv_cache.usage.hits == 128


def test_a_prompt_that_is_given_up_while_it_is_read_is_taken_over_by_the_next(folder: Path) -> None:
    service = Service(folder, True)
    longer = np.concatenate([prompt(1), prompt(2)])
    service.submit(1, longer, SamplingParams())
    running = service.turns.target.admission.running
    service.steps(lambda: bool(running) and running[0].computed >= 128)
    assert running[0].needs_prefill
    read = running[0].computed
    service.turns.receive(Cancel(1), service.now)
    assert service.kv_cache.used == 0, "its room is free before the next step"
    next_prompt = np.concatenate([longer[:-1], prompt(3)[-3:]])
    text, usage = service.answer(2, next_prompt, SamplingParams())
    assert usage.cached_prompt_tokens == read - read % 64
    assert text == Service(folder, False).answer(2, next_prompt, SamplingParams())[0]


def test_kept_blocks_give_way_to_others_and_the_text_stays(folder: Path) -> None:
    on, off = Service(folder, True), Service(folder, False)
    for request in range(1, 17):
        own = np.random.default_rng(request % 8).integers(0, 256, 200).astype(np.int32)
        text, _ = on.answer(request, own, SamplingParams())
        assert text == off.answer(request, own, SamplingParams())[0]
    assert on.kv_cache.usage.evictions > 0
    assert on.turns.next(on.now) is None, "the draft hears that the last session has ended"
    assert on.kv_cache.used == on.draft_kv_cache.used == 0
