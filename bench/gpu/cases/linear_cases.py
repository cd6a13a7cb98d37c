"""Cases of `bench.kernels` around linear layers: norm, projection, gated, linear, against torch.

torch's side of fp8 and int4 weights multiplies with the bfloat16 matrix that they stand for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
import triton
from torch import Tensor
from torch.nn import functional

from bench.gpu.cases.kernel_case import OURS, ROWS, Case, Launch
from bench.roofline.work import HALF, WEIGHTS, Shape, matrix
from outrider.kernels.gpu.gated_mlp import gated
from outrider.kernels.gpu.heads import HeadParts, RowPlaces
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.norm import add_norm
from outrider.kernels.gpu.projection import project
from outrider.kernels.gpu.tiles import TileScratch, make_scratch
from outrider.kernels.gpu.tiling import LINES, Tiling, plan
from outrider.kernels.gpu.weights import (
    FP8_LARGEST,
    GROUP,
    WORDS,
    WeightFormat,
    Weights,
    dense,
    plain,
    to_fp8,
)

POSITIONS = 1024
WIDTHS = (16, 32, 64)
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
FORMATS = {"bf16": WeightFormat.PLAIN, "fp8": WeightFormat.FP8, "int4": WeightFormat.INT4}
EPSILON = 1e-5


def cases(model: Shape, ranks: int) -> Iterator[Case]:
    """Those of one rank of a model, on a GPU."""
    for rows in ROWS:
        yield from of_shape(model, ranks, rows, "cuda", torch.bfloat16)


def of_shape(
    model: Shape, ranks: int, rows: int, device: str, dtype: torch.dtype
) -> Iterator[Case]:
    """Yield cases of one model and degree at `rows` rows."""
    hidden, ffn = model.hidden, model.ffn // ranks
    heads, kv_heads = model.heads // ranks, max(1, model.kv_heads // ranks)
    shape = f"{model.name} TP {ranks}"
    yield _norm(shape, rows, hidden, device, dtype)
    for weights in WEIGHTS:
        width = heads * model.head_dim

        def layer(outputs: int, inputs: int, weights: str = weights) -> Weights:
            return random_weights(weights, outputs, inputs, device, dtype)

        yield _projection(shape, weights, rows, (heads, kv_heads, model.head_dim), hidden, layer)
        yield _linear(Kernel("linear out", shape, weights, rows), hidden, width, layer)
        yield _gated(shape, weights, rows, ffn, hidden, layer)
        yield _linear(Kernel("linear down", shape, weights, rows), hidden, ffn, layer)
    head = model.vocabulary // ranks
    yield _linear(
        Kernel("linear head", shape, "bf16", rows), head, hidden,
        lambda outputs, inputs: random_weights("bf16", outputs, inputs, device, dtype),
    )  # fmt: skip


def random_weights(
    kind: str, outputs: int, inputs: int, device: str, dtype: torch.dtype
) -> Weights:
    """A layer of about unit gain."""
    if kind == "int4":
        groups = inputs // GROUP
        words = torch.randint(-(2**15), 2**15, (groups, outputs, WORDS), device=device)
        scales = torch.full((groups, outputs), 0.2 / inputs**0.5, device=device).half()
        zeros = torch.full((groups, outputs), 8, dtype=torch.uint8, device=device)
        return Weights(WeightFormat.INT4, outputs, inputs, words.to(torch.int16), scales, zeros)
    values = torch.randn(outputs, inputs, device=device, dtype=dtype) / inputs**0.5
    return to_fp8(values) if kind == "fp8" else plain(values)


Layer = Callable[[int, int], Weights]
Side = Callable[[], Launch]


def _activations(rows: int, weights: Weights) -> Tensor:
    """Random rows in the dtype that the layer is multiplied in."""
    dtype = weights.values.dtype if weights.format is WeightFormat.PLAIN else torch.bfloat16
    device = weights.values.device
    if triton.knobs.runtime.interpret and weights.format is not WeightFormat.PLAIN:
        dtype = torch.float32  # bfloat16 is wrong in the interpreter
    return torch.randn(rows, weights.inputs, device=device, dtype=dtype)


def _scratch(rows: int, cut: Tiling, x: Tensor) -> TileScratch:
    return make_scratch(rows, [cut], str(x.device))


class Kernel(NamedTuple):
    """The kernel of a case, and the model whose shapes it has."""

    name: str
    shape: str
    weights: str
    rows: int


def _linear(kernel: Kernel, outputs: int, inputs: int, layer: Layer) -> Case:
    _, _, weights, rows = kernel

    def ours(cut: Tiling | None = None) -> Launch:
        held = layer(outputs, inputs)
        x = _activations(rows, held)
        out, scratch = x.new_empty(rows, outputs), _scratch(rows, cut or plan(held), x)

        def launch() -> Tensor:
            linear(x, held, out, scratch, cut)
            return out

        return launch

    def theirs() -> Launch:
        held = layer(outputs, inputs)
        x = _activations(rows, held)
        matrix, out = dense(held).to(x.dtype), x.new_empty(rows, outputs)
        return lambda: torch.mm(x, matrix.T, out=out)

    moved, _ = matrix(outputs, inputs, rows, weights)
    choices = _choices(ours, weights, outputs, inputs)
    case = _case(kernel, moved, ours, theirs, choices, _narrow(ours, weights, outputs, inputs))
    if weights != "fp8" or not torch.cuda.is_available():
        return case
    scaled = partial(_scaled, rows, outputs, inputs, layer)
    return replace(case, sides={**case.sides, "torch scaled_mm, fp8 rows": scaled})


def _scaled(rows: int, outputs: int, inputs: int, layer: Layer) -> Launch:
    """Return cuBLAS's own fp8, whose rows are rounded to e4m3 too, beforehand."""
    held = layer(outputs, inputs)
    x = _activations(rows, held)
    scales = x.float().abs().amax(1, keepdim=True) / FP8_LARGEST
    rounded = (x / scales).to(torch.float8_e4m3fn)
    matrix = held.values.view(torch.float8_e4m3fn).T
    assert held.scales is not None
    by_output = held.scales[None]
    return lambda: torch._scaled_mm(
        rounded, matrix, scale_a=scales, scale_b=by_output, out_dtype=torch.bfloat16
    )


