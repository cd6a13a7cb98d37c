"""What a draft's training starts from: layers of its target or of another model, or a draft."""

import dataclasses
import enum
from collections.abc import Callable, Sequence
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
from outrider.distil.target import Target, check_model, sha256_of
from outrider.worker.api.text import Text
from outrider.worker.checkpoints.checkpoint import read_tensors, weight_files
from outrider.worker.checkpoints.fingerprint import Progress
from outrider.worker.checkpoints.load import load_part
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, LAYERS, NORM


class Origin(enum.Enum):
    """What has the layers that a draft begins with."""

    TARGET = enum.auto()
    MODEL = enum.auto()
    """Another model with the target's tokenizer."""
    DRAFT = enum.auto()


@dataclass(frozen=True, slots=True)
class Start:
    """What one distillation's draft begins as."""

    origin: Origin
    model: PreparedModel
    """The model that has the layers."""
    sha256: str
    """SHA-256 of the model's weights."""
    layers: tuple[int, ...]
    """Layers of the model; all of them if it is a draft."""

    @classmethod
    def of(cls, recipe: Recipe, target: Target, cache: Path, progress: Progress) -> Self:
        """Find it; raises `BadRecipe`, and `ModelError` for a model that cannot be read."""
        if recipe.begin_with is not None:
            if recipe.layers is not None or recipe.layers_from is not None:
                raise BadRecipe("a draft begins with layers of a model or with a draft, not both")
            settings = draft_settings(recipe.begin_with, target.uri)
            draft = prepare(settings, cache, progress)
            if settings.embeddings_from is None:
                check_model(draft.config(), "beginWith: the draft")
                check_tokenizer(draft, target, "beginWith")
            sha256 = sha256_of(settings.uri, cache, progress)
            return cls(Origin.DRAFT, draft, sha256, tuple(range(draft.config().layers)))
        if recipe.layers_from is not None:
            model = prepare(ModelSettings(uri=recipe.layers_from), cache, progress)
            check_model(model.config(), "layersFrom: the model")
            check_tokenizer(model, target, "layersFrom")
            sha256 = sha256_of(recipe.layers_from, cache, progress)
            return cls(Origin.MODEL, model, sha256, layers_of(model.config(), recipe, "the model"))
        layers = layers_of(target.config, recipe, "the target")
        return cls(Origin.TARGET, target.prepared, target.sha256, layers)

    @property
    def borrows(self) -> bool:
        """True if embedding and head are the target's."""
        return self.origin is Origin.TARGET or self.model.embeddings is not None

    @property
    def output_ids(self) -> tuple[int, ...] | None:
        """The outputs of a draft with a head of its own, which has no others."""
        if self.origin is not Origin.DRAFT or self.borrows:
            return None
        return self.model.config().output_ids

    @property
    def words(self) -> str:
        """What it is, for notes and cards."""
        numbers = ", ".join(map(str, self.layers))
        match self.origin:
            case Origin.TARGET:
                return f"layers {numbers} of the target"
            case Origin.MODEL:
                return f"layers {numbers} of {self.model.name}, sha256 {self.sha256}"
            case Origin.DRAFT:
                return f"the draft of sha256 {self.sha256}"

    def fields(self) -> dict[str, Any]:
        """Return what config.json says of it: not where it lay, for drafts are given away."""
        match self.origin:
            case Origin.TARGET:
                return {"initialised_from_target_layers": list(self.layers)}
            case Origin.MODEL:
                model = {"name": self.model.name, "sha256": self.sha256}
                return {"initialised_from_model": model | {"layers": list(self.layers)}}
            case Origin.DRAFT:
                return {"initialised_from_draft": {"sha256": self.sha256}}

    def network(self, target: Target, head: Tensor, output_ids: Sequence[int]) -> Draft:
        """Return the draft before training; `head`: the target's, [vocabulary, hidden].

        Raises `BadRecipe` for a draft of another target, and for outputs that there are not.
        """
        config, weights = self.model.config(), weights_of(self.model, self.layers)
        if self.borrows:
            own = dataclasses.replace(config, output_ids=None)
            if self.origin is Origin.DRAFT:
                self._check_borrowed(weights[EMBEDDING], target)
            return start(own, {**weights, HEAD: head.numpy()}, self.layers, output_ids)
        vocab = min(config.vocab, len(head))
        if max(output_ids) >= vocab:
            raise BadRecipe(f"outputs: {self.model.name} has only {vocab} tokens; ask fewer")
        return start(config, weights, self.layers, output_ids, head[list(output_ids)])

    def _check_borrowed(self, embedding: Any, target: Target) -> None:
        """Raise `BadRecipe` for a draft that was not trained on the target's embedding."""
        of_target = _parts(target.prepared, lambda name: name == EMBEDDING)[EMBEDDING]
        if not np.array_equal(embedding, of_target):
            raise BadRecipe(
                f"{self.model.directory} is no draft that borrows this target's embedding"
            )


