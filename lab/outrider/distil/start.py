"""What a draft's training starts from: some layers of its target, or those of another draft."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from outrider.contract.settings import ModelSettings
from outrider.distil.errors import BadRecipe
from outrider.distil.network import Draft, Weights
from outrider.distil.recipe import Recipe
from outrider.distil.target import Target
from outrider.worker.checkpoints.checkpoint import weight_files
from outrider.worker.checkpoints.fingerprint import Progress, weights_sha256
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.tensor_names import EMBEDDING, HEAD


@dataclass(frozen=True, slots=True)
class Start:
    """What one distillation's draft begins as."""

    layers: tuple[int, ...]
    """Layers of the target, or all layers of `draft`."""
    draft: PreparedModel | None = None
    """The draft that is trained further; None: layers of the target are."""
    uri: str | None = None
    """URI of the draft that is trained further."""
    sha256: str | None = None
    """SHA-256 of the weights of the draft that is trained further."""

    @classmethod
    def of(cls, recipe: Recipe, target: Target, cache: Path, progress: Progress) -> Self:
        """Find it; raises `BadRecipe`, and `ModelError` for a draft that cannot be read."""
        if recipe.begin_with is None:
            layers = recipe.layers or default_layers(target.config.layers)
            check_layers(layers, target.config)
            return cls(layers)
        if recipe.layers is not None:
            raise BadRecipe("a draft begins with layers of the target or with a draft, not both")
        uri = f"file://{recipe.begin_with}"
        draft = prepare(ModelSettings(uri=uri, embeddings_from=recipe.target), cache, progress)
        sha256 = weights_sha256(list(weight_files(recipe.begin_with)), cache, progress)
        return cls(tuple(range(draft.config().layers)), draft, uri, sha256)

    @property
    def words(self) -> str:
        """What it is, for notes and cards."""
        if self.draft is not None:
            return f"the draft of sha256 {self.sha256}"
        return f"layers {', '.join(map(str, self.layers))} of the target"

    def fields(self) -> dict[str, Any]:
        """Return what config.json says of it: not where it lay, for drafts are given away."""
        if self.draft is not None:
            return {"initialised_from_draft": {"sha256": self.sha256}}
        return {"initialised_from_target_layers": list(self.layers)}

    def network(self, config: ModelConfig, weights: Weights, output_ids: Sequence[int]) -> Draft:
        """Return the draft before training; `config`, `weights`: the target's.

        Raises `BadRecipe` for a draft of another target.
        """
        if self.draft is None:
            return start(config, weights, self.layers, output_ids)
        own, layers = load(self.draft)
        if own.hidden != config.hidden or not np.array_equal(layers[EMBEDDING], weights[EMBEDDING]):
            raise BadRecipe(f"{self.uri} is no draft that borrows this target's embedding")
        return start(own, layers | {HEAD: head_of(weights).numpy()}, self.layers, output_ids)


def default_layers(layers: int) -> tuple[int, ...]:
    """Return the first two layers and the last; fewer where the target has few.

    With the demo's target 0, 1 and 29 of 30: a draft of 10 million parameters.
    """
    return (0,) if layers < 3 else (0, 1, layers - 1) if layers > 3 else (0, layers - 1)


def check_layers(layers: Sequence[int], config: ModelConfig) -> None:
    """Raise `BadRecipe` for layers that the target does not have, or for all of them."""
    wrong = [layer for layer in layers if not 0 <= layer < config.layers]
    if wrong or not layers or list(layers) != sorted(set(layers)):
        raise BadRecipe(
            f"layers {','.join(map(str, layers))}: the target has 0 to {config.layers - 1}; "
            "allowed: some of them, rising"
        )


def head_of(weights: Weights) -> Tensor:
    """Return the target's head, [vocabulary, hidden]: its embedding where they are tied."""
    return torch.from_numpy(weights.get(HEAD, weights[EMBEDDING]))


def start(
    config: ModelConfig, weights: Weights, layers: Sequence[int], output_ids: Sequence[int]
) -> Draft:
    """Return a draft that is not trained yet: numbered layers, and some outputs, of a target."""
    own = dataclasses.replace(
        config,
        layers=len(layers),
        windows=(),  # `Target.find` allows none that a text is longer than
        output_ids=tuple(output_ids),
        tied=False,
    )
    head = weights.get(HEAD, weights[EMBEDDING])[list(output_ids)]
    return Draft(own, {**weights, HEAD: head}, layers)
