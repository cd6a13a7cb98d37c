"""Weights of linear layers on a GPU: as they are, e4m3 with a scale per output, or int4 by groups.

int4 words hold inputs 32 apart, so that tiles are read in one piece. Leaves files to the model's
loader and products to `tiles`.
"""

import enum
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 128
"""Inputs that share a scale and a zero in int4."""
WORDS = GROUP // 4
"""Number of int16 words of a group: word j holds inputs j, 32 + j, 64 + j and 96 + j, lowest bits
first, so that each quarter of a group is one shift away from being a tile of a matrix product."""
FP8_LARGEST = 448


class WeightFormat(enum.IntEnum):
    """Format in which weights are held."""

    PLAIN = 0
    """Weights in bfloat16, float16 or float32, [outputs, inputs]."""
    FP8 = 1
    """Weights as e4m3 bits in uint8, [outputs, inputs], times a scale per output."""
    INT4 = 2
    """Four a word, (value - zero) * scale by groups of 128 inputs."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One linear layer: y = x @ W.T."""

    format: WeightFormat
    outputs: int
    inputs: int
    values: Tensor
    """PLAIN and FP8: [outputs, inputs]; INT4: int16 [groups, outputs, 32]."""
    scales: Tensor | None = None
    """FP8: float32 [outputs]; INT4: float16 or bfloat16 [groups, outputs]."""
    zeros: Tensor | None = None
    """INT4: uint8 [groups, outputs], 0 to 16."""

    @property
    def size(self) -> int:
        """Bytes that a pass reads."""
        parts = (self.values, self.scales, self.zeros)
        return sum(part.numel() * part.element_size() for part in parts if part is not None)


def plain(values: Tensor) -> Weights:
    """Hold weights [outputs, inputs] as they are."""
    outputs, inputs = values.shape
    return Weights(WeightFormat.PLAIN, outputs, inputs, values.contiguous())


def to_fp8(values: Tensor) -> Weights:
    """Round weights [outputs, inputs] to e4m3, each output by a scale of its own."""
    most = values.float().abs().amax(1).clamp_min(1e-30)
    rounded = (values.float() * (FP8_LARGEST / most)[:, None]).clamp(-FP8_LARGEST, FP8_LARGEST)
    return from_fp8(rounded.to(torch.float8_e4m3fn), most / FP8_LARGEST)


def from_fp8(values: Tensor, scales: Tensor) -> Weights:
    """Hold weights float8_e4m3fn [outputs, inputs] with scales [outputs]."""
    outputs, inputs = values.shape
    held = values.contiguous().view(torch.uint8)
    return Weights(WeightFormat.FP8, outputs, inputs, held, scales.float().contiguous())


def from_groups(quants: Tensor, zeros: Tensor, scales: Tensor) -> Weights:
    """Pack numbers of four bits: weights are (quant - zero) * scale, by groups of 128 inputs.

    quants uint8 [outputs, inputs], 0 to 15; zeros [outputs, groups], 0 to 16; scales float16
    [outputs, groups]. Such are AWQ's (arXiv 2306.00978) and GPTQ's (arXiv 2210.17323).
    """
    outputs, inputs = quants.shape
    wanted = (outputs, inputs // GROUP)
    if inputs % GROUP or tuple(scales.shape) != wanted or tuple(zeros.shape) != wanted:
        shapes = f"scales {tuple(scales.shape)}, zeros {tuple(zeros.shape)}"
        raise ValueError(f"{shapes}: wanted {wanted}, one for each group of {GROUP} inputs")
    parts = quants.view(outputs, -1, 4, WORDS).int()
    words = parts[:, :, 0] | parts[:, :, 1] << 4 | parts[:, :, 2] << 8 | parts[:, :, 3] << 12
    signed = torch.where(words < 2**15, words, words - 2**16).to(torch.int16)
    packed, by_group = signed.transpose(0, 1).contiguous(), scales.T.contiguous()
    return Weights(
        WeightFormat.INT4, outputs, inputs, packed, by_group, zeros.T.to(torch.uint8).contiguous()
    )


def dense(weights: Weights) -> Tensor:
    """Return the float32 matrix [outputs, inputs] that `weights` stand for."""
    if weights.format is WeightFormat.PLAIN:
        return weights.values.float()
    assert weights.scales is not None
    if weights.format is WeightFormat.FP8:
        values = weights.values.view(torch.float8_e4m3fn).float()
        return values * weights.scales[:, None]
    assert weights.zeros is not None
    quarters = [(weights.values >> shift) & 15 for shift in (0, 4, 8, 12)]
    values = torch.cat(quarters, 2).float() - weights.zeros[:, :, None]
    values = values * weights.scales.float()[:, :, None]  # [groups, outputs, 128]
    return values.transpose(0, 1).reshape(weights.outputs, weights.inputs)
