"""A draft's passes on a device, under the real scheduler: chained, one by one, and on the CPU."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.checkpoints.translation import TargetTokens, translation
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.gpu.chained_passes import CHAINED as CHAINED_BY_DEFAULT
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.timing import INTERPRETED
from outrider.worker.launch.build_draft import draft_runner
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.link.wire import Commit, Grow, Limits, Open
from outrider.worker.sampling.params import SamplingParams
from tests.gpu_models import LONGEST, on_device, write

LINK = 1
VOCABULARY = 300
PROMPT = np.random.default_rng(3).integers(0, VOCABULARY, 5).astype(np.int32)
LIMITS = Limits(1, depth=6, width=2, nodes_ahead=60, error_scale=1.0)
TOKENS = [bytes([1 + i // 250, i % 250]) for i in range(VOCABULARY)]
TRANSLATION = translation(TOKENS, [*reversed(TOKENS[20:]), *[b"own"] * 20], VOCABULARY)
FOREIGN = TargetTokens(TRANSLATION.allowed, TRANSLATION)
SAMPLED = SamplingParams(temperature=0.9, seed=2**63 + 5)
CHAINED = 3


@dataclass
class Draft:
    """A draft's scheduler and runner, and what it sent."""

    runner: GpuDraftRunner
    model: GpuModel
    sent: list[Any] = field(default_factory=list)
    clock: float = 0.0

    def __post_init__(self) -> None:
        send_buffer = SendBuffer(lambda link, messages: self.sent.extend(messages), coalesce=False)
        self.scheduler = DraftScheduler(
            self.model.kv_cache, LONGEST // 2, 4, VOCABULARY, send_buffer
        )
        self.scheduler.sessions.link_up(LINK, np.ones(VOCABULARY, np.bool_))

    def open(
        self,
        sampling: SamplingParams,
        number: int = 1,
        link: int = LINK,
        prompt: np.ndarray = PROMPT,
        limits: Limits = LIMITS,
    ) -> None:
        limits = replace(limits, session=number)
        self.scheduler.apply(link, Open(number, prompt, sampling, limits, len(prompt)), self.clock)

    def passes(self, most: int) -> int:
        """Runs so many passes, or until there is nothing to run; returns how many."""
        for count in range(most):
            step = self.scheduler.next(self.clock)
            if step is None:
                return count
            self.scheduler.settle(step, self.runner.run(step), self.clock)
            self.clock += 0.001
        return most

    def commit(self, *tokens: int, number: int = 1) -> None:
        tree = self.scheduler.sessions.live[LINK, number].tree
        message = Commit(number, tree.root_position, np.array(tokens, np.int32))
        self.scheduler.apply(LINK, message, self.clock)

    def growth(self) -> list[tuple[Any, ...]]:
        """Growth that was sent."""
        grown = [(m.session, m.growth) for m in self.sent if isinstance(m, Grow)]
        return [
            (session, g.first_id, g.parents.tolist(), g.tokens.tolist(), g.logprobs.tolist())
            for session, g in grown
        ]

    def moving_path(self) -> list[int]:
        """Tokens of the node whose KV lies last, and of a child of it: KV moves if they come."""
        nodes = self.scheduler.sessions.live[LINK, 1].tree.nodes
        node = int(nodes.slot.argmax())
        assert nodes.depth[node] == 1
        assert nodes.slot[node] > nodes.slot[nodes.slot >= 0].min()
        child = int(np.flatnonzero(nodes.parent == node)[0])
        return [int(nodes.token[node]), int(nodes.token[child])]


def drafts(folder: Path, device: str, *chained: int, rows: int = 24) -> list[Draft]:
    """Drafts of one checkpoint on a device, with so many passes a launch."""
    write(folder, layers=1, heads=2, kv_heads=1)
    found = []
    for passes in chained:
        model = on_device(folder, device, rows=rows)
        found.append(Draft(GpuDraftRunner(model, None, VOCABULARY, 0.8, passes), model))
    return found


def test_most_steps_of_a_chained_draft_take_no_launch(tmp_path: Path, device: str) -> None:
    """And what it sends is what it sends without a chain, to the bit."""
    chained, single = drafts(tmp_path, device, CHAINED, 1)
    for draft in (chained, single):
        draft.open(SAMPLED)
        assert draft.passes(6) == 6
    assert chained.growth() == single.growth()
    assert single.runner.answered == 0
    assert chained.runner.launched + chained.runner.answered == 6
    assert chained.runner.answered >= 4, "two of three passes are answered without a launch"


