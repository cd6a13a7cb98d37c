"""What bench.feature_draft measures: trees over a recorded chat, and what is seen by age."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tools.feature_draft.start import PLAIN, Pair

from bench.feature.ages import hidden_by_age
from bench.feature.growing import GrowingDraft, Guesser, Passes
from bench.feature.rounds import Ahead, Tally, draft_ahead, draft_anew, first_root
from outrider.contract.settings import ModelSettings
from outrider.distil.batches import batch_of
from outrider.distil.network import Draft
from outrider.distil.prompts import Listed
from outrider.distil.shards import Chat
from outrider.distil.training import hidden_states
from outrider.worker.model.prepare import prepare
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.tree.walk import ROOT
from tests.distilling import written
from tests.tiny_models import write_draft_of, write_tiny


def prepared(folder: Path, cache: Path) -> PreparedModel:
    uri = f"file://{folder}"
    return prepare(ModelSettings(uri=uri), cache, lambda stage, done, total: None)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    target = write_tiny(tmp_path / "target", vocab=260, layers=2, initializer_range=0.6)
    draft = write_draft_of(target, tmp_path / "draft", noise=0.03)
    return Pair(prepared(target, tmp_path / "cache"), prepared(draft, tmp_path / "cache"))


@pytest.fixture
def chat(pair: Pair) -> Chat:
    return written(pair.target, 1, Listed(["Why is the sky blue?"], 0, 0), held_out=1)[0]


def guesser(pair: Pair, sees_features: bool, layers: str = PLAIN) -> Guesser:
    draft = pair.start(layers, sees_features).eval()
    if draft.mix is not None:
        torch.manual_seed(7)
        with torch.no_grad():
            draft.mix += 0.02 * torch.randn_like(draft.mix)
    return Guesser(draft, np.arange(260, dtype=np.int32), 1.0)


def fresh(draft: Draft, chat: Chat, tokens: list[int], true: int) -> torch.Tensor:
    """The last hidden state over `tokens`, computed at once; features known up to `true` - 1."""
    ids = torch.tensor(tokens)[None]
    features = torch.zeros(1, len(tokens), draft.config.hidden)
    features[0, 1 : true + 1] = torch.from_numpy(chat.features[:true].astype(np.float32))
    hidden = torch.zeros(0)
    for position in range(true, len(tokens)):
        states = draft(ids, features, torch.arange(len(tokens)), causal_one)
        hidden = states[0, position]
        if position + 1 < len(tokens):
            features[0, position + 1] = hidden
    return hidden


def causal_one(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )


@pytest.mark.parametrize("sees_features", [False, True])
@torch.no_grad()
def test_children_in_a_tree_are_those_of_a_fresh_pass(
    pair: Pair, chat: Chat, sees_features: bool
) -> None:
    one = guesser(pair, sees_features)
    draft = GrowingDraft(one, chat)

    def grown() -> Passes[None]:
        yield from draft.begin(first_root(chat))
        for _ in range(3):
            yield from draft.grow(3, 24, 8)
            if sees_features:
                yield from draft.begin_again(2)
            else:
                yield from draft.commit(chat.tokens[draft.root + 1 : draft.root + 3])
        while (yield from draft.grow(3, 24, 8)):
            pass

    # Another chat's passes beside these change nothing.
    one.together([grown(), draft_anew(one, chat, Tally())])
    nodes = draft.tree.nodes
    assert nodes.depth.max() >= 2
    for node in range(len(draft.tree)):
        path, at = [], int(nodes.parent[node])
        while at != ROOT:
            path.insert(0, int(nodes.token[at]))
            at = int(nodes.parent[at])
        text = chat.tokens[: draft.root + 1].tolist() + path
        tokens, logprobs = one.children(fresh(one.draft, chat, text, draft.root)[None])
        (column,) = np.flatnonzero(tokens[0] == nodes.token[node])
        assert nodes.logprob[node] == pytest.approx(float(logprobs[0, column]), abs=1e-3)


@torch.no_grad()
def test_every_way_of_drafting_commits_the_whole_answer(pair: Pair, chat: Chat) -> None:
    answer = len(chat.tokens) - 1 - first_root(chat)
    tallies = {}
    for sees_features in (False, True):
        one = Guesser(pair.start(PLAIN, sees_features), np.arange(260, dtype=np.int32), 1.0)
        anew, ahead = Tally(), Tally()
        one.together([draft_anew(one, chat, anew), draft_ahead(one, chat, Ahead(3), ahead)])
        for tally in (anew, ahead):
            assert answer - 1 <= tally.committed <= answer
            assert tally.tokens_per_pass > 1.3
        tallies[sees_features] = anew
    plain, untrained = tallies[False], tallies[True]
    assert untrained.passes == plain.passes
    shipped = untrained.to_draft_bytes - plain.to_draft_bytes
    assert shipped == 2 * chat.features.shape[1] * plain.committed


@torch.no_grad()
def test_the_first_age_sees_all_features_and_later_ones_fewer(pair: Pair, chat: Chat) -> None:
    one = guesser(pair, True)
    batch = batch_of([chat], 0.0)
    first, second, third = hidden_by_age(one.draft, batch.tokens, batch.features, 3)
    assert torch.allclose(first, hidden_states(one.draft, batch, 0.0), atol=1e-4)
    position = 30
    tokens = chat.tokens[: position + 1].tolist()
    for states, age in ((second, 2), (third, 3)):
        wanted = fresh(one.draft, chat, tokens, position + 1 - age)
        assert torch.allclose(states[0, position], wanted, atol=1e-3)
