"""Shapes of models that are served, and what their tests share: rows, repeats, errors, fresh data.

Leaves what is launched to the tests.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

ROWS = (1, 8, 16, 17, 64, 128)
"""Rows of a pass: one, a tree, a tile of queries, one more, and the most."""
REPEATS = 200
LARGEST_ERROR = 5e-3
"""Error of a bfloat16 result, as a share of the norm of float64's; rounding alone is 1.7e-3."""


class ModelShape(NamedTuple):
    """One rank's share of a model."""

    name: str
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    head_norms: bool = False
    """True for a model that normalises queries and keys (Qwen3)."""
    window: int = 0
    """Positions that attention sees; 0: all."""


MODELS = (
    ModelShape("Llama-3-8B", 4096, 14336, 32, 8, 128),
    ModelShape("Llama-3-70B at 4 ranks", 8192, 7168, 16, 2, 128),
    ModelShape("Llama-3-70B at 8 ranks", 8192, 3584, 8, 1, 128),
    ModelShape("Qwen3-8B", 4096, 12288, 32, 8, 128, head_norms=True),
    ModelShape("Qwen2.5-7B", 3584, 18944, 28, 4, 128),
    ModelShape("Llama-3.2-1B", 2048, 8192, 32, 8, 64),
    ModelShape("SmolLM2-135M", 576, 1536, 9, 3, 64),
    ModelShape("Gemma-3-4B", 2560, 10240, 8, 4, 256),
)
ATTENTIONS = (
    *MODELS[:3],
    ModelShape("Llama-3-70B", 8192, 28672, 64, 8, 128),
    ModelShape("Mistral-7B", 4096, 14336, 32, 8, 128, window=4096),
    ModelShape("Qwen3-14B", 5120, 17408, 40, 8, 128),
    ModelShape("Qwen3-0.6B", 1024, 3072, 16, 8, 128),
    *MODELS[4:],
)


def name_of(model: ModelShape) -> str:
    """Return the name that a test's id has."""
    return model.name


def random(*shape: int, device: str, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Standard normal values, made on the device."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device, dtype=dtype)


def error(result: Tensor, expected: Tensor) -> float:
    """Return the norm of the difference over that of `expected`; NaN where a value is NaN."""
    difference = (result.double() - expected.double()).norm() / expected.double().norm()
    return float(difference)


def differing(run: Callable[[], Tensor], expected: Tensor, repeats: int = REPEATS) -> int:
    """Count the repeats whose bits are not those of `expected`."""
    return sum(not torch.equal(run(), expected) for _ in range(repeats))
