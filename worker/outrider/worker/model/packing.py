"""A model's tensors, fused, padded and packed for the compiled pass.

Reads Hugging Face names; QKV and gate/up become one layer each. Leaves files to the loader and
arithmetic to `outrider.kernels`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.forward import Buffers, PassWeights, Stack
from outrider.kernels.cpu.grouped_packing import (
    Grouped,
    GroupedStack,
    as_it_is,
    encode,
    encode_bytes,
    stack_grouped,
)
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath
from outrider.kernels.cpu.packing import BLOCK, aligned, pack, padded
from outrider.kernels.cpu.quantised_rows import QuantisedRows
from outrider.worker.errors import ModelError
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.config import ModelConfig
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.matrix import (
    Floats,
    Matrix,
    Quantised,
    Read,
    check_numbers,
    floats_of,
)
from outrider.worker.model.rotary import rotary_tables
from outrider.worker.model.tensor_names import (
    EMBEDDING,
    HEAD,
    LAYERS,
    NORM,
    UPDATE_NORMS,
    ffn_norm,
)

AnyStack = Stack | GroupedStack
Embedding = Floats | QuantisedRows
Encoders = tuple[Callable[[Floats], Grouped | None], Callable[[Floats], Grouped]]
"""What keeps a float matrix as it is, or gives None, and what rounds it then."""
Pack = Callable[[ModelConfig, Mapping[str, Matrix], NumericKind, int, LayerRange], PassWeights]
"""`pack_model`, or what keeps its results."""


class Tensors:
    """Tensors of a checkpoint by name."""

    def __init__(self, weights: Mapping[str, Matrix]) -> None:
        self._weights = weights

    def stored(self, name: str) -> Matrix:
        """Return the tensor called `name`, maybe unread; raises `ModelError` when it is missing."""
        try:
            return self._weights[name]
        except KeyError as error:
            raise ModelError(f"the checkpoint lacks {name}") from error

    def matrix(self, name: str) -> Read:
        """Return the tensor called `name`; raises `ModelError` when it is missing or holds NaN."""
        stored = self.stored(name)
        matrix = stored.grouped() if isinstance(stored, Quantised) else stored
        check_numbers(name, matrix)
        return matrix

    def __call__(self, name: str) -> Floats:
        """Return the tensor called `name` in float32; raises `ModelError` as `matrix` does."""
        return _usable(self.matrix(name))

    def layer(self, index: int, *names: str) -> Floats:
        """Pack the tensors of one layer, stacked along their outputs."""
        return np.concatenate([self(f"model.layers.{index}.{name}") for name in names])


def pack_model(
    config: ModelConfig,
    weights: Mapping[str, Matrix],
    kind: NumericKind,
    positions: int,
    layers: LayerRange,
) -> PassWeights:
    """Pack the `layers` of a checkpoint, which `config` counts; the first ones with the embedding,
    the last ones with final norm and head.

    One tensor at a time is in memory besides. Raises `ModelError` for a tensor that is missing or
    holds NaN.
    """
    get, numbers = Tensors(weights), layers.numbers
    has_quants = kind.path is NumericPath.INT4 and any(
        isinstance(weights[name], Quantised | Grouped) for name in weights
    )
    exact = as_it_is if has_quants else _never
    norm = get(NORM) if layers.has_head else np.zeros(config.hidden, np.float32)

    def each(*names: str) -> Iterator[Floats]:
        return (get.layer(number, *names) for number in numbers)

    def optional(present: bool, *names: str) -> Floats:
        return np.stack([*each(*names)]) if present else np.zeros((config.layers, 0), np.float32)

    def stack(*names: str, outputs: int = 1) -> AnyStack:
        """Stack matrices below each other in each layer, each padded to multiples of `outputs`."""
        parts = ([f"{LAYERS}{number}.{name}" for name in names] for number in numbers)
        matrices = ([_padded(get.matrix(name), outputs) for name in own] for own in parts)
        return _stack(matrices, layers.count, kind, (exact, encode))

    head = _head(get, config) if layers.has_head else np.zeros((0, config.hidden), np.float32)
    return PassWeights(
        qkv=stack(*(f"self_attn.{x}_proj.weight" for x in "qkv")),
        output=stack("self_attn.o_proj.weight"),
        gates=stack("mlp.gate_proj.weight", "mlp.up_proj.weight", outputs=BLOCK),
        down=stack("mlp.down_proj.weight"),
        head=_stack([[head]], 1, kind, (exact, encode_bytes)),
        attention_norm=_rows(each("input_layernorm.weight")),
        ffn_norm=_rows(each(ffn_norm(config))),
        attention_update_norm=_rows(optional(config.update_norms, UPDATE_NORMS[0])),
        ffn_update_norm=_rows(optional(config.update_norms, UPDATE_NORMS[1])),
        final_norm=_rows([norm]),
        qkv_bias=optional(config.qkv_bias, *(f"self_attn.{x}_proj.bias" for x in "qkv")),
        q_norm=optional(config.qk_norm, "self_attn.q_norm.weight"),
        k_norm=optional(config.qk_norm, "self_attn.k_norm.weight"),
        rotary=rotary_tables(config, positions),
        embedding=embedding_of(config, weights, layers),
    )


def embedding_of(
    config: ModelConfig, weights: Mapping[str, Matrix], layers: LayerRange
) -> Embedding:
    """Return the embedding [vocab, hidden], without rows for layers that do not embed: floats, or
    quants where they lie.

    Raises `ModelError` when it is missing.
    """
    if not layers.embeds:
        return np.zeros((0, config.hidden), np.float32)
    embedding = Tensors(weights).stored(EMBEDDING)
    if isinstance(embedding, Quantised):
        return QuantisedRows(embedding.blocks, embedding.kind)
    return _usable(embedding)


def _usable(matrix: Matrix) -> Floats:
    """Return the values in float32, of the one array type that compiled code takes."""
    return np.require(floats_of(matrix), np.float32, ["C", "A", "W"])


def _padded(matrix: Read, outputs: int) -> Read:
    """Return a matrix with outputs of 0 up to a multiple of `outputs`."""
    full = padded(len(matrix), outputs)
    if isinstance(matrix, Grouped):
        return matrix.padded(full)
    more = full - len(matrix)
    return np.pad(matrix, ((0, more), (0, 0))) if more else matrix


def _head(get: Tensors, config: ModelConfig) -> Read:
    head = get.matrix(EMBEDDING if config.tied else HEAD)
    if len(head) != config.outputs:
        raise ModelError(f"{HEAD} has {len(head)} rows, expected {config.outputs}")
    return head


def _stack(
    layers: Iterable[Sequence[Read]],
    count: int,
    kind: NumericKind,
    encoders: Encoders,
) -> AnyStack:
    """Pack a matrix for each of `count` layers, all of one shape, from parts below each other."""
    if kind.path is NumericPath.INT4:
        return stack_grouped((_grouped(parts, encoders) for parts in layers), count)
    packed = [pack(np.concatenate([floats_of(part) for part in parts]), kind) for parts in layers]
    weights = aligned((len(packed), packed[0].weights.size), kind.weight)
    for i, layer in enumerate(packed):
        weights[i] = layer.weights
    return Stack(
        weights, np.stack([x.scales for x in packed]), np.stack([x.offsets for x in packed])
    )


def _never(_: Floats) -> None:
    """Keep no floats: who asks for four bits of a model of floats wants them rounded."""


def _grouped(parts: Sequence[Read], encoders: Encoders) -> list[Grouped]:
    """Return matrices of which all but the last are whole blocks."""
    found: list[Grouped] = []
    for part in parts:
        own = part if isinstance(part, Grouped) else _encoded(_whole_groups(part), encoders)
        if found and found[-1].joins(own):
            found[-1] = found[-1].joined(own)
        else:
            found.append(own)
    if any(len(part) % BLOCK for part in found[:-1]):
        sizes = ", ".join(str(len(part)) for part in found)
        raise ModelError(
            f"quants of different kinds in one layer, of {sizes} outputs: these are to be "
            f"multiples of {BLOCK} with dtype int4"
        )
    return found


def _encoded(matrix: Floats, encoders: Encoders) -> Grouped:
    exact, rounded = encoders
    found = exact(matrix)
    return rounded(matrix) if found is None else found


def _whole_groups(matrix: Floats) -> Floats:
    """Return a matrix with inputs of 0 up to whole groups."""
    full = np.zeros((len(matrix), padded(matrix.shape[1], BLOCK)), np.float32)
    full[:, : matrix.shape[1]] = matrix
    return full


def _rows(vectors: Iterable[Floats]) -> Floats:
    """Pad vectors with zeros to rows of padded width."""
    rows = np.stack(list(vectors))
    out = np.zeros((len(rows), padded(rows.shape[1], BLOCK)), np.float32)
    out[:, : rows.shape[1]] = rows
    return out


def make_buffers(
    config: ModelConfig,
    kind: NumericKind,
    kv_cache: HostKVCache,
    row_capacity: int,
    outputs: int,
) -> Buffers:
    """Allocate scratch of passes of up to `row_capacity` rows over sequences of a KV cache.

    `outputs`: columns of the logits, 0 for a stage without head.
    """

    def floats(width: int) -> Floats:
        return aligned((row_capacity, width), np.float32)

    def activations(width: int) -> NDArray[np.generic]:
        return aligned((row_capacity, width), kind.activation)

    hidden, ffn = padded(config.hidden, BLOCK), padded(config.ffn, BLOCK)
    context = padded(config.heads * config.head_dim, BLOCK)
    qkv = padded((config.heads + 2 * config.kv_heads) * config.head_dim, BLOCK)
    return Buffers(
        k_t=kv_cache.k_t,
        v=kv_cache.v,
        residual=floats(hidden),
        work=floats(hidden),
        act=activations(hidden),
        qkv=floats(qkv),
        context=floats(context),
        act_context=activations(context),
        update=floats(padded(config.hidden, BLOCK)),
        gates=floats(padded(2 * ffn, BLOCK)),
        wide=floats(ffn),
        act_wide=activations(ffn),
        scales=np.ones(row_capacity, np.float32),
        attention=aligned(
            (row_capacity, config.heads // config.kv_heads, kv_cache.longest + 64), np.float32
        ),
        logits=floats(padded(outputs, BLOCK)),
    )
