"""How a request wants its tokens drawn, and the limits of each setting.

Leaves the drawing itself to `outrider.kernels.sampling`.
"""

import math
from dataclasses import dataclass

from outrider.worker.errors import InvalidField

MAX_TEMPERATURE = 100.0
MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of one answer (PROTOCOL.md §4); the defaults are greedy decoding."""

    temperature: float = 0.0
    """Divides the logits; 0 takes the likeliest token."""
    top_k: int = 0
    """Keeps the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keeps the smallest set whose probability reaches this share."""
    min_p: float = 0.0
    """Drops tokens less likely than this share of the likeliest."""
    seed: int = 0
    """Keys the noise, with `choice` and the position."""
    choice: int = 0
    """Index of this answer among the n answers of its request."""

    @property
    def greedy(self) -> bool:
        """Whether no noise is drawn."""
        return self.temperature == 0.0

    def validate(self) -> None:
        """Raises `InvalidField` for the first setting out of its limits."""
        require(
            math.isfinite(self.temperature) and 0 <= self.temperature <= MAX_TEMPERATURE,
            "sampling.temperature",
            self.temperature,
            f"it must be a finite number from 0 to {MAX_TEMPERATURE:g}",
        )
        require(self.top_k >= 0, "sampling.top_k", self.top_k, "it must be 0 (off) or more")
        require(0 < self.top_p <= 1, "sampling.top_p", self.top_p, "it must be in (0, 1]")
        require(0 <= self.min_p <= 1, "sampling.min_p", self.min_p, "it must be in [0, 1]")
        require(0 <= self.seed <= MAX_SEED, "sampling.seed", self.seed, "it must be in [0, 2^64)")


def require(holds: bool, field: str, value: object, limit: str) -> None:
    """Raises `InvalidField` unless `holds`."""
    if not holds:
        raise InvalidField(field, value, limit)
