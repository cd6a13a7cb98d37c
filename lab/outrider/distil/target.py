"""The target of a distillation: found, checked, and told apart from others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from outrider.contract.settings import ModelSettings
from outrider.distil.answers import LONGEST, check_layout
from outrider.distil.chat_layout import ChatLayout
from outrider.distil.errors import BadRecipe
from outrider.worker.api.text import Text
from outrider.worker.checkpoints.checkpoint import weight_files
from outrider.worker.checkpoints.fingerprint import Progress, weights_sha256
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.checkpoints.source import ModelSource
from outrider.worker.model.config import Family, ModelConfig

TRAINED = (Family.LLAMA, Family.MISTRAL, Family.QWEN2, Family.QWEN3)
"""Families whose layers a draft can be trained of."""


@dataclass(frozen=True, slots=True)
class Target:
    """One target."""

    uri: str
    prepared: PreparedModel
    config: ModelConfig
    layout: ChatLayout
    sha256: str
    """SHA-256 of the target's GGUF file, or of all files of its weights."""
    is_gguf: bool

    @classmethod
    def find(cls, uri: str, cache: Path, progress: Progress) -> Self:
        """Prepare and check it; raises `ModelError` and `BadRecipe`."""
        prepared = prepare(ModelSettings(uri=uri), cache, progress)
        config = prepared.config()
        check_model(config, "the target")
        layout = ChatLayout.of(Text.load(prepared.tokenizer), config)
        check_layout(layout)
        is_gguf = ModelSource.parse(uri).resolve().is_file()
        return cls(uri, prepared, config, layout, sha256_of(uri, cache, progress), is_gguf)


def check_model(config: ModelConfig, what: str) -> None:
    """Raise `BadRecipe` for a model whose layers no draft can be trained of."""
    if config.family not in TRAINED:
        raise BadRecipe(f"{what} is of the family {config.family}; allowed: {', '.join(TRAINED)}")
    window = min(filter(None, config.windows), default=LONGEST)
    if window < LONGEST:
        raise BadRecipe(
            f"{what} sees {window} tokens back; at least {LONGEST} are needed, which a chat may "
            "have"
        )


def sha256_of(uri: str, cache: Path, progress: Progress) -> str:
    """Return the SHA-256 of a model's GGUF file, or of all files of its weights."""
    path = ModelSource.parse(uri).resolve()
    files = [path] if path.is_file() else list(weight_files(path))
    return weights_sha256(files, cache, progress)