def test_commits_end_what_was_anticipated(tmp_path: Path, device: str) -> None:
    """A fall-in moves KV that the chain wrote, a fall-out leaves unrequested KV behind."""
    chained, single = drafts(tmp_path, device, CHAINED, 1)
    for draft in (chained, single):
        draft.open(SamplingParams())
        draft.passes(2)
        draft.commit(*draft.moving_path())
        draft.passes(2)
        draft.commit(draft.moving_path()[0], 299)
        draft.passes(2)
    assert chained.growth() == single.growth()
    launches = chained.runner.launched
    assert (launches, chained.runner.answered) == (3, 3)
    assert len(chained.growth()) >= 6


def test_a_chain_ends_with_the_room_of_its_region(tmp_path: Path, device: str) -> None:
    """62 tokens and two leaves fill the first block: a second comes when a pass asks for it."""
    prompt = np.random.default_rng(4).integers(0, VOCABULARY, 62).astype(np.int32)
    (draft,) = drafts(tmp_path, device, CHAINED, rows=64)
    draft.open(SamplingParams(), prompt=prompt)
    assert draft.passes(3) == 3
    assert (draft.runner.launched, draft.runner.answered) == (2, 1)


def test_several_sessions_have_the_children_of_the_host(tmp_path: Path, device: str) -> None:
    """Each by its own: filters, tokens that its target does not know, its tokenizer, penalties."""
    (draft,) = drafts(tmp_path, device, CHAINED)
    host = DraftRunner(draft.model, None, VOCABULARY, 0.8)
    draft.scheduler.sessions.link_up(2, np.arange(VOCABULARY) % 3 > 0)
    draft.open(replace(SAMPLED, top_p=0.9, min_p=0.001))
    draft.open(SamplingParams(), number=1, link=2)
    draft.open(SamplingParams(repetition_penalty=1.5, logit_bias=((7, 3.0),)), number=2)
    draft.scheduler.sessions.link_up(3, *FOREIGN)
    draft.open(SAMPLED, link=3)
    for _ in range(2):
        step = draft.scheduler.next(draft.clock)
        assert step is not None
        assert len(step.parts) == 4
        found, wanted = draft.runner.run(step), host.run(step)
        for own, expected in zip(found, wanted, strict=True):
            assert own.tokens.tolist() == expected.tokens.tolist()
            assert np.allclose(own.logprobs, expected.logprobs, rtol=0, atol=1e-4)
        draft.scheduler.settle(step, found, draft.clock)
    assert draft.runner.launched == 2
    tokens = draft.scheduler.sessions.live[2, 1].tree.nodes.token
    assert len(tokens)
    assert (tokens % 3 > 0).all()


def test_passes_for_a_target_of_another_tokenizer_are_not_chained(
    tmp_path: Path, device: str
) -> None:
    (draft,) = drafts(tmp_path, device, CHAINED)
    draft.scheduler.sessions.link_up(3, *FOREIGN)
    draft.open(SAMPLED, link=3)
    assert draft.passes(3) == 3
    assert (draft.runner.launched, draft.runner.answered) == (3, 0)


@pytest.mark.parametrize("chained", [1, CHAINED])
def test_two_runners_of_one_model_have_graphs_of_their_own(
    chained: int, tmp_path: Path, device: str
) -> None:
    """Graphs of one write to its own results, which the other never reads."""
    (first,) = drafts(tmp_path, device, chained)
    second = Draft(GpuDraftRunner(first.model, None, VOCABULARY, 0.8, chained), first.model)
    for draft in (first, second):
        draft.open(SamplingParams())
        draft.passes(1)
    assert second.growth() == first.growth()


def test_passes_that_cannot_be_chained_are_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(ValueError, match="chained: 7 passes, wanted 1 to 6"):
        drafts(tmp_path, device, 7)


def test_a_draft_on_a_gpu_is_run_there_and_chained_unless_in_turn(
    tmp_path: Path, device: str
) -> None:
    (draft,) = drafts(tmp_path, device, 1)
    model = ModelSettings(uri=f"file://{tmp_path}")
    own = WorkerSettings(role=Role.DRAFT, name="tiny", model=model, cache=str(tmp_path))
    models = prepare_models(own)
    loaded = LoadedModel(draft.model, draft.model.kv_cache, INTERPRETED, 96, 0, on_gpu=True)
    for colocated, chained in ((False, CHAINED_BY_DEFAULT), (True, 1)):
        runner = draft_runner(loaded, models.vocabulary, colocated=colocated)
        assert isinstance(runner, GpuDraftRunner)
        assert runner.chained == chained
