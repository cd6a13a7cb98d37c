"""Loading of a model, or one rank's share of it, onto a device: weights, then KV in what is left.

The terms on which ranks agree beforehand are here too. Leaves the size of the KV cache to the
caller, who knows the other ranks.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.contract.settings import AllReduceKind, Dtype
from outrider.kernels.gpu.weights import GROUP, WeightFormat
from outrider.worker.checkpoints.load import stored_tensors
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.gpu.all_reduce import all_reduce_of
from outrider.worker.gpu.device_group import DeviceGroup
from outrider.worker.gpu.device_pages import NoPages
from outrider.worker.gpu.forward import PassLimits, RankShare
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.lending import Lending
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.weights import Loading, Precision
from outrider.worker.kv.block_pool import BLOCK, blocks_for
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.sharding import Shard

INTERPRETER = "cpu"
"""The device of kernels in Triton's interpreter."""
INTERPRETED_SPLITS = 3
"""Splits of a context in the interpreter, which runs one program after the other."""
PRECISIONS = {
    Dtype.FP32: Precision(torch.float32),
    Dtype.BF16: Precision(torch.bfloat16),
    Dtype.FP8: Precision(torch.bfloat16, WeightFormat.FP8),
}
DTYPES = (Dtype.AUTO, *PRECISIONS)
ALL_REDUCES = tuple(AllReduceKind)
SMALLER = (
    "dtype fp8 and more ranks in settings.tensor_parallel (parallelism.tensor of a service) take "
    "less of a device"
)
"""What helps where weights leave too little of a device."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms by which every rank builds its share of the model."""

    dtype: Dtype
    longest: int
    """Slots of the longest sequence."""
    rows: int
    """Most of one pass."""
    sequences: int
    """Most of one pass."""
    all_reduce: AllReduceKind = AllReduceKind.GATHER
    """How ranks add up."""

    def encode(self) -> NDArray[np.int32]:
        """Return the terms as `ProcessGroup.broadcast` takes it: the length first."""
        kinds = DTYPES.index(self.dtype), ALL_REDUCES.index(self.all_reduce)
        numbers = *kinds, self.longest, self.rows, self.sequences
        return np.array([1 + len(numbers), *numbers], np.int32)

    @classmethod
    def decode(cls, numbers: NDArray[np.int32]) -> Self:
        """Return the terms of `encode`."""
        dtype, all_reduce, longest, rows, sequences = (int(n) for n in numbers[1:])
        return cls(DTYPES[dtype], longest, rows, sequences, ALL_REDUCES[all_reduce])


def model_of(
    prepared: PreparedModel,
    shard: Shard,
    terms: Terms,
    blocks: Callable[[int], int],
    group: DeviceGroup,
    *,
    prefix_cache: bool = False,
    lending: Lending | None = None,
) -> GpuModel:
    """Load a share onto its device; all ranks call it together.

    `blocks` of KV: asked once the weights are there, with the bytes that they leave free;
    `lending`: None, its memory is its own. Raises `ModelError`, `GroupLost` and `NoPages`.
    """
    device = group.device
    precision = precision_of(terms.dtype, device, shard)
    loading = Loading(shard.config, precision, blocks_for(terms.longest) * BLOCK, device)
    for name, tensor in stored_tensors(prepared).items():
        loading.take(name, shard.cut(name, tensor.read()))
    weights = loading.finished()
    del loading  # it has the tensors that a copy replaces
    movable = lending.movable(weights) if lending else None
    weights = movable.weights if movable else weights
    all_reduce = all_reduce_of(terms.all_reduce, group, weights, terms.rows)
    held = blocks(free_on(device))
    kv_cache: DeviceKVCache
    shape = shard.config, held, terms.longest, precision.activations
    if lending:
        usable = terms.sequences * blocks_for(terms.longest)
        kv_cache = lending.kv_cache(*shape, usable, prefix_cache=prefix_cache)
    else:
        kv_cache = DeviceKVCache(*shape, device, prefix_cache=prefix_cache)
    splits = INTERPRETED_SPLITS if device == INTERPRETER else None
    return GpuModel(
        shard.config, weights, weights.formats, kv_cache,
        PassLimits(terms.rows, terms.sequences, splits),
        None if all_reduce is None else RankShare(all_reduce, shard.first_token), movable,
    )  # fmt: skip


@contextlib.contextmanager
def enough_memory(device: str) -> Iterator[None]:
    """Raise `ModelError`, which names what takes less, where the device has too little memory for
    what is done within."""
    try:
        yield
    except (torch.OutOfMemoryError, NoPages) as error:
        raise ModelError(
            f"{device} has too little memory for weights, KV and passes; {SMALLER}, and so does a "
            f"smaller settings.kv_bytes (engine.kvMemory of a service): {error}"
        ) from error


def precision_of(dtype: Dtype, device: str, shard: Shard) -> Precision:
    """Return the precision of a rank's share; AUTO keeps the matrices as the checkpoint has them.

    Not where ranks would cut groups of inputs, or pad them: their formats have to be the same.
    """
    if dtype is not Dtype.AUTO:
        return PRECISIONS[dtype]
    # bf16 arithmetic is wrong in the interpreter
    activations = torch.float32 if device == INTERPRETER else torch.bfloat16
    own, whole, ranks = shard.config, shard.whole, shard.degree
    uneven = own.ffn * ranks != whole.ffn or own.heads * ranks != whole.heads
    cut = uneven or own.ffn % GROUP or own.heads * own.head_dim % GROUP
    return Precision(activations, WeightFormat.PLAIN if ranks > 1 and cut else None)


def free_on(device: str) -> int:
    """Return free bytes; 0 in the interpreter, where they are not measured."""
    if device == INTERPRETER:
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def block_bytes(config: ModelConfig, kind: torch.dtype) -> int:
    """Return the bytes of one block of KV, in a rank whose share has that config."""
    return BLOCK * 2 * config.layers * config.kv_heads * config.head_dim * kind.itemsize
