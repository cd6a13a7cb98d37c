"""Weights of a model on a device, taken from a checkpoint one tensor at a time, in any order.

A tensor goes into its place among fused QKV or gate/up as it comes, in pieces, so that the host
never holds more of them than one. It travels as its file has it, and stays so if kernels take that
format. Leaves reading files to `checkpoints.load`, and cutting over ranks to `model.sharding`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.cpu.grouped_packing import Q4_NESTED, Grouped
from outrider.kernels.gpu.heads import HeadParts
from outrider.kernels.gpu.weights import (
    GROUP,
    WeightFormat,
    Weights,
    dense,
    from_fp8,
    from_groups,
    plain,
    to_fp8,
)
from outrider.worker.errors import ModelError
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.matrix import AsStored, Quantised, Scaled, floats_of
from outrider.worker.model.rotary import rotary_table
from outrider.worker.model.tensor_names import EMBEDDING, HEAD, NORM

logger = logging.getLogger(__name__)

NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
PARTS = ("values", "scales", "zeros")
"""Tensors of weights."""
PIECE = 64 << 20
"""Bytes that travel to a device at once."""
KEEPS_FP8 = (None, WeightFormat.FP8)
ALIGNED = 16
"""Rows of embedding and head are a multiple of it, zeros at the end: sampling reads by four."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtype of activations and format of weights."""

    activations: torch.dtype
    """Dtype of rows, KV, norms, embedding and head."""
    matrices: WeightFormat | None = WeightFormat.PLAIN
    """Format of all other weights: PLAIN is the dtype of activations, None what the checkpoint has
    as far as kernels take it, else PLAIN."""


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

    @property
    def formats(self) -> str:
        """Formats of the layers' matrices, the most frequent first."""
        plain_name = NAMES[self.embedding.dtype]
        names = {WeightFormat.PLAIN: plain_name, WeightFormat.FP8: "fp8", WeightFormat.INT4: "int4"}
        matrices = ((own.qkv, own.output, own.gates, own.down) for own in self.layers)
        counts = Counter(names[one.format] for four in matrices for one in four)
        return " and ".join(name for name, _ in counts.most_common())


class FusedMatrix:
    """A matrix of parts, one below the other, in their format; plain where they have several."""

    def __init__(self, outputs: int, dtype: torch.dtype) -> None:
        """`dtype` of plain weights."""
        self._outputs, self._dtype = outputs, dtype
        self._held: Weights | None = None

    @property
    def weights(self) -> Weights:
        """The matrix, once a part of it has come."""
        assert self._held is not None
        return self._held

    def put(self, first: int, part: Weights) -> None:
        """Write a part whose first output is output `first`."""
        if self._held is None:
            self._held = self._room(part)
        elif self._held.format is not part.format:
            self._held, part = self._plain(self._held), self._plain(part)
        for name in PARTS:
            own, new = getattr(self._held, name), getattr(part, name)
            if new is not None:
                own.narrow(axis_of(part), first, part.outputs).copy_(new)

    def _room(self, part: Weights) -> Weights:
        def room(tensor: Tensor) -> Tensor:
            shape = list(tensor.shape)
            shape[axis_of(part)] = self._outputs
            return tensor.new_empty(shape)

        scales, zeros = (None if one is None else room(one) for one in (part.scales, part.zeros))
        return Weights(part.format, self._outputs, part.inputs, room(part.values), scales, zeros)

    def _plain(self, weights: Weights) -> Weights:
        return plain(dense(weights).to(self._dtype))


