"""A model on its device, or one rank's share of it: weights, then KV in what memory is left.

What ranks agree on beforehand is here too. Leaves how much KV to the caller, who knows the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.contract.settings import Dtype
from outrider.kernels.gpu.sampling_inputs import Gather
from outrider.kernels.gpu.weights import WeightFormat
from outrider.worker.gpu.all_reduce import Gathered
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.weights import DeviceWeights, Loading, Precision
from outrider.worker.kv.block_table import BLOCK, blocks_for
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.load import load_part
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.sharding import Shard

INTERPRETER = "cpu"
"""The device of kernels in Triton's interpreter."""
INTERPRETED_SPLITS = 3
"""Of a context, in the interpreter: it runs one program after the other."""
PRECISIONS = {
    Dtype.FP32: Precision(torch.float32),
    Dtype.BF16: Precision(torch.bfloat16),
    Dtype.FP8: Precision(torch.bfloat16, WeightFormat.FP8),
}
DTYPES = tuple(PRECISIONS)


@dataclass(frozen=True, slots=True)
class Terms:
    """How every rank builds its share of the model."""

    dtype: Dtype
    longest: int
    """Slots of the longest sequence."""
    rows: int
    """Most of one pass."""
    sequences: int
    """Most of one pass."""

    def encode(self) -> NDArray[np.int32]:
        """As `ProcessGroup.tell` takes it: the length first."""
        numbers = DTYPES.index(self.dtype), self.longest, self.rows, self.sequences
        return np.array([1 + len(numbers), *numbers], np.int32)

    @classmethod
    def decode(cls, numbers: NDArray[np.int32]) -> Self:
        """The inverse of `encode`."""
        dtype, longest, rows, sequences = (int(n) for n in numbers[1:])
        return cls(DTYPES[dtype], longest, rows, sequences)


def model_of(
    prepared: PreparedModel,
    shard: Shard,
    terms: Terms,
    blocks: Callable[[int], int],
    device: str,
    *,
    gather: Gather | None = None,
    prefix_cache: bool = False,
) -> GpuModel:
    """Loads a share onto its device; raises `ModelError`.

    `blocks` of KV: asked once the weights are there, with the bytes that they leave free. `gather`:
    over all ranks' devices, if there are several.
    """
    weights, like = load_weights(prepared, shard, terms, device), PRECISIONS[terms.dtype]
    held = blocks(free_on(device))
    kv_cache = DeviceKVCache(
        shard.config, held, terms.longest, like.activations, device, prefix_cache=prefix_cache
    )
    return GpuModel(
        shard.config, weights, str(terms.dtype), kv_cache, terms.rows, terms.sequences,
        all_reduce=None if gather is None else Gathered(gather),
        splits=INTERPRETED_SPLITS if device == INTERPRETER else None,
        first_token=None if gather is None else shard.first_token,
    )  # fmt: skip


def load_weights(prepared: PreparedModel, shard: Shard, terms: Terms, device: str) -> DeviceWeights:
    """One tensor after the other; raises `ModelError`."""
    positions = blocks_for(terms.longest) * BLOCK
    loading = Loading(shard.config, PRECISIONS[terms.dtype], positions, device)
    load_part(prepared, lambda name, tensor: loading.take(name, shard.cut(name, tensor)))
    return loading.finished()


def free_on(device: str) -> int:
    """Bytes; 0 in the interpreter, where nobody measures them."""
    if device == INTERPRETER:
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def block_bytes(config: ModelConfig, kind: torch.dtype) -> int:
    """Of one block of keys and values, in a rank whose share has that config."""
    return BLOCK * 2 * config.layers * config.kv_heads * config.head_dim * kind.itemsize
