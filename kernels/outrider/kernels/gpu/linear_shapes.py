"""Configurations that the linear kernels have in common, by format of the weights.

Shapes of layers are run-time parameters: Llama-3-8B and 70B at any tensor-parallel degree make the
same few kernels, as long as inputs and outputs are multiples of 128.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from outrider.kernels.gpu.compilation import ARCHITECTURES, Compilation
from outrider.kernels.gpu.tiling import LINES, SHARED, Tiling, plan
from outrider.kernels.gpu.weights import WeightFormat, Weights

TYPES = {
    WeightFormat.PLAIN: {"weights": "*bf16"},
    WeightFormat.FP8: {"weights": "*u8", "scales": "*fp32"},
    WeightFormat.INT4: {"weights": "*i16", "scales": "*fp16", "zeros": "*u8"},
}

SHARED_BY = {80: 166912, 90: SHARED, 100: SHARED}
"""Most bytes of shared memory of a program, by compute capability times ten: A100, H100 and H200,
B200."""


def compilations(
    kernel: Any,
    columns: int | None = None,
    constants: Mapping[str, Any] | None = None,
    multiples: tuple[str, ...] = (),
    name: str = "",
) -> tuple[Compilation, ...]:
    """Return one kernel with every format; `constants` are its own parameters."""

    def one(
        kind: WeightFormat, native: bool, cut: Tiling, rows: int, architectures: Sequence[int]
    ) -> Compilation:
        shape = {"FORMAT": kind.value, "COLUMNS": cut.columns, "BLOCK": cut.block, "EVEN": True}
        absent = {key: None for key in ("scales", "zeros") if key not in TYPES[kind]}
        emulated = " emulated" * (kind is WeightFormat.FP8 and not native)
        early = {"PDL": False} if "PDL" in kernel.arg_names else {}
        own = {"NATIVE": native, "PARTS": cut.programs(rows)[1]}
        return Compilation(
            kernel=kernel,
            name=f"{name}{kind.name.lower()}{emulated}, {rows} rows",
            types=TYPES[kind],
            constants={**absent, **shape, **own, **early, **(constants or {})},
            warps=cut.warps,
            stages=cut.stages,
            multiples=("inputs", "outputs", "share", *multiples),
            architectures=tuple(architectures),
        )

    return tuple(
        one(kind, native, cut, rows, architectures)
        for kind in WeightFormat
        for native in _natives(kind)
        for cut, architectures in _cuts(kind, native, columns).items()
        for rows in dict.fromkeys((int(LINES.value), cut.parts * int(LINES.value)))
    )


def _natives(kind: WeightFormat) -> Iterator[bool]:
    """Yield without and with conversion of e4m3 by the device, where that makes a difference."""
    yield False
    if kind is WeightFormat.FP8:
        yield True


def _cuts(kind: WeightFormat, native: bool, columns: int | None) -> dict[Tiling, list[int]]:
    """Return the cuts of a layer, with the architectures that have each."""
    values = torch.empty(0, dtype=torch.bfloat16)
    cuts: dict[Tiling, list[int]] = {}
    for one in _architectures(kind, native):
        cut = plan(Weights(kind, 4096, 4096, values), columns, shared=SHARED_BY[one])
        cuts.setdefault(cut, []).append(one)
    return cuts


def _architectures(kind: WeightFormat, native: bool) -> tuple[int, ...]:
    """Return those on which this is what a launch makes."""
    if kind is WeightFormat.FP8:
        return tuple(a for a in ARCHITECTURES if (a >= 89) == native)
    return ARCHITECTURES
