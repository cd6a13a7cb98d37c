"""A model whose files lie ready: where they are, and what identifies them.

Leaves making them to `prepare` and reading tensors to `load`; imports no torch.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from outrider.worker.checkpoints.checkpoint import has_own_head
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.host.disk_cache import remembered
from outrider.worker.model.config import LongScaling, ModelConfig

ANSWER_ENDS = "answer_ends.json"
CHECKPOINT = "checkpoint"
"""Folder in a model's cache of the Hugging Face folder that a GGUF file became."""


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """Local folders from which one model loads without further work."""

    name: str
    """What people call the model: the last part of its URI."""
    directory: Path
    """Folder of config.json and safetensors."""
    tokenizer: Path
    """Folder of tokenizer.json and tokenizer_config.json, the model's own or its target's."""
    cache: Path
    """An existing folder for measured facts about exactly these weights."""
    revision: str
    """SHA-256 of weights, config and Outrider's version, in hex."""
    embeddings: Path | None = None
    """Folder of config.json and safetensors of the model whose embedding is borrowed."""
    served: int | None = None
    """Most tokens of a sequence that is served; None: as many as the model was made for."""

    def config(self) -> ModelConfig:
        """Read the config, with the end tokens of the tokenizer beside its own; raises
        `ModelError`."""
        config = read_config(self.directory, self.embeddings)
        if config.tied and self.embeddings is None and has_own_head(self.cache):
            config = replace(config, tied=False)
        found = remembered(self.cache / ANSWER_ENDS, lambda facts: list(map(int, facts["found"])))
        if self.served is not None and isinstance(config.rope_scaling, LongScaling):
            config = replace(config, context=min(self.served, config.context))
        more = (token for token in found or () if token < config.vocab)
        return replace(config, end_ids=tuple(dict.fromkeys((*config.end_ids, *more))))

    def to_fields(self) -> dict[str, str | int | None]:
        """Return plain JSON values, as `from_fields` takes them."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Restore what `to_fields` returned."""
        folders = ("directory", "tokenizer", "cache", "embeddings")
        paths = {key: fields[key] and Path(fields[key]) for key in folders}
        return cls(**(fields | paths))
