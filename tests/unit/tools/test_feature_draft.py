"""Drafts that see features: what the target writes, and training that a kill does not change."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tools.feature_draft.__main__ import main
from tools.feature_draft.network import Draft, causal
from tools.feature_draft.questions import Opening, Question, Questions
from tools.feature_draft.shards import ANSWERED, ASKED, GIVEN, Chat, load_shard, save_shard
from tools.feature_draft.start import PLAIN, Pair
from tools.feature_draft.training import (
    HELD_OUT,
    Recipe,
    Training,
    batch_of,
    check,
    hidden_states,
    spans,
)
from tools.feature_draft.writer import Writer, repeats_itself

from outrider.contract.settings import ModelSettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.checkpoint import EMBEDDING
from outrider.worker.model.llama import Llama
from outrider.worker.model.load import load
from outrider.worker.model.prepare import prepare
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.rows import prompt_rows
from tests.tiny_models import END_ID, write_draft_of, write_tiny


def prepared(folder: Path, cache: Path) -> PreparedModel:
    uri = f"file://{folder}"
    return prepare(ModelSettings(uri=uri), cache, lambda stage, done, total: None)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    target = write_tiny(tmp_path / "target", vocab=260, layers=3)
    draft = write_draft_of(target, tmp_path / "draft", noise=0.5, layers=1)
    return Pair(prepared(target, tmp_path / "cache"), prepared(draft, tmp_path / "cache"))


def written(pair: Pair, count: int, seed: int = 1, greedy: float = 0.5) -> list[Chat]:
    writer = Writer(pair.target, NumericPath.FP32, count, Questions(seed), seed, greedy)
    return writer.first(count)


def test_questions_follow_from_the_seed_and_come_in_all_kinds() -> None:
    drawn = [Questions(seed) for seed in (1, 1, 2)]
    first, again, other = ([source.draw() for _ in range(60)] for source in drawn)
    assert first == again != other
    assert {question.opening for question in first} == set(Opening)
    assert not [question for question in first if "{" in question.text]


def test_features_make_the_tokens_of_a_greedy_answer(pair: Pair) -> None:
    _, weights = load(pair.target)
    for chat in written(pair, 3, greedy=1.0):
        answered = np.flatnonzero(chat.writers == ANSWERED)
        logits = chat.features[answered - 1].astype(np.float32) @ weights[EMBEDDING].T
        gap = logits.max(axis=1) - logits[np.arange(len(answered)), chat.tokens[answered]]
        assert gap.max() < 0.05  # features are kept in fp16


def test_a_chat_written_beside_others_is_the_chat_written_alone(pair: Pair) -> None:
    class One:
        def draw(self) -> Question:
            return Question(Opening.ALL, "Why is the sky blue?")

    def chats(slots: int) -> list[Chat]:
        return Writer(pair.target, NumericPath.FP32, slots, One(), greedy=1.0).first(slots)

    (alone,), beside = chats(1), chats(3)
    for chat in beside:
        assert np.array_equal(chat.tokens, alone.tokens)
        assert np.array_equal(chat.features, alone.features)


def test_a_question_that_the_target_writes_is_marked_so(pair: Pair) -> None:
    class Nothing:
        def draw(self) -> Question:
            return Question(Opening.NOTHING, "")

    (chat,) = Writer(pair.target, NumericPath.FP32, 1, Nothing(), seed=3).first(1)
    runs = [
        int(w) for w, before in zip(chat.writers, [-1, *chat.writers], strict=False) if w != before
    ]
    assert runs == [GIVEN, ASKED, GIVEN, ANSWERED]
    assert len(chat.features) == len(chat.tokens) - 1


def test_answers_that_repeat_themselves_are_found() -> None:
    assert repeats_itself([9, 9, 9, *[1, 2, 3] * 6])
    assert repeats_itself([7] * 16)
    assert not repeats_itself([1, 2, 3, 4] * 2 + [1, 2, 3, 5] * 2)


def test_a_shard_gives_back_its_chats(pair: Pair, tmp_path: Path) -> None:
    chats = written(pair, 4)
    save_shard(tmp_path / "chats-0000.npz", chats)
    back = list(load_shard(tmp_path / "chats-0000.npz"))
    for chat, read in zip(chats, back, strict=True):
        assert np.array_equal(chat.tokens, read.tokens)
        assert np.array_equal(chat.writers, read.writers)
        assert np.array_equal(chat.features, read.features)


def product_logits(model: PreparedModel, tokens: np.ndarray) -> np.ndarray:
    config, weights = load(model)
    kv_cache = HostKVCache(config.kv_shape, 4, 128)
    llama = Llama(config, weights, NumericPath.FP32, kv_cache, 64)
    table = kv_cache.admit(tokens[:0], 128)
    assert table is not None
    return llama.forward(prompt_rows(tokens, 0, table, wants_output=True)).copy()


@pytest.mark.parametrize("sees_features", [False, True])
def test_an_untrained_draft_is_the_plain_draft(pair: Pair, sees_features: bool) -> None:
    tokens = np.arange(40, 70, dtype=np.int32)
    draft = pair.start(PLAIN, sees_features)
    features = torch.randn(1, len(tokens), draft.config.hidden)
    positions = torch.arange(len(tokens))
    hidden = draft(torch.from_numpy(tokens.astype(np.int64))[None], features, positions, causal)
    logits = draft.logits(hidden)[0, -1].detach().numpy()
    assert logits == pytest.approx(product_logits(pair.draft, tokens)[0], abs=1e-3)


def test_a_start_from_layers_of_the_target_is_the_target(pair: Pair) -> None:
    tokens = np.arange(40, 70, dtype=np.int32)
    draft = pair.start("0,1,2", sees_features=False)
    features = torch.zeros(1, len(tokens), draft.config.hidden)
    positions = torch.arange(len(tokens))
    hidden = draft(torch.from_numpy(tokens.astype(np.int64))[None], features, positions, causal)
    logits = draft.logits(hidden)[0, -1].detach().numpy()
    assert logits == pytest.approx(product_logits(pair.target, tokens)[0], abs=1e-3)


def test_no_row_sees_the_feature_that_chooses_its_next_token(pair: Pair) -> None:
    """A change of one true feature reaches later rows alone."""
    draft = seeing(pair)
    batch = batch_of(written(pair, 1), 0.1)
    before = hidden_states(draft, batch, 0.0)
    batch.features[0, 20] += 1
    changed = (hidden_states(draft, batch, 0.0) != before).any(-1)[0]
    assert changed[21]
    assert not changed[:21].any()


def seeing(pair: Pair) -> Draft:
    """A draft whose features have some weight."""
    torch.manual_seed(5)
    draft = pair.start(PLAIN, sees_features=True)
    assert draft.mix is not None
    with torch.no_grad():
        draft.mix += 0.1 * torch.randn_like(draft.mix)
    return draft


def test_spans_are_as_many_and_as_long_as_asked() -> None:
    torch.manual_seed(1)
    within = spans(torch.Size((200, 300)), 0.12)
    # A row is outside where none of the last six rows began a span that reaches it.
    outside = np.prod([1 - 0.12 * (6 - behind) / 6 for behind in range(6)])
    assert within.float().mean().item() == pytest.approx(1 - outside, abs=0.02)
    assert not spans(torch.Size((3, 4)), 0.0).any()


RECIPE = Recipe(steps=100, batch_tokens=500, warm_up=2, seed=3)


def trained(pair: Pair, file: Path, chats: list[Chat], recipe: Recipe = RECIPE) -> Training:
    notes = {"layers": PLAIN, "sees_features": True}
    training = Training(pair.start(PLAIN, True), chats, recipe, file, notes)
    training.run(lambda line: None)
    return training


@pytest.fixture
def chats(pair: Pair) -> list[Chat]:
    return written(pair, 48)


def test_training_brings_a_draft_nearer_and_can_be_loaded(
    pair: Pair, chats: list[Chat], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    curve = trained(pair, tmp_path / "draft.pt", chats).curve
    assert [point["step"] for point in curve] == [0, 50, 100]
    assert curve[-1]["divergence"] < 0.8 * curve[0]["divergence"]
    draft, fields = pair.trained(tmp_path / "draft.pt")
    assert draft.sees_features
    assert fields["curve"] == curve
    assert draft.mix is not None
    assert draft.mix[:, draft.config.hidden :].abs().max() > 0


def test_training_that_was_killed_ends_as_if_it_had_not_been(
    pair: Pair, chats: list[Chat], tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    whole = trained(pair, tmp_path / "whole.pt", chats)

    class Killed(Exception):
        pass

    def kill(line: str) -> None:
        if line.startswith("step 100"):
            raise Killed

    notes = {"layers": PLAIN, "sees_features": True}
    killed = Training(pair.start(PLAIN, True), chats, RECIPE, tmp_path / "cut.pt", notes)
    with pytest.raises(Killed):
        killed.run(kill)
    resumed = trained(pair, tmp_path / "cut.pt", chats)
    assert resumed.curve == whole.curve
    for own, other in zip(resumed.draft.parameters(), whole.draft.parameters(), strict=True):
        assert torch.equal(own, other)


def test_a_checkpoint_of_another_recipe_is_refused(
    pair: Pair, chats: list[Chat], tmp_path: Path
) -> None:
    trained(pair, tmp_path / "draft.pt", chats, Recipe(steps=1))
    with pytest.raises(ValueError, match=r"another recipe: steps 1, not 2$"):
        trained(pair, tmp_path / "draft.pt", chats, Recipe(steps=2))
    notes = {"layers": PLAIN, "sees_features": True, "chats": 49}
    other = Training(pair.start(PLAIN, True), chats, Recipe(steps=1), tmp_path / "draft.pt", notes)
    with pytest.raises(ValueError, match=r"another recipe: chats None, not 49$"):
        other.run(lambda line: None)


@pytest.mark.parametrize("chats", [0, 1, HELD_OUT])
def test_too_few_chats_are_refused(chats: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{chats} chats: .* at least {HELD_OUT + 1}"):
        check(chats, tmp_path / "draft.pt")
    check(HELD_OUT + 1, tmp_path / "draft.pt")


def test_a_folder_that_is_not_there_is_refused_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="missing is no folder"):
        check(HELD_OUT + 1, tmp_path / "missing" / "draft.pt")


def test_train_looks_before_it_prepares_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["feature_draft", "train", str(tmp_path), "draft.pt"])
    with pytest.raises(ValueError, match="0 chats"):
        main()


def test_an_end_token_ends_a_chat(pair: Pair) -> None:
    for chat in written(pair, 6):
        assert END_ID not in chat.tokens[np.argmax(chat.writers == ANSWERED) : -1]
