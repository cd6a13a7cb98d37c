"""Configurations that the linear kernels have in common, by format of the weights.

Shapes of layers are run-time parameters: Llama-3-8B and 70B at any tensor-parallel degree make the
same few kernels, as long as inputs and outputs are multiples of 128.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from outrider.kernels.gpu.compilation import ARCHITECTURES, Compilation
from outrider.kernels.gpu.tiling import SHARED, plan
from outrider.kernels.gpu.weights import WeightFormat, Weights

TYPES = {
    WeightFormat.PLAIN: {"weights": "*bf16"},
    WeightFormat.FP8: {"weights": "*u8", "scales": "*fp32"},
    WeightFormat.INT4: {"weights": "*i16", "scales": "*fp16", "zeros": "*u8"},
}


def compilations(
    kernel: Any,
    columns: int | None = None,
    constants: Mapping[str, Any] | None = None,
    multiples: tuple[str, ...] = (),
    name: str = "",
) -> tuple[Compilation, ...]:
    """Return one kernel with every format; `constants` are its own parameters."""

    def one(kind: WeightFormat, native: bool) -> Compilation:
        cut = plan(
            Weights(kind, 4096, 4096, torch.empty(0, dtype=torch.bfloat16)), columns, shared=SHARED
        )
        shape = {"FORMAT": kind.value, "COLUMNS": cut.columns, "BLOCK": cut.block, "EVEN": True}
        absent = {key: None for key in ("scales", "zeros") if key not in TYPES[kind]}
        emulated = " emulated" * (kind is WeightFormat.FP8 and not native)
        early = {"PDL": False} if "PDL" in kernel.arg_names else {}
        return Compilation(
            kernel=kernel,
            name=f"{name}{kind.name.lower()}{emulated}",
            types=TYPES[kind],
            constants={**absent, **shape, "NATIVE": native, **early, **(constants or {})},
            warps=cut.warps,
            stages=cut.stages,
            multiples=("inputs", "outputs", "share", *multiples),
            architectures=_architectures(kind, native),
        )

    return tuple(one(kind, native) for kind in WeightFormat for native in _natives(kind))


def _natives(kind: WeightFormat) -> Iterator[bool]:
    """Yield without and with conversion of e4m3 by the device, where that makes a difference."""
    yield False
    if kind is WeightFormat.FP8:
        yield True


def _architectures(kind: WeightFormat, native: bool) -> tuple[int, ...]:
    """Return those on which this is what a launch makes."""
    if kind is WeightFormat.FP8:
        return tuple(a for a in ARCHITECTURES if (a >= 89) == native)
    return ARCHITECTURES
