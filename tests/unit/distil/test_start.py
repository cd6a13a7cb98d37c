"""What a draft begins as: layers of its target, or another draft of it."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.distil.draft_folder import write_draft
from outrider.distil.errors import BadRecipe
from outrider.distil.network import Draft
from outrider.distil.recipe import Recipe
from outrider.distil.start import Start
from outrider.distil.target import Target
from outrider.worker.checkpoints.load import load
from tests.distilling import find_target, ignore
from tests.tiny_models import write_tiny


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def recipe(target: Target, folder: Path, begin_with: Path | None, **given: object) -> Recipe:
    return Recipe(target=target.uri, out=folder / "out", begin_with=begin_with, **given)  # type: ignore[arg-type]


def changed_draft(target: Target, folder: Path) -> Draft:
    """Returns a draft of two layers that is not its target's any more, after writing it."""
    begun = Start.of(Recipe(target=target.uri, out=folder, layers=(0, 2)), target, folder, ignore)
    draft = begun.network(*load(target.prepared), range(100))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    write_draft(folder, draft, target, begun.fields(), 0.5)
    return draft


@pytest.mark.parametrize("tied", [True, False])
def test_a_draft_begins_with_another_and_other_outputs(
    tmp_path: Path, cache: Path, tied: bool
) -> None:
    folder = write_tiny(tmp_path / "target", vocab=260, layers=3, tie_word_embeddings=tied)
    target = find_target(folder, cache)
    before = changed_draft(target, tmp_path / "first")
    begun = Start.of(recipe(target, tmp_path, tmp_path / "first"), target, cache, ignore)
    config, weights = load(target.prepared)
    draft = begun.network(config, weights, range(30, 200))
    assert draft.config.output_ids == tuple(range(30, 200))
    for own, other in zip(draft.parameters(), before.parameters(), strict=True):
        assert torch.allclose(own, other, atol=other.detach().abs().max().item() / 100)
    assert torch.equal(draft.head[:70], before.head[30:])
    sha256 = hashlib.sha256((tmp_path / "first" / "model.safetensors").read_bytes()).hexdigest()
    said = {"sha256": sha256}
    assert begun.fields() == {"initialised_from_draft": said}
    assert sha256 in begun.words


def test_a_draft_that_is_trained_further_is_another_recipe(
    target: Target, tmp_path: Path, cache: Path
) -> None:
    changed_draft(target, tmp_path / "first")
    one = Start.of(recipe(target, tmp_path, tmp_path / "first"), target, cache, ignore)
    other = Start.of(recipe(target, tmp_path, None), target, cache, ignore)
    assert one.words != other.words
    assert other.words == "layers 0, 2 of the target"


def test_layers_and_a_draft_at_once_are_refused(
    target: Target, tmp_path: Path, cache: Path
) -> None:
    with pytest.raises(BadRecipe, match="not both"):
        Start.of(recipe(target, tmp_path, tmp_path, layers=(0,)), target, cache, ignore)


def test_a_draft_of_another_target_is_refused(target: Target, tmp_path: Path, cache: Path) -> None:
    changed_draft(target, tmp_path / "first")
    config, weights = load(target.prepared)
    begun = Start.of(recipe(target, tmp_path, tmp_path / "first"), target, cache, ignore)
    embedding = "model.embed_tokens.weight"
    other = weights | {embedding: np.asarray(weights[embedding]) + 1}
    with pytest.raises(BadRecipe, match="no draft that borrows this target's embedding"):
        begun.network(config, other, range(100))