class Loading:
    """Weights that are being filled; rotary positions are 0 … positions - 1."""

    def __init__(
        self, config: ModelConfig, precision: Precision, positions: int, device: str
    ) -> None:
        self._config = config
        self._precision = precision
        self._device = device
        self._places: dict[str, tuple[Tensor | FusedMatrix, int, tuple[int, ...]]] = {}
        """By name: what is written, from which row on, and the shape that fits."""
        self._nan: list[tuple[str, Tensor]] = []
        """Names, and whether a piece of the tensor holds NaN."""
        self._widened = 0
        """Matrices whose own format no kernel takes."""
        self._embedding = self._rows(EMBEDDING, config.vocab)
        self._layers = [self._layer(f"model.layers.{i}.") for i in range(config.layers)]
        self._final_norm = self._vector(NORM, config.hidden)
        self._head = (
            self._embedding if self._head_is_embedding else self._rows(HEAD, config.outputs)
        )
        self._rotary = torch.from_numpy(rotary_table(config, positions)).to(device)

    def take(self, name: str, stored: AsStored) -> None:
        """Copy a tensor into its place; one that fits none is left for the loader to name."""
        if name not in self._places or self._places[name][2] != stored.shape:
            return
        to, start, _ = self._places.pop(name)
        if isinstance(to, Tensor):
            for begin, values in sent(numbers_of(stored), self._device):
                self._nan.append((name, values.isnan().any()))
                to[start + begin : start + begin + len(values)].copy_(values)
            return
        for begin, part in self._parts(stored):
            self._nan.append((name, has_nan(part)))
            to.put(start + begin, part)

    def finished(self) -> DeviceWeights:
        """Return the weights; raises `ModelError` when a tensor has not come or holds NaN."""
        if self._places:
            raise ModelError(f"the checkpoint lacks {min(self._places)}")
        flaws = torch.stack([flaw for _, flaw in self._nan]).tolist()
        for (name, _), flaw in zip(self._nan, flaws, strict=True):
            if flaw:
                raise ModelError(f"{name} holds NaN: such weights make no text")
        if self._widened:
            logger.warning(
                "%d matrices of quants were widened to %s: GPU kernels take FP8 with a scale for "
                "each output, and 4 bits in groups of %d inputs",
                *(self._widened, NAMES[self._precision.activations], GROUP),
            )
        layers = tuple(layer() for layer in self._layers)
        head = plain(self._head)
        return DeviceWeights(self._embedding, layers, self._final_norm, head, self._rotary)

    def _parts(self, stored: AsStored) -> Iterator[tuple[int, Weights]]:
        """Yield a matrix in pieces on the device, each with its first output."""
        kind = self._precision.matrices
        if isinstance(stored, Scaled) and stored.scales.shape[1] == 1 and kind in KEEPS_FP8:
            scales = torch.from_numpy(stored.scales[:, 0].copy()).to(self._device)
            for begin, bits in sent(torch.from_numpy(stored.bits), self._device):
                own = scales[begin : begin + len(bits)]
                yield begin, from_fp8(bits.view(torch.float8_e4m3fn), own)
            return
        if isinstance(stored, Quantised):
            stored = stored.grouped()
        if kind is None and isinstance(stored, Grouped) and (groups := wide_groups(stored)):
            quants, *by_group = map(torch.from_numpy, groups)
            zeros, scales = (one.to(self._device) for one in by_group)
            for begin, piece in sent(quants, self._device):
                rows = slice(begin, begin + len(piece))
                yield begin, from_groups(piece, zeros[rows], scales[rows])
            return
        self._widened += kind is None and isinstance(stored, Grouped | Scaled)
        for begin, values in sent(numbers_of(stored), self._device):
            if kind is WeightFormat.FP8:
                yield begin, to_fp8(values)
            else:
                yield begin, plain(values.to(self._precision.activations))

    @property
    def _head_is_embedding(self) -> bool:
        return self._config.tied and self._config.output_ids is None

    def _layer(self, prefix: str) -> Callable[[], DeviceLayer]:
        """Return what makes the layer once all has come."""
        c = self._config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        qkv = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        matrices = {f"{attention}{name}.weight": n for name, n in qkv.items()}
        biases = {f"{attention}{name}.bias": n for name, n in qkv.items()}
        heads = HeadParts(
            self._stacked(biases) if c.qkv_bias else None,
            self._vector(f"{attention}q_norm.weight", c.head_dim) if c.qk_norm else None,
            self._vector(f"{attention}k_norm.weight", c.head_dim) if c.qk_norm else None,
            c.norm_eps,
        )
        attention_norm = self._vector(f"{prefix}input_layernorm.weight", c.hidden)
        ffn_norm = self._vector(f"{prefix}post_attention_layernorm.weight", c.hidden)
        fused = self._matrix(matrices, c.hidden)
        output = self._matrix({f"{attention}o_proj.weight": c.hidden}, queries)
        gates = self._matrix({f"{mlp}{x}_proj.weight": c.ffn for x in ("gate", "up")}, c.hidden)
        down = self._matrix({f"{mlp}down_proj.weight": c.hidden}, c.ffn)
        return lambda: DeviceLayer(
            attention_norm, fused.weights, heads, output.weights, ffn_norm, gates.weights,
            down.weights,
        )  # fmt: skip

    def _matrix(self, parts: Mapping[str, int], inputs: int) -> FusedMatrix:
        """Return a matrix of parts, one below the other; `parts`: outputs by name."""
        fused = FusedMatrix(sum(parts.values()), self._precision.activations)
        self._place(parts, fused, (inputs,))
        return fused

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

    def _place(
        self, parts: Mapping[str, int], to: Tensor | FusedMatrix, rest: tuple[int, ...]
    ) -> None:
        start = 0
        for name, count in parts.items():
            self._places[name] = to, start, (count, *rest)
            start += count

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self._precision.activations, device=self._device)


