"""Linear layers and norms at the shapes of real models: close to float64, and the same bits."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from outrider.kernels.gpu.gated_mlp import gated
from outrider.kernels.gpu.heads import HeadParts, RowPlaces
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.norm import add_norm
from outrider.kernels.gpu.projection import project, project_reference
from outrider.kernels.gpu.tiling import plan
from outrider.kernels.gpu.weights import GROUP, WeightFormat, Weights, dense, plain, to_fp8
from tests.gpu.shapes import (
    LARGEST_ERROR,
    MODELS,
    ROWS,
    ModelShape,
    differing,
    error,
    name_of,
    random,
)
from tests.kernel_outputs import unwritten
from tests.linear_layers import scratch_for

SLOTS = 512
Run = Callable[[Tensor], Tensor]
"""A layer's results for some rows [rows, inputs]."""


def weights_of(kind: WeightFormat, outputs: int, inputs: int, device: str) -> Weights:
    """Random weights of about 1 / sqrt(inputs)."""
    if kind is WeightFormat.INT4:
        generator = torch.Generator(device).manual_seed(4)
        groups = inputs // GROUP

        def integers(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(low, high, shape, generator=generator, device=device)

        words = integers(-(2**15), 2**15, groups, outputs, GROUP // 4).to(torch.int16)
        scales = random(groups, outputs, device=device, seed=5) / (4 * inputs**0.5)
        zeros = integers(0, 17, groups, outputs).to(torch.uint8)
        return Weights(kind, outputs, inputs, words, scales.half(), zeros)
    values = random(outputs, inputs, device=device, seed=6) / inputs**0.5
    return plain(values) if kind is WeightFormat.PLAIN else to_fp8(values)


def linear_run(weights: Weights) -> Run:
    def run(x: Tensor) -> Tensor:
        out = unwritten(len(x), weights.outputs, dtype=x.dtype, device=str(x.device))
        scratch = scratch_for(len(x), plan(weights), str(x.device))
        linear(x, weights, out, scratch)
        assert not scratch.arrivals.any()
        return out

    return run


def gated_run(weights: Weights) -> Run:
    def run(x: Tensor) -> Tensor:
        out = unwritten(len(x), weights.outputs // 2, dtype=x.dtype, device=str(x.device))
        scratch = scratch_for(len(x), plan(weights), str(x.device))
        gated(x, weights, out, scratch)
        assert not scratch.arrivals.any()
        return out

    return run


def projection_run(model: ModelShape, weights: Weights, kernel: Callable[..., None]) -> Run:
    """Queries, keys and values of each row side by side; rows have positions by their content."""
    size, heads, kv_heads = model.head_dim, model.heads, model.kv_heads

    def run(x: Tensor) -> Tensor:
        device = str(x.device)
        angles = torch.outer(
            torch.arange(SLOTS, device=device), 0.5 ** torch.arange(size // 2, device=device)
        )
        table = torch.stack((angles.cos(), angles.sin()), 1).float()
        slots = torch.arange(len(x), dtype=torch.int32, device=device)
        positions = torch.full_like(slots, 300)
        norms = [random(size, device=device, seed=i) if model.head_norms else None for i in (8, 9)]
        q = unwritten(len(x), heads, size, dtype=x.dtype, device=device)
        k, v = (unwritten(kv_heads, SLOTS, size, dtype=x.dtype, device=device) for _ in "kv")
        scratch = scratch_for(len(x), plan(weights, size // 2), device)
        kernel(
            x,
            weights,
            HeadParts(None, *norms),
            table,
            RowPlaces(positions, slots),
            q,
            k,
            v,
            scratch,
        )
        written = torch.cat((k[:, : len(x)], v[:, : len(x)])).transpose(0, 1)
        return torch.cat((q, written), 1).flatten(1)

    return run


def layers_of(model: ModelShape, kind: WeightFormat, device: str) -> Iterator[tuple[str, Run, Run]]:
    """Yield name, kernel and reference of each layer whose inputs the format holds."""
    width = model.heads * model.head_dim
    sizes = {
        "out": (model.hidden, width),
        "down": (model.hidden, model.ffn),
        "gated": (2 * model.ffn, model.hidden),
        "projection": (width + 2 * model.kv_heads * model.head_dim, model.hidden),
    }
    for name, (outputs, inputs) in sizes.items():
        if kind is WeightFormat.INT4 and inputs % GROUP:
            continue
        weights = weights_of(kind, outputs, inputs, device)
        if name == "projection":
            expected = projection_run(model, weights, project_reference)
            yield name, projection_run(model, weights, project), expected
        elif name == "gated":
            yield name, gated_run(weights), gated_expected(weights)
        else:
            yield name, linear_run(weights), linear_expected(weights)


def linear_expected(weights: Weights) -> Run:
    return lambda x: x.double() @ dense(weights).double().T


def gated_expected(weights: Weights) -> Run:
    def expected(x: Tensor) -> Tensor:
        gate, up = linear_expected(weights)(x).chunk(2, 1)
        return functional.silu(gate) * up

    return expected


def inputs_of(run_name: str, model: ModelShape, device: str) -> Tensor:
    """Return rows [the most rows, inputs] for a layer."""
    of_layer = {"out": model.heads * model.head_dim, "down": model.ffn}
    return random(max(ROWS), of_layer.get(run_name, model.hidden), device=device, seed=7)


@pytest.mark.parametrize("kind", list(WeightFormat), ids=str)
@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_products_are_close_to_float64(model: ModelShape, kind: WeightFormat, device: str) -> None:
    for name, run, expected in layers_of(model, kind, device):
        x = inputs_of(name, model, device)
        for rows in ROWS:
            found = run(x[:rows])
            assert error(found, expected(x[:rows])) < LARGEST_ERROR, f"{name}, {rows} rows"


@pytest.mark.parametrize("kind", list(WeightFormat), ids=str)
@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_a_row_has_the_same_bits_alone_among_others_and_in_every_launch(
    model: ModelShape, kind: WeightFormat, device: str
) -> None:
    for name, run, _ in layers_of(model, kind, device):
        x = inputs_of(name, model, device)
        whole = run(x)
        for some in ([0], [127], list(range(8)), list(range(40, 57)), list(range(128))[::-1]):
            assert torch.equal(run(x[some]), whole[some]), f"{name}, rows {some[:3]}…"
        assert differing(lambda x=x, run=run: run(x[:17]), whole[:17]) == 0, name  # type: ignore[misc]


@pytest.mark.parametrize("hidden", sorted({model.hidden for model in MODELS}))
def test_norms_are_close_to_float64_and_each_rows_own(hidden: int, device: str) -> None:
    residual, update = (random(max(ROWS), hidden, device=device, seed=i) for i in (1, 2))
    weight = random(hidden, device=device, seed=3)

    def run(rows: list[int]) -> Tensor:
        kept, out = residual[rows], torch.full_like(residual[rows], torch.nan)
        add_norm(kept, update[rows], weight, 1e-5, out)
        return torch.cat((kept, out), 1)

    everyone = list(range(max(ROWS)))
    whole = run(everyone)
    total = (residual.double() + update.double()).to(residual.dtype).double()
    scale = (total.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    assert torch.equal(whole[:, :hidden], total.to(residual.dtype))
    assert error(whole[:, hidden:], total * scale * weight.double()) < LARGEST_ERROR
    for some in ([0], [127], everyone[:17], everyone[::-1]):
        assert torch.equal(run(some), whole[some])


@pytest.mark.parametrize("kind", list(WeightFormat), ids=str)
def test_sanitized_layers_read_and_write_their_own(kind: WeightFormat, device: str) -> None:
    """A launch of each layer of an 8B model, for a memory checker."""
    for name, run, _ in layers_of(MODELS[0], kind, device):
        found = run(inputs_of(name, MODELS[0], device)[:17])
        assert found.isfinite().all(), name
