"""A tensor of a checkpoint: float32, or quants in groups as its file has them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.grouped_packing import Grouped
from outrider.worker.errors import ModelError

Floats = NDArray[np.float32]
Index = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix [outputs, inputs] as its GGUF file has it, unread."""

    blocks: NDArray[np.uint8]  # [outputs, blocks of inputs, bytes], mapped
    kind: int
    """GGUF's number of the kind of its blocks."""
    shape: tuple[int, int]
    read: Callable[[NDArray[np.uint8]], Grouped]

    def __len__(self) -> int:
        return len(self.blocks)

    def grouped(self) -> Grouped:
        """Read it."""
        return self.read(self.blocks)

    def outputs(self, index: Index) -> "Quantised":
        """Return the outputs of an index; -1: one of 0, as a block of zeros is in every kind."""
        return replace(self, blocks=_picked(self.blocks, index), shape=(len(index), self.shape[1]))


Read = Floats | Grouped
"""A matrix that is in memory."""
Matrix = Read | Quantised


def check_numbers(name: str, matrix: Read) -> None:
    """Raise `ModelError` for a tensor of which a value is no number."""
    if isinstance(matrix, Grouped):
        parts = (matrix.scales, matrix.least, matrix.row_scales)
        fails = any(part is not None and np.isnan(part).any() for part in parts)
    else:
        fails = matrix.size > 0 and bool(np.isnan(matrix.min()))
    if fails:
        raise ModelError(f"{name} holds NaN: such weights make no text")


def floats_of(matrix: Matrix) -> Floats:
    """Return the values in float32."""
    if isinstance(matrix, Quantised):
        matrix = matrix.grouped()
    return matrix.floats() if isinstance(matrix, Grouped) else matrix


def outputs_of(matrix: Matrix, index: Index) -> Matrix:
    """Return the rows of an index; -1: zeros."""
    return _picked(matrix, index) if isinstance(matrix, np.ndarray) else matrix.outputs(index)


def inputs_of(matrix: Matrix, index: Index) -> Matrix:
    """Return the columns of an index; -1: zeros. Raises `ValueError` for groups that it cuts."""
    if isinstance(matrix, Quantised):
        matrix = matrix.grouped()
    if isinstance(matrix, Grouped):
        return matrix.inputs(index)
    return np.ascontiguousarray(_picked(matrix.T, index).T)


def _picked(tensor: NDArray[T], index: Index) -> NDArray[T]:
    """Return the rows of an index, where they lie if they follow each other."""
    if index.size and index[0] >= 0 and (np.diff(index) == 1).all():
        return tensor[index[0] : index[-1] + 1]
    found = tensor[index]
    found[index < 0] = 0
    return found
