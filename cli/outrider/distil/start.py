"""What a draft's training starts from: some layers of its target."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.distil.errors import BadRecipe
from outrider.distil.network import Draft, Weights
from outrider.worker.model.checkpoint import EMBEDDING, HEAD
from outrider.worker.model.config import ModelConfig


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
    own = dataclasses.replace(config, layers=len(layers), output_ids=tuple(output_ids), tied=False)
    head = weights.get(HEAD, weights[EMBEDDING])[list(output_ids)]
    return Draft(own, {**weights, HEAD: head}, layers, sees_features=False)
