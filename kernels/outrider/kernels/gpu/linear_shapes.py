"""Configurations that the linear kernels have in common, by format of the weights.

Shapes of layers are run-time parameters: Llama-3-8B and 70B at any tensor-parallel degree make the
same few kernels, as long as inputs and outputs are multiples of 128.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.kernels.gpu.compilation import ARCHITECTURES, Compilation
from outrider.kernels.gpu.tiling import plan
from outrider.kernels.gpu.weights import WeightFormat, Weights

POINTERS = {
    WeightFormat.PLAIN: {"weights": "*bf16"},
    WeightFormat.FP8: {"weights": "*u8", "scales": "*fp32"},
    WeightFormat.INT4: {"weights": "*i16", "scales": "*fp16", "zeros": "*u8"},
}
SIZES = ("rows", "inputs", "outputs", "splits", "share")


def compilations(
    kernel: Any,
    others: Mapping[str, str],
    columns: int | None = None,
    constants: Mapping[str, Any] | None = None,
    multiples: tuple[str, ...] = (),
    name: str = "",
) -> tuple[Compilation, ...]:
    """One kernel with every format; `others` and `constants` are its own parameters."""
    return tuple(
        _compilation(kernel, kind, native, others, columns, constants or {}, multiples, name)
        for kind, native in ((f, n) for f in WeightFormat for n in _natives(f))
    )


def _natives(kind: WeightFormat) -> Iterator[bool]:
    """Without and with conversion of e4m3 by the device, where that makes a difference."""
    yield False
    if kind is WeightFormat.FP8:
        yield True


def _compilation(
    kernel: Any,
    kind: WeightFormat,
    native: bool,
    others: Mapping[str, str],
    columns: int | None,
    constants: Mapping[str, Any],
    multiples: tuple[str, ...],
    name: str,
) -> Compilation:
    cut = plan(Weights(kind, 4096, 4096, None), columns)  # type: ignore[arg-type]
    pointers = POINTERS[kind]
    signature = {"x": "*bf16"} | pointers | {"sums": "*fp32", "arrivals": "*i32"}
    shape = {"FORMAT": kind.value, "COLUMNS": cut.columns, "BLOCK": cut.block}
    absent: dict[str, Any] = {key: None for key in ("scales", "zeros") if key not in pointers}
    return Compilation(
        kernel=kernel,
        name=f"{name}{kind.name.lower()}{' emulated' * (kind is WeightFormat.FP8 and not native)}",
        signature=signature | dict.fromkeys(SIZES, "i32") | dict(others),
        constants=absent | shape | {"EVEN": True, "NATIVE": native} | dict(constants),
        warps=cut.warps,
        stages=cut.stages,
        multiples=("inputs", "outputs", "share", *multiples),
        architectures=_architectures(kind, native),
    )


def _architectures(kind: WeightFormat, native: bool) -> tuple[int, ...]:
    """Those on which this is what a launch makes."""
    if kind is WeightFormat.FP8:
        return tuple(a for a in ARCHITECTURES if (a >= 89) == native)
    return ARCHITECTURES
