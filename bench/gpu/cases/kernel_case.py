"""One comparison of `bench.kernels`: a kernel at one shape, and what else does the same.

Leaves timing to `graph_timing`. A module `*_cases.py` of this folder yields some from `cases`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from bench.record.report import Spread
from bench.roofline.work import LLAMA_8B, LLAMA_70B

SHAPES = ((LLAMA_8B, 1), (LLAMA_70B, 4), (LLAMA_70B, 8))
"""Models, and the tensor-parallel degree of which one rank is timed."""
ROWS = (1, 4, 8, 16, 64)
CONTEXTS = (1024, 4096, 16384, 32768)
Launch = Callable[[], Tensor]
"""Does the work once, on tensors of its own, without allocating, and returns the result."""

Timer = Callable[[Callable[[], Launch], float], Spread]
"""Microseconds of one of the launches made, each of which moves so many bytes."""


class Backing(NamedTuple):
    """Device and dtype of a case's tensors."""

    device: str
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One timed case; every side computes the same."""

    kernel: str
    shape: str
    """Model and tensor-parallel degree, and the context if that matters."""
    weights: str
    rows: int
    bytes: float
    """What a launch must read and write, at least."""
    sides: Mapping[str, Callable[[], Launch]]
    """Makes launches by name; each call makes new tensors, so that none lies in a cache."""

    choices: Mapping[str, Callable[[], Launch]] = field(default_factory=dict)
    """Our side cut otherwise: what a kernel might choose for these rows alone."""

    @property
    def name(self) -> str:
        """Of this case alone."""
        return f"{self.kernel} {self.shape} {self.weights} m={self.rows}"


OURS = "outrider"
"""The side that is ours."""
