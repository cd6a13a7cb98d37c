"""The draft's folder: a worker loads what was trained, of every family."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from outrider.contract.settings import Dtype
from outrider.distil.agreement import agreement, logits_of
from outrider.distil.draft_folder import SERVICE, quantised, service, write_draft
from outrider.distil.engine import Room, engine_of
from outrider.distil.network import Draft
from outrider.distil.recipe import Recipe
from outrider.distil.start import Origin, Start, head_of, start, weights_of
from outrider.distil.target import TRAINED, Target
from outrider.distil.trees import tokens_per_pass
from outrider.operator.spec import load as load_service
from outrider.worker.checkpoints.load import load
from outrider.worker.speculation.acceptance import ErrorScale
from tests.distilling import find_target, ignore, prepared, written
from tests.tiny_models import write_tiny

IDS = [*range(30, 200), 256]


def begun(target: Target) -> Start:
    return Start(Origin.TARGET, target.prepared, target.sha256, (0, 2))


def round_to_int8(*tensors: Tensor) -> None:
    """Make matrices what a folder can hold, so that writing rounds nothing."""
    with torch.no_grad():
        for tensor in tensors:
            if tensor.ndim == 2:
                stored = quantised({"w": tensor.numpy()})
                tensor.copy_(torch.from_numpy(stored["w"] * stored["w.scale"][:, None]))


def own_logits(draft: Draft, tokens: np.ndarray) -> np.ndarray:
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    with torch.no_grad():
        logits: np.ndarray = draft.logits(draft(ids))[0].numpy()
    return logits


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", TRAINED)
def test_a_worker_computes_what_was_trained(tmp_path: Path, family: str, tied: bool) -> None:
    folder = write_tiny(tmp_path / "target", family, vocab=260, layers=3, tie_word_embeddings=tied)
    target = find_target(folder, tmp_path / "cache")
    draft = start(target.config, load(target.prepared)[1], [0, 2], IDS)
    round_to_int8(*draft.parameters(), *(() if tied else (draft.head,)))
    write_draft(tmp_path / "draft", draft, target, begun(target), 0.9)
    model = prepared(tmp_path / "draft", tmp_path / "cache", target.uri)
    engine = engine_of(model, Dtype.FP32, Room(1, 128), None, 1)
    tokens = np.arange(40, 80, dtype=np.int32)
    assert engine.config.output_ids == tuple(IDS)
    assert engine.config.output_share == 0.9
    assert logits_of(engine, tokens) == pytest.approx(own_logits(draft, tokens)[:-1], abs=2e-3)
    engine.close()


def test_its_service_names_target_and_draft(target: Target, tmp_path: Path) -> None:
    draft = start(target.config, load(target.prepared)[1], [0], IDS)
    write_draft(tmp_path / "of ours", draft, target, begun(target), 0.9)
    text = (tmp_path / "of ours" / SERVICE).read_text()
    assert yaml.safe_load(text)["metadata"]["name"] == "target"
    spec = load_service(text).at_folder(str(tmp_path / "of ours")).spec
    assert spec.target.model.uri == target.uri
    assert spec.draft is not None
    assert spec.draft.model.uri == f"file://{tmp_path / 'of ours'}"


def test_a_worker_computes_a_draft_of_another_model_without_its_target(
    target: Target, tmp_path: Path
) -> None:
    other = write_tiny(tmp_path / "other", "qwen2", vocab=260, layers=3, hidden_size=48, seed=7)
    asked = Recipe(target=target.uri, out=tmp_path, layers=(0, 2), layers_from=f"file://{other}")
    one = Start.of(asked, target, tmp_path / "cache", ignore)
    draft = one.network(target, head_of(weights_of(target.prepared)), IDS)
    round_to_int8(*draft.parameters(), draft.head, draft.embedding)
    chat = written(target.prepared, 1)[0]
    features = torch.from_numpy(chat.features.astype(np.float32))
    whole = features @ head_of(weights_of(target.prepared)).T
    assert torch.allclose(draft.target_logits(features), whole[:, IDS], atol=1e-5)
    write_draft(tmp_path / "draft", draft, target, one, 0.9)
    model = prepared(tmp_path / "draft", tmp_path / "cache")
    engine = engine_of(model, Dtype.FP32, Room(1, 128), None, 1)
    tokens = np.arange(40, 80, dtype=np.int32)
    assert (engine.config.hidden, engine.config.output_ids) == (48, tuple(IDS))
    assert logits_of(engine, tokens) == pytest.approx(own_logits(draft, tokens)[:-1], abs=2e-3)
    engine.close()
    text = (tmp_path / "draft" / SERVICE).read_text()
    assert "embeddingsFrom" not in text
    assert load_service(text).spec.draft is not None


def test_a_long_name_is_cut_to_one_that_kubernetes_takes(target: Target) -> None:
    model = dataclasses.replace(target.prepared, name="a" * 49 + "-" + "b" * 9)
    text = service(dataclasses.replace(target, prepared=model), "draft", True)
    assert yaml.safe_load(text)["metadata"]["name"] == "a" * 49


def test_a_draft_that_is_its_target_is_always_right(target: Target, tmp_path: Path) -> None:
    weights = load(target.prepared)[1]
    chats = written(target.prepared, 6, held_out=6)
    room = Room(6, 512)
    engine = engine_of(target.prepared, Dtype.FP32, room, None, 1)
    found = agreement(engine, chats, head_of(weights))
    assert found.top[1] > 0.99
    assert found.overlap > 0.99
    assert found.divergence < 0.01
    assert found.tokens == sum(int((chat.writers == 2).sum()) for chat in chats)
    error = ErrorScale()
    walked = tokens_per_pass(engine, chats, 1, error)
    assert error.value < 0.9, "it was less sure than it could be"
    assert 2 >= walked.mean > 1.9  # the last pass of a text may have one token left
    assert walked.committed == found.tokens
    engine.close()


def test_walks_are_the_same_beside_others_and_gain_by_nodes(target: Target, tmp_path: Path) -> None:
    draft = start(target.config, load(target.prepared)[1], [0, 2], range(260))
    write_draft(tmp_path / "draft", draft, target, begun(target), 1.0)
    model = prepared(tmp_path / "draft", tmp_path / "cache", target.uri)
    engine = engine_of(model, Dtype.FP32, Room(5, 512), None, 1)
    chats = written(target.prepared, 5, held_out=5)
    fixed = ErrorScale(rate=0.0)
    together = tokens_per_pass(engine, chats, 4, fixed)
    alone = [tokens_per_pass(engine, [chat], 4, fixed) for chat in chats]
    assert together.committed == sum(one.committed for one in alone)
    assert together.passes == sum(one.passes for one in alone)
    means = [tokens_per_pass(engine, chats, nodes).mean for nodes in (1, 4, 16)]
    assert means == sorted(means)
    assert means[0] >= 1
    engine.close()