def sent(tensor: Tensor, device: str, size: int = PIECE) -> Iterator[tuple[int, Tensor]]:
    """Yield a host tensor on the device in pieces of so many bytes, each with its first row.

    They travel in their own dtype through pinned memory, which torch takes back once a copy has
    ended: so the host reads a piece while the one before is on its way.
    """
    rows = max(1, size * len(tensor) // max(1, tensor.numel() * tensor.element_size()))
    for begin in range(0, len(tensor), rows):
        piece = tensor[begin : begin + rows]
        pinned = piece.pin_memory() if device.startswith("cuda") else piece
        yield begin, pinned.to(device, non_blocking=True)


def numbers_of(stored: AsStored) -> Tensor:
    """Return a tensor of a file on the host: halves as they are, else float32."""
    if isinstance(stored, Quantised | Grouped | Scaled):
        return torch.from_numpy(floats_of(stored))
    if not stored.flags.writeable:  # a mapped GGUF file: torch warns of its arrays
        stored = stored.copy()
    if stored.dtype == np.uint16:
        return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(stored)


def wide_groups(
    matrix: Grouped,
) -> tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.float16]] | None:
    """Return quants, zeros and scales of a matrix as `from_groups` takes them; None where scales
    or zeros differ within 128 inputs, or least values are no multiples of scales."""
    zeros, ones, each = matrix.inner_least, matrix.inner_scales, GROUP // matrix.layout.group
    if matrix.layout != Q4_NESTED or ones is None or zeros is None or matrix.least is None:
        return None
    if matrix.row_scales is not None or matrix.shape[1] % GROUP or matrix.span % each:
        return None
    fours = zeros.reshape(len(zeros), -1, each)
    same = (fours == fours[..., :1]).all() and (ones == 1).all() and (zeros >= 0).all()
    if not same or not np.array_equal(matrix.least, -matrix.scales):
        return None
    scales = np.repeat(matrix.scales, matrix.span // each, axis=1)
    return matrix.quants.astype(np.uint8, copy=False), fours[..., 0].copy(), scales


def has_nan(part: Weights) -> Tensor:
    """Return whether weights hold NaN, bool []."""
    if part.format is WeightFormat.PLAIN:
        return part.values.isnan().any()
    assert part.scales is not None
    flaw = part.scales.isnan().any()
    return flaw | (part.values & 127 == 127).any() if part.format is WeightFormat.FP8 else flaw


def axis_of(weights: Weights) -> int:
    """Return the axis of outputs in the tensors of weights."""
    return int(weights.format is WeightFormat.INT4)
