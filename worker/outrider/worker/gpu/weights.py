"""Weights of a model on a device, taken from a checkpoint one tensor at a time, in any order.

A tensor goes into its place among fused QKV or gate/up as it comes, so that the host never holds
more of them than one. Leaves reading files to `checkpoints.load`, and cutting over ranks to
`model.sharding`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.projection import HeadParts
from outrider.kernels.gpu.weights import WeightFormat, Weights, plain, to_fp8
from outrider.worker.errors import ModelError
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.matrix import check_numbers
from outrider.worker.model.rotary import rotary_table
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, NORM

Floats = NDArray[np.float32]
ALIGNED = 16
"""Rows of embedding and head are a multiple of it, zeros at the end: sampling reads by four."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtype of activations and format of weights."""

    activations: torch.dtype
    """Dtype of rows, KV, norms, embedding and head."""
    matrices: WeightFormat = WeightFormat.PLAIN
    """Format of all other weights; PLAIN is the dtype of activations."""


@dataclass(frozen=True, slots=True)
class DeviceLayer:
    """Weights of one layer."""

    attention_norm: Tensor  # [hidden]
    qkv: Weights
    heads: HeadParts
    output: Weights
    ffn_norm: Tensor  # [hidden]
    gates: Weights
    down: Weights


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """Everything that a pass reads besides its rows and their KV."""

    embedding: Tensor  # [tokens, padded; hidden]
    layers: tuple[DeviceLayer, ...]
    final_norm: Tensor  # [hidden]
    head: Weights
    """Outputs padded as the embedding's tokens are."""
    rotary: Tensor  # float32 [positions, 2, head_dim / 2]


class Loading:
    """Weights that are being filled; rotary positions are 0 … positions - 1."""

    def __init__(
        self, config: ModelConfig, precision: Precision, positions: int, device: str
    ) -> None:
        self._config = config
        self._precision = precision
        self._device = device
        self._places: dict[str, tuple[Tensor | Weights, int, tuple[int, ...]]] = {}
        """By name: what is written, from which row on, and the shape that fits."""
        embedding = self._rows(EMBEDDING, config.vocab)
        self._weights = DeviceWeights(
            embedding=embedding,
            layers=tuple(self._layer(f"model.layers.{i}.") for i in range(config.layers)),
            final_norm=self._vector(NORM, config.hidden),
            head=plain(embedding if self._head_is_embedding else self._rows(HEAD, config.outputs)),
            rotary=torch.from_numpy(rotary_table(config, positions)).to(device),
        )

    def take(self, name: str, tensor: Floats) -> None:
        """Copy a tensor into its place; one that fits none is left for the loader to name.

        Raises `ModelError` for one that holds NaN.
        """
        if name not in self._places or self._places[name][2] != tensor.shape:
            return
        check_numbers(name, tensor)
        to, start, _ = self._places.pop(name)
        rows = slice(start, start + len(tensor))
        held = torch.from_numpy(tensor)
        if isinstance(to, Tensor):
            to[rows].copy_(held)
        elif to.format is WeightFormat.PLAIN:
            to.values[rows].copy_(held)
        else:
            rounded = to_fp8(held.to(self._device))
            assert to.scales is not None
            assert rounded.scales is not None
            to.values[rows].copy_(rounded.values)
            to.scales[rows].copy_(rounded.scales)

    def finished(self) -> DeviceWeights:
        """Return the weights; raises `ModelError` when a tensor has not come."""
        if self._places:
            raise ModelError(f"the checkpoint lacks {min(self._places)}")
        return self._weights

    @property
    def _head_is_embedding(self) -> bool:
        return self._config.tied and self._config.output_ids is None

    def _layer(self, prefix: str) -> DeviceLayer:
        c = self._config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        qkv = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        matrices = {f"{attention}{name}.weight": n for name, n in qkv.items()}
        biases = {f"{attention}{name}.bias": n for name, n in qkv.items()}
        return DeviceLayer(
            attention_norm=self._vector(f"{prefix}input_layernorm.weight", c.hidden),
            qkv=self._matrix(matrices, c.hidden),
            heads=HeadParts(
                self._stacked(biases) if c.qkv_bias else None,
                self._vector(f"{attention}q_norm.weight", c.head_dim) if c.qk_norm else None,
                self._vector(f"{attention}k_norm.weight", c.head_dim) if c.qk_norm else None,
                c.norm_eps,
            ),
            output=self._matrix({f"{attention}o_proj.weight": c.hidden}, queries),
            ffn_norm=self._vector(f"{prefix}post_attention_layernorm.weight", c.hidden),
            gates=self._matrix({f"{mlp}{x}_proj.weight": c.ffn for x in ("gate", "up")}, c.hidden),
            down=self._matrix({f"{mlp}down_proj.weight": c.hidden}, c.ffn),
        )

    def _matrix(self, parts: Mapping[str, int], inputs: int) -> Weights:
        """Return a matrix of parts, one below the other; `parts`: outputs by name."""
        kind, outputs, scales = self._precision.matrices, sum(parts.values()), None
        if kind is WeightFormat.FP8:
            values = torch.empty((outputs, inputs), dtype=torch.uint8, device=self._device)
            scales = torch.empty(outputs, dtype=torch.float32, device=self._device)
        else:
            values = self._zeros(outputs, inputs)
        weights = Weights(kind, outputs, inputs, values, scales)
        self._place(parts, weights, (inputs,))
        return weights

    def _rows(self, name: str, count: int) -> Tensor:
        rows = self._zeros(-(-count // ALIGNED) * ALIGNED, self._config.hidden)
        self._place({name: count}, rows, (self._config.hidden,))
        return rows

    def _vector(self, name: str, size: int) -> Tensor:
        return self._stacked({name: size})

    def _stacked(self, parts: Mapping[str, int]) -> Tensor:
        vector = self._zeros(sum(parts.values()))
        self._place(parts, vector, ())
        return vector

    def _place(self, parts: Mapping[str, int], to: Tensor | Weights, rest: tuple[int, ...]) -> None:
        start = 0
        for name, count in parts.items():
            self._places[name] = to, start, (count, *rest)
            start += count

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self._precision.activations, device=self._device)
