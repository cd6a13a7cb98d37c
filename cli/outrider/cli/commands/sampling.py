"""Sampling params from the options that commands share."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.client import Sampling


def sampling(
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    min_p: float | None,
    seed: int | None,
) -> "Sampling":
    """Return the sampling params of each request; None leaves the target's default."""
    from outrider.client import Sampling

    return Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
