"""Cosines and sines of rotary positions, with the stretching of wavelengths that models have.

Follows `transformers.modeling_rope_utils` step by step in float32. A power is rounded once, as
torch rounds all but few of them: numpy's own differ in the last bit of one frequency in five, which
at position 9,000 is a thousandth of a cosine.
"""

import math

import numpy as np
from numpy.typing import NDArray

from outrider.worker.model.config import LinearScaling, Llama3Scaling, LongScaling, ModelConfig

Floats = NDArray[np.float32]
ONE = np.float32(1)


def rotary_tables(config: ModelConfig, positions: int) -> Floats:
    """Return the tables of a model, [tables, positions, 2, head_dim / 2]; of several, the last is
    that of layers with a window."""
    tables = [rotary_table(config, positions)]
    if config.window_rope_theta is not None:
        frequencies = frequencies_of(config.window_rope_theta, config.head_dim)
        tables.append(_table(frequencies, positions, config.head_dim))
    return np.stack(tables)


def rotary_table(config: ModelConfig, positions: int) -> Floats:
    """Return the table of layers without a window: cosines, then sines, [positions, 2,
    head_dim / 2] float32; where only some numbers of a head turn, they are the first of its
    halves."""
    size, amplitude = config.rotary_dim or config.head_dim, 1.0
    frequencies = frequencies_of(config.rope_theta, size)
    match config.rope_scaling:
        case Llama3Scaling() as scaling:
            frequencies = stretched(frequencies, scaling)
        case LinearScaling(factor=factor):
            frequencies = frequencies / np.float32(factor)
        case LongScaling() as scaling:
            long = config.context > scaling.original_context
            factors = np.array(scaling.long if long else scaling.short, np.float32)
            frequencies = ONE / (factors * _powers(config.rope_theta, size))
            amplitude = scaling.amplitude
    return _table(frequencies, positions, config.head_dim, amplitude)


def _table(frequencies: Floats, positions: int, head_dim: int, amplitude: float = 1.0) -> Floats:
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies)
    table = np.zeros((positions, 2, head_dim // 2), np.float32)
    table[:, 0] = 1  # what does not turn
    turning = np.stack((np.cos(angles), np.sin(angles)), axis=1)
    table[:, :, : len(frequencies)] = turning * np.float32(amplitude)
    return table


def frequencies_of(theta: float, size: int) -> Floats:
    """Return the rotary frequencies of `size` numbers, [size / 2] float32."""
    frequencies: Floats = ONE / _powers(theta, size)
    return frequencies


def _powers(theta: float, size: int) -> Floats:
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    return (np.float64(theta) ** exponents.astype(np.float64)).astype(np.float32)


def stretched(frequencies: Floats, scaling: Llama3Scaling) -> Floats:
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
