"""Drafts that see features, trained by the tool: what they begin as, and what they see."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tools.feature_draft.__main__ import FEATURE_WEIGHT, SPAN_SHARE
from tools.feature_draft.start import PLAIN, Pair

from outrider.contract.settings import Dtype
from outrider.distil.agreement import logits_of
from outrider.distil.batches import batch_of
from outrider.distil.engine import Room, engine_of
from outrider.distil.network import Draft, causal
from outrider.distil.training import Corpus, Training, TrainingRecipe, hidden_states
from outrider.worker.model.prepared import PreparedModel
from tests.distilling import prepared, written
from tests.tiny_models import write_draft_of, write_tiny


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    target = write_tiny(tmp_path / "target", vocab=260, layers=3)
    draft = write_draft_of(target, tmp_path / "draft", noise=0.5, layers=1)
    return Pair(prepared(target, tmp_path / "cache"), prepared(draft, tmp_path / "cache"))


def product_logits(model: PreparedModel, tokens: np.ndarray) -> np.ndarray:
    engine = engine_of(model, Dtype.FP32, Room(1, 128), None, 1)
    logits = logits_of(engine, tokens)[-1]
    engine.close()
    return logits


def own_logits(draft: Draft, tokens: np.ndarray) -> np.ndarray:
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    features = torch.randn(1, len(tokens), draft.config.hidden)
    with torch.no_grad():
        hidden = draft(ids, features, torch.arange(len(tokens)), causal)
        logits: np.ndarray = draft.logits(hidden)[0, -2].numpy()
    return logits


@pytest.mark.parametrize("sees_features", [False, True])
def test_an_untrained_draft_is_the_plain_draft(pair: Pair, sees_features: bool) -> None:
    tokens = np.arange(40, 71, dtype=np.int32)
    own = own_logits(pair.start(PLAIN, sees_features), tokens)
    assert own == pytest.approx(product_logits(pair.draft, tokens), abs=1e-3)


def test_no_row_sees_the_feature_that_chooses_its_next_token(pair: Pair) -> None:
    """A change of one true feature reaches later rows alone."""
    draft = seeing(pair)
    batch = batch_of(written(pair.target, 1), 0.1)
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


def test_a_trained_draft_that_sees_features_can_be_loaded(pair: Pair, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    chats = written(pair.target, 40)
    recipe = TrainingRecipe(
        steps=60, batch_tokens=500, feature_weight=FEATURE_WEIGHT, span_share=SPAN_SHARE
    )
    notes = {"layers": PLAIN, "sees_features": True}
    corpus, file = Corpus(chats[:16], chats[16:]), tmp_path / "draft.pt"
    training = Training(pair.start(PLAIN, True), corpus, recipe, file, notes)
    training.run(lambda now: None)
    curve = training.curve
    assert curve[-1]["divergence"] < curve[0]["divergence"]
    draft, fields = pair.trained(file)
    assert draft.sees_features
    assert fields["curve"] == curve
    assert draft.mix is not None
    assert draft.mix[:, draft.config.hidden :].abs().max() > 0