def draft_settings(folder: Path, target: str) -> ModelSettings:
    """Return what loads a draft: with the target's embedding, unless it has one of its own."""
    files = weight_files(folder)
    own = any(read_tensors(file, lambda name: name == EMBEDDING) for file in files)
    return ModelSettings(uri=f"file://{folder}", embeddings_from=None if own else target)


def check_tokenizer(model: PreparedModel, target: Target, field: str) -> None:
    """Raise `BadRecipe`, naming a field, if ids of a model and its target mean other tokens."""
    own, tokens = Text.load(model.tokenizer).tokens, target.layout.text.tokens
    if list(own) != list(tokens):
        pairs = enumerate(zip(own, tokens, strict=False))
        where = next((at for at, (a, b) in pairs if a != b), min(len(own), len(tokens)))
        raise BadRecipe(
            f"{field}: {model.name} has another tokenizer than the target, from token {where} "
            "on; allowed: a model of the same tokenizer"
        )


def weights_of(model: PreparedModel, layers: Sequence[int] = ()) -> Weights:
    """Return embedding, head, final norm, and numbered layers."""
    ends, prefixes = (EMBEDDING, HEAD, NORM), tuple(f"{LAYERS}{number}." for number in layers)
    return _parts(model, lambda name: name in ends or name.startswith(prefixes))


def _parts(model: PreparedModel, wanted: Callable[[str], bool]) -> Weights:
    return load_part(model, lambda _, tensor: tensor, wanted)


def layers_of(config: ModelConfig, recipe: Recipe, whose: str) -> tuple[int, ...]:
    """Return the layers that a recipe takes of a model; raises `BadRecipe`."""
    layers = recipe.layers or default_layers(config.layers)
    check_layers(layers, config, whose)
    return layers


def default_layers(layers: int) -> tuple[int, ...]:
    """Return the first two layers and the last; fewer where the target has few.

    With the demo's target 0, 1 and 29 of 30: a draft of 10 million parameters.
    """
    return (0,) if layers < 3 else (0, 1, layers - 1) if layers > 3 else (0, layers - 1)


def check_layers(layers: Sequence[int], config: ModelConfig, whose: str = "the target") -> None:
    """Raise `BadRecipe` for layers that a model does not have, or for none."""
    wrong = [layer for layer in layers if not 0 <= layer < config.layers]
    if wrong or not layers or list(layers) != sorted(set(layers)):
        raise BadRecipe(
            f"layers {','.join(map(str, layers))}: {whose} has 0 to {config.layers - 1}; "
            "allowed: some of them, rising"
        )


def head_of(weights: Weights) -> Tensor:
    """Return the target's head, [vocabulary, hidden]: its embedding where they are tied."""
    return torch.from_numpy(weights.get(HEAD, weights[EMBEDDING]))


def start(
    config: ModelConfig,
    weights: Weights,
    layers: Sequence[int],
    output_ids: Sequence[int],
    target_head: Tensor | None = None,
) -> Draft:
    """Return a draft that is not trained yet: numbered layers, and some outputs, of a model.

    `target_head`: the target's rows of the outputs, where the model's head is another.
    """
    own = dataclasses.replace(
        config,
        layers=len(layers),
        windows=(),  # `check_model` allows none that a text is longer than
        output_ids=tuple(output_ids),
        tied=False,
    )
    head = weights.get(HEAD, weights[EMBEDDING])
    if config.output_ids != own.output_ids:
        head = head[list(output_ids)]
    return Draft(own, {**weights, HEAD: head}, layers, target_head)
