"""What the leading rank tells the others before the first pass: shapes that it has decided on.

Pure. Which path, and how much KV, follows from measuring and from settings; all ranks must agree.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.linear import NumericPath

LEADER = 0
"""The rank that leads."""
PATHS = tuple(NumericPath)


@dataclass(frozen=True, slots=True)
class InitMessage:
    """How every rank builds its share of the model."""

    path: NumericPath
    blocks: int
    """Of KV, in each rank's pool."""
    longest: int
    """Slots of the longest sequence."""
    rows: int
    """Most of one pass."""

    def encode(self) -> NDArray[np.int32]:
        """As `ProcessGroup.tell` takes it: the length first."""
        numbers = PATHS.index(self.path), self.blocks, self.longest, self.rows
        return np.array([1 + len(numbers), *numbers], np.int32)

    @classmethod
    def decode(cls, numbers: NDArray[np.int32]) -> Self:
        """The inverse of `encode`."""
        path, blocks, longest, rows = (int(n) for n in numbers[1:])
        return cls(PATHS[path], blocks, longest, rows)
