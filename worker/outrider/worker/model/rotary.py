"""Cosines and sines of rotary positions, with Llama 3's stretching of long wavelengths.

Follows `transformers.modeling_rope_utils` step by step in float32; a cosine may differ in
its last bit.
"""

import math

import numpy as np
from numpy.typing import NDArray

from outrider.worker.model.config import ModelConfig, RopeScaling

Floats = NDArray[np.float32]


def rotary_table(config: ModelConfig, positions: int) -> NDArray[np.float32]:
    """Return cosines, then sines: [positions, 2, head_dim / 2] float32."""
    frequencies = frequencies_of(config.rope_theta, config.head_dim)
    if config.rope_scaling is not None:
        frequencies = stretched(frequencies, config.rope_scaling)
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies)
    return np.stack((np.cos(angles), np.sin(angles)), axis=1)


def frequencies_of(theta: float, head_dim: int) -> Floats:
    """Return the rotary frequencies, [head_dim / 2] float32."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies: Floats = np.float32(1) / np.float32(theta) ** exponents
    return frequencies


def stretched(frequencies: Floats, scaling: RopeScaling) -> Floats:
    """Divide long wavelengths by `factor`, keep short ones, blend in between (Llama 3.1)."""
    lengths = np.float32(2 * math.pi) / frequencies
    low = scaling.original_context / scaling.low_freq_factor
    high = scaling.original_context / scaling.high_freq_factor
    blend = (scaling.original_context / lengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    between = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    whole = np.where(lengths > low, frequencies / scaling.factor, frequencies)
    return np.where((lengths <= low) & (lengths >= high), between, whole)
