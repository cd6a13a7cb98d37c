"""Configurations to compile: parameter types and constants of a kernel.

Leaves compiling to `bench.compiled`, and on a device to Triton itself.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.kernels import gpu

ARCHITECTURES = (80, 90, 100)
"""Compute capabilities, times ten, that every kernel compiles for: A100, H100/H200, B200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One configuration of a kernel; pointers are taken to be aligned to 16 bytes."""

    kernel: Any
    """The `@triton.jit` function."""
    name: str
    """What tells it from the kernel's others: dtype, shape."""
    signature: Mapping[str, str]
    """Triton type of every parameter that is no constant, by name: `*bf16`, `i32`, `fp32`."""
    constants: Mapping[str, Any]
    """Value of every `tl.constexpr` parameter, by name; None for a pointer that is not given."""
    warps: int
    stages: int = 1
    multiples: tuple[str, ...] = ()
    """Integer parameters that are always multiples of 16 (and not in `do_not_specialize`)."""
    architectures: tuple[int, ...] = ARCHITECTURES


def registered() -> Iterator[tuple[str, Compilation]]:
    """Yield module name and compilation, over all modules of this package that list any."""
    for module in sorted(module.name for module in pkgutil.iter_modules(gpu.__path__)):
        found = importlib.import_module(f"{gpu.__name__}.{module}")
        for compilation in getattr(found, "COMPILATIONS", ()):
            yield module, compilation
