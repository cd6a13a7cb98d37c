"""Prepared models of a worker, and the facts about them that are needed before its engine starts.

Both processes of a worker read it: the server for vocabulary and limits, the engine for weights.
"""

import json
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import MIN_CONTEXT, WorkerSettings
from outrider.worker.checkpoints import vocabulary
from outrider.worker.checkpoints.fingerprint import ignore_progress
from outrider.worker.checkpoints.prepare import cache_folder, prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError

DEFAULT_CONTEXT = 4096
"""Most tokens of a sequence unless settings say otherwise."""


@dataclass(frozen=True, slots=True)
class Models:
    """Folders that the engine loads from."""

    own: PreparedModel
    """The role's own model."""
    colocated: PreparedModel | None
    """A target's draft that runs in its own process."""
    vocabulary: int
    """Token ids of the role's tokenizer."""

    def to_json(self) -> str:
        """Encode as text."""
        colocated = self.colocated.to_fields() if self.colocated else None
        fields = {"own": self.own.to_fields(), "colocated": colocated}
        return json.dumps(fields | {"vocabulary": self.vocabulary})

    @classmethod
    def from_json(cls, text: str) -> "Models":
        """Decode what `to_json` encoded."""
        fields = json.loads(text)
        colocated = fields["colocated"] and PreparedModel.from_fields(fields["colocated"])
        return cls(PreparedModel.from_fields(fields["own"]), colocated, fields["vocabulary"])


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Limits and vocabulary of a model, for the server's clients and peers."""

    context: int
    """Most tokens of one sequence."""
    vocabulary: int
    """Token ids that both the tokenizer and the embedding know."""
    end_ids: tuple[int, ...]
    hashes: NDArray[np.uint64]
    """[blocks] of the id to bytes map."""
    outputs: tuple[int, ...]
    """Ids that the model can output, by block."""


def prepare_models(settings: WorkerSettings) -> Models:
    """Prepare this worker's models; quick where that was done before. Raises `ModelError`, and
    `SettingsError` for more stages than the model has layers."""
    cache = cache_folder(settings)
    colocated = prepare(settings.colocated, cache, ignore_progress) if settings.colocated else None
    own = prepare(settings.model, cache, ignore_progress)
    served = settings.max_context or DEFAULT_CONTEXT
    own, colocated = replace(own, served=served), colocated and replace(colocated, served=served)
    settings.pipeline.check_layers(own.config().layers)
    size = min(len(vocabulary.read(own)), own.config().vocab)
    return Models(own, colocated, size)


def read_facts(settings: WorkerSettings, models: Models) -> ModelFacts:
    """Read limits and vocabulary of the role's own model; raises `ModelError`."""
    config = models.own.config()
    tokens = vocabulary.read(models.own)
    return ModelFacts(
        context=context_of(settings, config.context),
        vocabulary=models.vocabulary,
        end_ids=config.end_ids,
        hashes=vocabulary.block_hashes(tokens),
        outputs=vocabulary.outputs_by_block(config.output_ids, len(tokens)),
    )


def context_of(settings: WorkerSettings, most: int) -> int:
    """Return the most tokens of one sequence, by the settings and the model's own limit.

    Raises `ModelError` for a model whose limit is below any that settings may ask for.
    """
    if most < MIN_CONTEXT:
        raise ModelError(f"the model's context of {most} tokens is less than {MIN_CONTEXT}")
    return min(settings.max_context or DEFAULT_CONTEXT, most)
