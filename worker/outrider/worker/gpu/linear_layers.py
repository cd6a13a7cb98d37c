"""Linear layers of a pass, with what comes right behind their products: by our kernels, or by the
vendor's library.

Leaves norms, attention and their order to `forward`, sums over ranks to `all_reduce`.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from outrider.kernels.gpu.gated_mlp import gated
from outrider.kernels.gpu.heads import RowPlaces, write_heads
from outrider.kernels.gpu.library_linear import library_linear
from outrider.kernels.gpu.projection import project
from outrider.kernels.gpu.tiles import TileScratch
from outrider.kernels.gpu.weights import Weights
from outrider.worker.gpu.all_reduce import AllReduce
from outrider.worker.gpu.weights import DeviceLayer


class LinearLayers(Protocol):
    """The linear layers of a model; x: [rows, inputs]."""

    def project(
        self, x: Tensor, own: DeviceLayer, places: RowPlaces, q: Tensor, k: Tensor, v: Tensor
    ) -> None:
        """Write queries of x into q, its keys and values into the slots of its rows."""

    def gated(self, x: Tensor, gates: Weights, wide: Tensor) -> None:
        """Compute the gated half of a feed-forward layer: wide [rows, outputs / 2]."""

    def finish(self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor) -> Tensor | None:
        """End a half layer, as `AllReduce.finish` does."""


class KernelLayers:
    """By our kernels, whose rows have the same bits in every pass."""

    def __init__(self, rotary: Tensor, all_reduce: AllReduce, scratch: TileScratch) -> None:
        self._rotary, self._all_reduce, self._scratch = rotary, all_reduce, scratch

    def project(
        self, x: Tensor, own: DeviceLayer, places: RowPlaces, q: Tensor, k: Tensor, v: Tensor
    ) -> None:
        """Do it in one launch."""
        project(x, own.qkv, own.heads, self._rotary, places, q, k, v, self._scratch)

    def gated(self, x: Tensor, gates: Weights, wide: Tensor) -> None:
        """Do it in one launch."""
        gated(x, gates, wide, self._scratch)

    def finish(self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor) -> Tensor | None:
        """Do it in one launch, and one of the sum if there is any."""
        return self._all_reduce.finish(x, weights, part, residual, self._scratch)


class LibraryLayers:
    """By the vendor's library, for passes of `CHUNK` rows."""

    def __init__(self, rotary: Tensor, all_reduce: AllReduce) -> None:
        self._rotary, self._all_reduce = rotary, all_reduce
        # Sums in float32, rounded once. Nothing else in the process has such products.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def project(
        self, x: Tensor, own: DeviceLayer, places: RowPlaces, q: Tensor, k: Tensor, v: Tensor
    ) -> None:
        """Write the heads of a product in a launch of its own."""
        write_heads(library_linear(x, own.qkv), own.heads, self._rotary, places, q, k, v)

    def gated(self, x: Tensor, gates: Weights, wide: Tensor) -> None:
        """Gate in float32 behind the product."""
        gate, up = library_linear(x, gates).float().chunk(2, 1)
        torch.mul(functional.silu(gate), up, out=wide)

    def finish(self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor) -> Tensor | None:
        """Add the product up in a launch of its own."""
        library_linear(x, weights, part)
        return self._all_reduce.add_up(part, residual)
