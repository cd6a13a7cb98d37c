"""Formats of weights, and the inner loop that multiplies them on each instruction set.

Leaves the loops to `linear` and its neighbours, the layout of weights to `packing`.
"""

import enum

import numpy as np

from outrider.kernels.jit import isa
from outrider.kernels.jit.isa import AARCH64, X86, Isa


class NumericPath(enum.StrEnum):
    """Format of a model's weights."""

    FP32 = "fp32"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"
    """Quants in groups, and floats of 16 bits beside them, as the model's file has them. A model of
    floats alone is rounded to four bits, its head to eight: four cost as much as all layers."""


class NumericKind(enum.Enum):
    """Inner loop of a path on one instruction set.

    Activations of a byte have a scale per row, and unsigned ones a zero of 128: all kinds of a path
    that take them give the same bits.
    """

    FP32 = (NumericPath.FP32, 1, np.float32, np.float32)
    BF16 = (NumericPath.BF16, 1, np.uint16, np.float32)
    BF16_AVX512 = (NumericPath.BF16, 2, np.uint16, np.uint16, Isa.AVX512)
    """Pairs of bfloat16: AVX512-BF16."""
    INT8 = (NumericPath.INT8, 1, np.int8, np.float32)
    INT8_AVX2 = (NumericPath.INT8, 4, np.uint8, np.uint8, Isa.AVX2)
    """Weights have a zero of 128, too."""
    INT8_AVXVNNI = (NumericPath.INT8, 4, np.int8, np.uint8, Isa.AVXVNNI)
    INT8_AVX512 = (NumericPath.INT8, 4, np.int8, np.uint8, Isa.AVX512)
    INT8_DOTPROD = (NumericPath.INT8, 4, np.int8, np.uint8, Isa.DOTPROD)
    """Activations are signed as they are loaded."""
    INT8_I8MM = (NumericPath.INT8, 4, np.int8, np.uint8, Isa.I8MM)
    INT4 = (NumericPath.INT4, 1, np.uint8, np.float32)
    """Weights as in `grouped_packing`."""
    INT4_AVX2 = (NumericPath.INT4, 4, np.uint8, np.int8, Isa.AVX2)
    INT4_AVXVNNI = (NumericPath.INT4, 4, np.uint8, np.int8, Isa.AVXVNNI)
    INT4_AVX512 = (NumericPath.INT4, 4, np.uint8, np.int8, Isa.AVX512)
    INT4_DOTPROD = (NumericPath.INT4, 4, np.uint8, np.int8, Isa.DOTPROD)
    INT4_I8MM = (NumericPath.INT4, 4, np.uint8, np.int8, Isa.I8MM)

    def __init__(
        self,
        path: NumericPath,
        group: int,
        weight: type,
        activation: type,
        needed: Isa | None = None,
    ) -> None:
        self.path = path
        """Format of the weights."""
        self.group = group
        """Inputs that one instruction takes together."""
        self.weight = weight
        """Element type of packed weights."""
        self.activation = activation
        """Element type of activations."""
        self.isa = needed
        """Instruction set that it takes; None: any."""


def kind_of(
    path: NumericPath, on: Isa | None = None, features: dict[str, bool] | None = None
) -> NumericKind:
    """Return the inner loop of a path in this process, or on an instruction set with `features`."""
    own = on or isa.current()
    has = isa.features() if features is None else features
    if path is NumericPath.BF16 and not has.get("avx512bf16"):
        return NumericKind.BF16
    return _kind(path, own)


def kind_of_types(weight: str, activation: str, path: NumericPath) -> NumericKind:
    """Return this process's kind for element types; among equal ones, the best of its `Isa`."""
    same = [
        kind
        for kind in NumericKind
        if kind.path is path
        and (np.dtype(kind.weight).name, np.dtype(kind.activation).name) == (weight, activation)
    ]
    best = _kind(path, isa.current())
    return best if best in same else same[0]


def _kind(path: NumericPath, own: Isa) -> NumericKind:
    """Return the kind of the best instruction set up to `own` that has one."""
    kinds = {kind.isa: kind for kind in NumericKind if kind.path is path}
    ladder = AARCH64 if own in AARCH64 else X86
    below = ladder[ladder.index(own) :: -1]
    return next((kinds[one] for one in below if one in kinds), kinds[None])
