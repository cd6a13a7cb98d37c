"""Blocks of a GGUF file in groups: the values that the `gguf` package reads, to the bit."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from outrider.kernels.cpu.quantised_rows import QuantisedRows, write_row
from outrider.worker.checkpoints.gguf_blocks import READERS

HALVES = {
    Kind.Q4_0: (0,),
    Kind.Q4_1: (0, 2),
    Kind.Q5_0: (0,),
    Kind.Q5_1: (0, 2),
    Kind.Q8_0: (0,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
}
"""Where the half-precision numbers of a block begin: all other bytes may be anything."""


@pytest.mark.parametrize("kind", HALVES, ids=lambda kind: kind.name)
def test_a_block_of_any_bytes_has_the_values_that_gguf_says(kind: Kind) -> None:
    _, size = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (40, 3, size)).astype(np.uint8)
    for at in HALVES[kind]:
        numbers = random.standard_normal((40, 3, 1)).astype(np.float16)
        blocks[..., at : at + 2] = numbers.view(np.uint8).reshape(40, 3, 2)
    values = gguf.dequantize(blocks.reshape(40, -1), kind)
    assert np.array_equal(READERS[kind](blocks).floats(), values)
    out = np.empty(values.shape[1], np.float32)
    for row in (0, 17, 39):
        write_row(QuantisedRows(blocks, int(kind)), row, out)
        assert np.array_equal(out, values[row])


def test_every_kind_that_is_read_is_compared() -> None:
    assert HALVES.keys() == READERS.keys()
