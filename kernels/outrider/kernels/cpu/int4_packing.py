"""Weights of four bits, in groups with a scale and a least value each, and their memory layout.

The grid is that of GGUF's Q4_1: a weight is scale * code + least, over 32 inputs of one output, in
half precision. A matrix that was Q4_1 in its file therefore comes back as it was, where its groups
reach both ends of their grids; any other is rounded to 16 steps between the least and the largest
of each group. Leaves products to `linear_int4`, and which layers have four bits to `linear`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

GROUP = 32
"""Inputs with one scale; of 64, SmolLM2's Q4_1 lost 0.37 nats a token, of 32 nothing."""
LINE = 64
"""Bytes of codes that are loaded together: 16 outputs, eight inputs each."""
STEPS = 15
"""Largest code."""
MAX_NIBBLE = 15
"""Rows are scaled to just under 2^15: half precision is then short of range at neither end."""


def group_bytes(block: int) -> int:
    """Return the bytes of one group of `block` outputs: scales, least values, codes."""
    return block * (2 + 2 + GROUP // 2)


@dataclass(frozen=True, slots=True)
class Codes:
    """A matrix [outputs, inputs] in groups along its inputs."""

    codes: NDArray[np.uint8]  # [outputs, groups, 32], 0 to 15
    scales: NDArray[np.float16]  # [outputs, groups]
    least: NDArray[np.float16]  # [outputs, groups]
    row_scales: Floats  # [outputs] powers of two

    @property
    def stream_size(self) -> int:
        """Bytes that `write` fills."""
        return int(self.codes.size // 2 + 4 * self.scales.size)

    def decoded(self) -> Floats:
        """Return scale * code + least [outputs, inputs], not yet times `row_scales`."""
        values = self.codes * _wide(self.scales) + _wide(self.least)
        return values.reshape(len(values), -1)  # type: ignore[no-any-return]

    def sums(self) -> Floats:
        """Sum each output's decoded weights [outputs]."""
        codes = self.codes.sum(axis=2, dtype=np.uint16)
        groups = codes * _wide(self.scales)[..., 0] + GROUP * _wide(self.least)[..., 0]
        return groups.sum(axis=1, dtype=np.float64).astype(np.float32)  # type: ignore[no-any-return]

    def write(self, stream: NDArray[np.uint8], block: int) -> None:
        """Fill `stream` with [blocks of outputs][groups][scales, least values, codes].

        Codes are lines of 64 bytes, [8 inputs at a time][16 outputs at a time]: four bytes of an
        output hold the codes of inputs 0-3 in their low halves and of inputs 4-7 in their high.
        """
        outputs, groups = self.scales.shape
        cut = self.codes.reshape(outputs // block, block // 16, 16, groups, GROUP // 8, 2, 4)
        lines = cut.transpose(5, 0, 3, 4, 1, 2, 6)  # [half, blocks, groups, 8 inputs, 16s, 16, 4]
        packed = lines[0] | lines[1] << 4
        parts = stream.reshape(outputs // block, groups, group_bytes(block))
        for place, values in enumerate((self.scales, self.least)):
            halves = values.reshape(outputs // block, block, groups).transpose(0, 2, 1)
            at = 2 * block * place
            parts[..., at : at + 2 * block] = np.ascontiguousarray(halves).view(np.uint8)
        parts[..., 4 * block :] = packed.reshape(*parts.shape[:2], -1)


def encode(matrix: Floats) -> Codes:
    """Round a matrix [outputs, inputs], whose inputs are whole groups."""
    exponents = np.frexp(np.abs(matrix).max(axis=1))[1]
    row_scales = np.ldexp(np.float32(1), np.maximum(exponents, -100) - MAX_NIBBLE)
    values = (matrix / row_scales[:, None]).reshape(len(matrix), -1, GROUP)
    least = values.min(axis=2)
    scales = ((values.max(axis=2) - least) / np.float32(STEPS)).astype(np.float16)
    least = least.astype(np.float16)
    steps = (values - _wide(least)) / np.where(scales > 0, _wide(scales)[..., 0], 1)[..., None]
    codes = np.clip(np.rint(steps, out=steps), 0, STEPS, out=steps).astype(np.uint8)
    return Codes(codes, scales, least, row_scales)


def _wide(halves: NDArray[np.float16]) -> NDArray[Any]:
    return halves.astype(np.float32)[..., None]
