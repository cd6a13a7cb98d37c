"""Cosines and sines of rotary positions, with Llama 3's stretching of long wavelengths.

Follows `transformers.modeling_rope_utils` step by step in float32, so that tables are equal.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.worker.model.config import ModelConfig, RopeScaling


def rotary_table(config: ModelConfig, positions: int) -> NDArray[np.float32]:
    """[positions, 2, head_dim / 2] float32: cosines, then sines."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    if config.rope_scaling is not None:
        frequencies = stretched(frequencies, config.rope_scaling)
    angles = torch.outer(torch.arange(positions).float(), frequencies)
    return torch.stack((angles.cos(), angles.sin()), dim=1).contiguous().numpy()


def stretched(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, a blend in between."""
    lengths = 2 * math.pi / frequencies
    low = scaling.original_context / scaling.low_freq_factor
    high = scaling.original_context / scaling.high_freq_factor
    blend = (scaling.original_context / lengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    between = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    whole = torch.where(lengths > low, frequencies / scaling.factor, frequencies)
    return torch.where((lengths <= low) & (lengths >= high), between, whole)
