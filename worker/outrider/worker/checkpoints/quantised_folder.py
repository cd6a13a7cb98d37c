"""Matrices of AWQ, GPTQ and FP8 folders: quants in groups and FP8 as they are.

Sources of the layouts: AutoAWQ's `packing_utils` (version "gemm"), AutoGPTQ's and GPTQModel's
`qlinear`, transformers' `FineGrainedFP8Config`. Leaves files to `checkpoint`, names and shapes to
`load`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.grouped_packing import GROUP, Q4_NESTED, Grouped
from outrider.worker.checkpoints.quantisation import Method, Quantisation, refused
from outrider.worker.errors import ModelError
from outrider.worker.model.matrix import Floats, Scaled, widened

Array = NDArray[Any]
Arrays = Mapping[str, Array]

WEIGHT, QUANTS = ".weight", ".qweight"
GROUPED = (".qzeros", ".scales", ".g_idx")
"""Endings of what belongs to quants in groups."""
SCALES = (".weight_scale", ".weight_scale_inv")
"""Endings of FP8's scales: of the matrix or its outputs, and of blocks."""
INPUT_SCALE = ".input_scale"
"""Ending of scales of activations, which are rounded in another way here."""
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Place of each of eight outputs among the nibbles of AWQ's integers."""


@dataclass(frozen=True, slots=True)
class QuantisedFolder:
    """Reader of such a folder's matrices."""

    said: Quantisation
    """What its config says."""

    def matrices(self, stored: Arrays) -> dict[str, tuple[int, int]]:
        """Return the name and shape of each matrix in groups, which `read` reads."""
        stems = [name.removesuffix(QUANTS) for name in stored if name.endswith(QUANTS)]
        return {f"{stem}{WEIGHT}": self._shape(stored[f"{stem}{QUANTS}"]) for stem in stems}

    def read(self, name: str, stored: Arrays, where: str) -> Grouped:
        """Return a matrix [outputs, inputs] in groups; raises `ModelError`."""
        stem = name.removesuffix(WEIGHT)
        quants, zeros, scales = (
            _tensor(stored, f"{stem}.{part}", where) for part in ("qweight", "qzeros", "scales")
        )
        inputs = self._shape(quants)[1]
        group = inputs // len(scales) if len(scales) else 0
        if group % GROUP or group * len(scales) != inputs:
            raise refused(where, f"{name}: group_size", group, [f"multiples of {GROUP}"])
        index = stored.get(f"{stem}.g_idx")
        if index is not None and not np.array_equal(index, np.arange(inputs) // group):
            raise refused(where, f"{stem}.g_idx", "another order of inputs", ["desc_act: false"])
        halves = scales.astype(np.float16)
        if not np.array_equal(halves, _floats(scales)):
            raise refused(where, f"{stem}.scales", scales.dtype, ["numbers of half precision"])
        least = np.repeat(self._zeros(zeros).T, group // GROUP, axis=1).astype(np.int8)
        steps = np.ascontiguousarray(halves.T)  # [outputs, groups]
        read = self._quants(quants)
        return Grouped(Q4_NESTED, read, steps, -steps, np.ones_like(least), least)

    def scaled(self, name: str, stored: Arrays, where: str) -> Scaled:
        """Return an FP8 matrix with its scales; raises `ModelError`."""
        stem = name.removesuffix(WEIGHT)
        scale = next((stored[f"{stem}{end}"] for end in SCALES if f"{stem}{end}" in stored), None)
        if scale is None:
            raise ModelError(f"{where}: FP8 tensor {name} needs {' or '.join(SCALES)}")
        bits, factors, (rows, columns) = stored[name], _floats(scale), self.said.block
        outputs, inputs = bits.shape
        if self.said.block == (1, 1):
            each = np.broadcast_to(factors.reshape(-1, 1), (outputs, 1))
            return Scaled(bits, each, inputs)
        return Scaled(bits, factors.repeat(rows, axis=0)[:outputs], columns)

    def _shape(self, quants: Array) -> tuple[int, int]:
        first, second = quants.shape
        return (second, 8 * first) if self.said.method is Method.GPTQ else (8 * second, first)

    def _quants(self, packed: Array) -> NDArray[np.uint8]:
        """Return quants [outputs, inputs]."""
        if self.said.method is Method.GPTQ:  # [inputs / 8, outputs]
            return _nibbles(np.ascontiguousarray(packed.T))
        return np.ascontiguousarray(_in_order(_nibbles(packed)).T)  # [inputs, outputs / 8]

    def _zeros(self, packed: Array) -> NDArray[np.uint8]:
        """Return zeros [groups, outputs], which both pack along outputs."""
        zeros = _nibbles(np.ascontiguousarray(packed))
        if self.said.method is Method.AWQ:
            zeros = _in_order(zeros)
        return zeros + np.uint8(self.said.least_zero)


def weights_of(name: str) -> str:
    """Return the name of the matrix that a tensor belongs to, or its own."""
    for ending in (QUANTS, *GROUPED, *SCALES, INPUT_SCALE):
        if name.endswith(ending):
            return f"{name.removesuffix(ending)}{WEIGHT}"
    return name


def _nibbles(packed: Array) -> NDArray[np.uint8]:
    """Return the eight numbers of each integer, the lowest first [rows, 8 * integers]."""
    raw = packed.astype("<i4", copy=False).view(np.uint8)
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(packed), -1).astype(np.uint8)


def _in_order(nibbles: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return AWQ's numbers in the order of outputs."""
    return nibbles.reshape(len(nibbles), -1, 8)[..., AWQ_ORDER].reshape(nibbles.shape)


def _floats(scale: Array) -> Floats:
    """Return scales in float32; those of bfloat16 come as their bits."""
    return widened(scale) if scale.dtype == np.uint16 else scale.astype(np.float32)


def _tensor(stored: Arrays, name: str, where: str) -> Array:
    if name not in stored:
        raise ModelError(f"{where}: tensor {name} is missing")
    return stored[name]
