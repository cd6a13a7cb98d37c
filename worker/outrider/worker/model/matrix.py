"""A tensor of a checkpoint as its file has it, and as layers on a processor take it: float32, or
quants in groups."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

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


@dataclass(frozen=True, slots=True)
class Scaled:
    """A matrix [outputs, inputs] of e4m3 numbers, times a scale for each output or block of it."""

    bits: NDArray[np.uint8]  # [outputs, inputs]
    scales: Floats  # [outputs, blocks of inputs]
    block: int
    """Inputs of a block."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        outputs, inputs = self.bits.shape
        return outputs, inputs

    def __len__(self) -> int:
        return len(self.bits)

    def floats(self) -> Floats:
        """Return the weights [outputs, inputs]."""
        scales = self.scales
        if scales.shape[1] > 1:
            scales = scales.repeat(self.block, axis=1)[:, : self.bits.shape[1]]
        return E4M3[self.bits] * scales

    def outputs(self, index: Index) -> "Scaled":
        """Return the outputs of an index; -1: one of 0."""
        return replace(self, bits=_picked(self.bits, index), scales=self.scales[index])

    def inputs(self, index: Index) -> "Scaled | Floats":
        """Return the inputs of an index, -1: one of 0; floats if there are blocks, which it may
        cut."""
        if self.scales.shape[1] > 1:
            return _picked(self.floats().T, index).T
        return replace(self, bits=np.ascontiguousarray(_picked(self.bits.T, index).T))


Halves = NDArray[np.float16] | NDArray[np.uint16]
"""Half precision, or bfloat16's bits."""
Read = Floats | Grouped
"""A matrix that is in memory."""
Matrix = Read | Quantised
"""A tensor as layers on a processor take it."""
AsStored = Matrix | Halves | Scaled
"""A tensor as its file has it."""


def check_numbers(name: str, matrix: Read) -> None:
    """Raise `ModelError` for a tensor of which a value is no number."""
    if isinstance(matrix, Grouped):
        parts = (matrix.scales, matrix.least, matrix.row_scales)
        fails = any(part is not None and np.isnan(part).any() for part in parts)
    else:
        fails = matrix.size > 0 and bool(np.isnan(matrix.min()))
    if fails:
        raise ModelError(f"{name} holds NaN: such weights make no text")


def floats_of(matrix: AsStored) -> Floats:
    """Return the values in float32."""
    if isinstance(matrix, Quantised):
        matrix = matrix.grouped()
    if isinstance(matrix, Grouped | Scaled):
        return matrix.floats()
    return widened(matrix) if matrix.dtype == np.uint16 else matrix.astype(np.float32, copy=False)


def matrix_of(stored: AsStored) -> Matrix:
    """Return a tensor as layers on a processor take it."""
    return stored if isinstance(stored, Quantised | Grouped) else floats_of(stored)


def widened(stored: NDArray[np.generic]) -> Floats:
    """Return float32 of bfloat16, which is its upper half."""
    return (stored.astype(np.uint32) << 16).view(np.float32)


def outputs_of(matrix: AsStored, index: Index) -> AsStored:
    """Return the rows of an index; -1: zeros."""
    if not isinstance(matrix, np.ndarray):
        return matrix.outputs(index)
    numbers: Any = matrix
    return _picked(numbers, index)


def inputs_of(matrix: AsStored, index: Index) -> AsStored:
    """Return the columns of an index; -1: zeros. Raises `ValueError` for groups that it cuts."""
    if isinstance(matrix, Quantised):
        matrix = matrix.grouped()
    if isinstance(matrix, Grouped | Scaled):
        return matrix.inputs(index)
    return np.ascontiguousarray(_picked(matrix.T, index).T)


def _e4m3() -> Floats:
    """Return the value of each byte: a sign, four bits of exponent, three of fraction."""
    bits = np.arange(256)
    exponent, fraction = bits >> 3 & 15, bits & 7
    normal = np.ldexp(1 + fraction / 8, exponent - 7)
    values = np.where(exponent == 0, np.ldexp(fraction / 8, -6), normal)
    values[[127, 255]] = np.nan
    return np.where(bits < 128, values, -values).astype(np.float32)


E4M3 = _e4m3()


def _picked(tensor: NDArray[T], index: Index) -> NDArray[T]:
    """Return the rows of an index, where they lie if they follow each other."""
    if index.size and index[0] >= 0 and (np.diff(index) == 1).all():
        return tensor[index[0] : index[-1] + 1]
    found = tensor[index]
    found[index < 0] = 0
    return found
