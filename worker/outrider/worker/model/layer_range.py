"""One stage's range of a model's layers: the tensors it holds, the shape of what it runs.

Arithmetic on names and shapes; where the ranges are cut is decided in `pipeline.cut`, files are the
loader's.
"""

from dataclasses import dataclass

from outrider.worker.model.config import ModelConfig
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, LAYERS, NORM


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Layers first … last - 1, of a model with `of`."""

    first: int
    last: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.last <= self.of:
            raise ValueError(f"no layers {self.first} to {self.last - 1} in a model of {self.of}")

    @classmethod
    def whole(cls, config: ModelConfig) -> "LayerRange":
        """All layers."""
        return cls(0, config.layers, config.layers)

    @property
    def count(self) -> int:
        return self.last - self.first

    @property
    def numbers(self) -> range:
        """Numbers of the layers, as the checkpoint has them."""
        return range(self.first, self.last)

    @property
    def embeds(self) -> bool:
        """True for the first stage, which turns tokens into hidden states."""
        return self.first == 0

    @property
    def has_head(self) -> bool:
        """True for the last stage, which turns hidden states into logits."""
        return self.last == self.of

    def config(self, whole: ModelConfig) -> ModelConfig:
        """Return the whole model's config with these layers alone."""
        return whole.part(self.first, self.last)

    def holds(self, name: str, whole: ModelConfig) -> bool:
        """True for a tensor that the stage needs, or that no stage of this model knows."""
        if name.startswith(LAYERS):
            number = name.removeprefix(LAYERS).partition(".")[0]
            return not number.isdecimal() or int(number) in self.numbers
        if name == EMBEDDING:
            head_of_it = whole.tied or whole.output_ids is not None
            return self.embeds or (self.has_head and head_of_it)
        return self.has_head if name in (NORM, HEAD) else True

    def __str__(self) -> str:
        return f"layers {self.first} to {self.last - 1} of {self.of}"