def _gated(shape: str, weights: str, rows: int, ffn: int, inputs: int, layer: Layer) -> Case:
    def ours(cut: Tiling | None = None) -> Launch:
        held = layer(2 * ffn, inputs)
        x = _activations(rows, held)
        out, scratch = x.new_empty(rows, ffn), _scratch(rows, cut or plan(held), x)

        def launch() -> Tensor:
            gated(x, held, out, scratch, cut)
            return out

        return launch

    def theirs() -> Launch:
        held = layer(2 * ffn, inputs)
        x = _activations(rows, held)
        matrix = dense(held).to(x.dtype)

        def launch() -> Tensor:
            gate, up = functional.linear(x, matrix).chunk(2, 1)
            return functional.silu(gate) * up

        return launch

    moved, _ = matrix(2 * ffn, inputs, rows, weights)
    choices = _choices(ours, weights, 2 * ffn, inputs)
    return _case(
        Kernel("gated", shape, weights, rows), moved - rows * ffn * HALF, ours, theirs, choices,
        _narrow(ours, weights, 2 * ffn, inputs),
    )  # fmt: skip


def _projection(
    shape: str, weights: str, rows: int, of_heads: tuple[int, int, int], inputs: int, layer: Layer
) -> Case:
    heads, kv_heads, size = of_heads
    outputs = (heads + 2 * kv_heads) * size

    def ours(cut: Tiling | None = None) -> Launch:
        held = layer(outputs, inputs)
        x = _activations(rows, held)
        table, where, q, k, v = _head_buffers(x, *of_heads)
        places, scratch = RowPlaces(where, where), _scratch(rows, cut or plan(held, size // 2), x)

        def launch() -> Tensor:
            project(x, held, HeadParts(), table, places, q, k, v, scratch, cut)
            return q

        return launch

    def theirs() -> Launch:
        held = layer(outputs, inputs)
        x = _activations(rows, held)
        matrix = dense(held).to(x.dtype)
        table, where, _, k, v = _head_buffers(x, *of_heads)
        cos, sin = table[where][:, :, None].to(x.dtype).unbind(1)  # once for all layers of a step
        slots = where.long()

        def launch() -> Tensor:
            by_head = functional.linear(x, matrix).view(rows, heads + 2 * kv_heads, size)
            low, high = by_head[:, : heads + kv_heads].chunk(2, 2)
            turned = torch.cat((low * cos - high * sin, high * cos + low * sin), 2)
            k.index_copy_(1, slots, turned[:, heads:].transpose(0, 1))
            v.index_copy_(1, slots, by_head[:, heads + kv_heads :].transpose(0, 1))
            return turned[:, :heads]

        return launch

    moved, _ = matrix(outputs, inputs, rows, weights)
    choices = _choices(ours, weights, outputs, inputs, (size // 2,))
    return _case(
        Kernel("projection", shape, weights, rows), moved, ours, theirs, choices,
        _narrow(ours, weights, outputs, inputs, size // 2),
    )  # fmt: skip


def _head_buffers(x: Tensor, heads: int, kv_heads: int, size: int) -> tuple[Tensor, ...]:
    """Rotary table, positions that are slots too, queries, and a pool's keys and values."""
    angles = torch.rand(POSITIONS, size // 2, device=x.device)
    table = torch.stack((angles.cos(), angles.sin()), 1)
    where = torch.arange(len(x), dtype=torch.int32, device=x.device)
    pools = (x.new_empty(kv_heads, POSITIONS, size) for _ in range(2))
    return table, where, x.new_empty(len(x), heads, size), *pools


def _norm(shape: str, rows: int, hidden: int, device: str, dtype: torch.dtype) -> Case:
    def parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        residual, update, out = (
            torch.randn(rows, hidden, device=device, dtype=dtype) for _ in range(3)
        )
        return residual, update, out, torch.ones(hidden, device=device, dtype=dtype)

    def ours() -> Launch:
        residual, update, out, weight = parts()

        def launch() -> Tensor:
            add_norm(residual, update, weight, EPSILON, out)
            return out

        return launch

    def theirs() -> Launch:
        residual, update, _, weight = parts()

        def launch() -> Tensor:
            residual.add_(update)
            return functional.rms_norm(residual, (hidden,), weight, EPSILON)

        return launch

    moved = (4 * rows * hidden + hidden) * HALF
    return _case(Kernel("norm", shape, "bf16", rows), moved, ours, theirs)


def _choices(
    ours: Callable[[Tiling], Launch], weights: str, outputs: int, inputs: int,
    widths: Sequence[int] = WIDTHS,
) -> dict[str, Side]:  # fmt: skip
    """Other tiles and splits than the plan's."""
    shape = _layer_shape(weights, outputs, inputs)
    cuts = {plan(shape, columns, splits) for columns in widths for splits in SPLITS}
    return {
        f"{cut.columns} columns, {cut.splits} splits": partial(ours, cut)
        for cut in sorted(cuts, key=lambda cut: (cut.columns, cut.splits))
    }


def _narrow(
    ours: Callable[[Tiling], Launch], weights: str, outputs: int, inputs: int,
    width: int | None = None,
) -> Side:  # fmt: skip
    """Our side by programs that read the weights for 16 rows each."""
    return partial(ours, replace(plan(_layer_shape(weights, outputs, inputs), width), parts=1))


def _layer_shape(weights: str, outputs: int, inputs: int) -> Weights:
    """Weights for a plan, without values."""
    return Weights(FORMATS[weights], outputs, inputs, torch.empty(0, dtype=torch.bfloat16))


def _case(
    kernel: Kernel,
    moved: float,
    ours: Side,
    theirs: Side,
    choices: Mapping[str, Side] | None = None,
    narrow: Side | None = None,
) -> Case:
    """`narrow` is a side of its own where there is more than 16 rows."""
    also = {f"{OURS}, 16 rows a program": narrow} if narrow and kernel.rows > LINES.value else {}
    return Case(
        kernel=kernel.name,
        shape=kernel.shape,
        weights=kernel.weights,
        rows=kernel.rows,
        bytes=moved,
        sides={OURS: ours, **also, "torch": theirs},
        choices=choices or {},
    )
