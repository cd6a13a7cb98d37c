"""What a draft begins as: layers of its target, or another draft of it."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from outrider.distil.draft_folder import write_draft
from outrider.distil.errors import BadRecipe
from outrider.distil.network import Draft
from outrider.distil.recipe import Recipe
from outrider.distil.start import Start, head_of, weights_of
from outrider.distil.target import Target
from outrider.worker.checkpoints.load import load
from tests.distilling import find_target, ignore, prepared
from tests.tiny_models import write_tiny


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def recipe(target: Target, folder: Path, begin_with: Path | None, **given: object) -> Recipe:
    return Recipe(target=target.uri, out=folder / "out", begin_with=begin_with, **given)  # type: ignore[arg-type]


def changed_draft(target: Target, folder: Path) -> Draft:
    """Returns a draft of two layers that is not its target's any more, after writing it."""
    begun = Start.of(Recipe(target=target.uri, out=folder, layers=(0, 2)), target, folder, ignore)
    draft = begun.network(target, head(target), range(100))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    write_draft(folder, draft, target, begun, 0.5)
    return draft


@pytest.mark.parametrize("tied", [True, False])
def test_a_draft_begins_with_another_and_other_outputs(
    tmp_path: Path, cache: Path, tied: bool
) -> None:
    folder = write_tiny(tmp_path / "target", vocab=260, layers=3, tie_word_embeddings=tied)
    target = find_target(folder, cache)
    before = changed_draft(target, tmp_path / "first")
    begun = Start.of(recipe(target, tmp_path, tmp_path / "first"), target, cache, ignore)
    draft = begun.network(target, head(target), range(30, 200))
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
    begun = Start.of(recipe(target, tmp_path, tmp_path / "first"), target, cache, ignore)
    other = find_target(write_tiny(tmp_path / "other", vocab=260, layers=3, seed=5), cache)
    with pytest.raises(BadRecipe, match="no draft that borrows this target's embedding"):
        begun.network(other, head(other), range(100))


def test_a_draft_begins_with_layers_of_another_model(
    target: Target, tmp_path: Path, cache: Path
) -> None:
    folder = write_tiny(tmp_path / "other", "qwen2", vocab=260, layers=4, hidden_size=48)
    begun = Start.of(of_model(target, tmp_path, folder, layers=(1, 3)), target, cache, ignore)
    draft = begun.network(target, head(target), range(30, 200))
    _, weights = load(prepared(folder, cache))
    for layer, number in zip(draft.layers, (1, 3), strict=True):
        down = weights[f"model.layers.{number}.mlp.down_proj.weight"]
        assert torch.equal(layer.down, torch.from_numpy(down))  # type: ignore[arg-type]
    assert draft.head.shape == (170, 48)
    assert begun.words.startswith("layers 1, 3 of other, sha256 ")


def test_a_draft_with_its_own_head_is_trained_further(
    target: Target, tmp_path: Path, cache: Path
) -> None:
    before = draft_of_model(target, tmp_path, cache)
    further = Start.of(recipe(target, tmp_path, tmp_path / "first"), target, cache, ignore)
    assert further.output_ids == tuple(range(30, 200))
    draft = further.network(target, head(target), further.output_ids)
    for own, other in ((draft.head, before.head), (draft.embedding, before.embedding)):
        assert torch.allclose(own, other, atol=other.abs().max().item() / 100)
    assert draft.target_head is not None
    assert before.target_head is not None
    assert torch.equal(draft.target_head, before.target_head)
    write_draft(tmp_path / "second", draft, target, further, 0.5)
    said = json.loads((tmp_path / "second" / "config.json").read_text())
    assert [name for name in said if name.startswith("initialised")] == ["initialised_from_draft"]


def test_a_model_of_another_tokenizer_is_refused(
    target: Target, tmp_path: Path, cache: Path
) -> None:
    folder = write_tiny(tmp_path / "other", vocab=260, layers=2)
    swap_tokens(folder)
    with pytest.raises(BadRecipe, match="another tokenizer than the target, from token 97 on"):
        Start.of(of_model(target, tmp_path, folder), target, cache, ignore)


def test_a_draft_with_its_own_head_of_another_tokenizer_is_refused(
    target: Target, tmp_path: Path, cache: Path
) -> None:
    draft_of_model(target, tmp_path, cache)
    swap_tokens(tmp_path / "first")
    with pytest.raises(BadRecipe, match="beginWith: first has another tokenizer than the target"):
        Start.of(recipe(target, tmp_path, tmp_path / "first"), target, cache, ignore)


def swap_tokens(folder: Path) -> None:
    """Make ids of a model's tokenizer mean other tokens."""
    file = folder / "tokenizer.json"
    fields = json.loads(file.read_text())
    ids = fields["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    file.write_text(json.dumps(fields))


def draft_of_model(target: Target, folder: Path, cache: Path) -> Draft:
    """Returns a draft with a head of its own, after writing it to `first`."""
    model = write_tiny(folder / "other", vocab=260, layers=4, hidden_size=48)
    begun = Start.of(of_model(target, folder, model), target, cache, ignore)
    draft = begun.network(target, head(target), range(30, 200))
    write_draft(folder / "first", draft, target, begun, 0.5)
    return draft


def of_model(target: Target, folder: Path, model: Path, **given: object) -> Recipe:
    """The recipe of a draft with layers of another model."""
    return recipe(target, folder, None, layers_from=f"file://{model}", **given)


def head(target: Target) -> Tensor:
    return head_of(weights_of(target.prepared))
