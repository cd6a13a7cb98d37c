"""One comparison of `bench.kernels`: a kernel at one shape, and what else does the same.

Leaves timing to `graph_timing`. A module `*_cases.py` of this folder yields some from `cases`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

Launch = Callable[[], Tensor]
"""Does the work once, on tensors of its own, without allocating, and returns the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is timed; every side computes the same."""

    kernel: str
    shape: str
    """Model and tensor-parallel degree, and the context if that matters."""
    weights: str
    rows: int
    bytes: float
    """What a launch must read and write, at least."""
    sides: Mapping[str, Callable[[], Launch]]
    """Makes launches by name; each call makes new tensors, so that none lies in a cache."""


OURS = "outrider"
"""The side that is ours."""
