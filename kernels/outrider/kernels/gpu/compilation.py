"""Configurations to compile: parameter types and constants of a kernel.

Leaves compiling to `bench.compiled`, and on a device to Triton itself.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from triton.runtime.jit import JITFunction

from outrider.kernels import gpu

ARCHITECTURES = (80, 90, 100)
"""Compute capabilities, times ten, that every kernel compiles for: A100, H100/H200, B200."""


TYPES = {
    name: kind
    for kind, names in {
        "*bf16": "k logits out parts q residual update v weight weights x",
        "*fp32": "log_min_p logprobs scale scales score statistics sums survey table temperature "
        "worth",
        "*i32": "ancestors arrivals calls choice counts depth depths destinations equals groups "
        "header leaves masks of parent position positions prefix record sampled_at sequence slot "
        "slots sources tables token token_ids tokens word",
        "*i64": "addresses before cuts cuts_k cuts_p found seed tallies",
        "*u8": "allowed zeros",
        "fp32": "epsilon log_share",
    }.items()
    for name in names.split()
}
"""Triton types of parameters by their names, which mean the same in all kernels; others: `i32`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One configuration of a kernel; pointers are taken to be aligned to 16 bytes."""

    kernel: Any
    """The `@triton.jit` function."""
    name: str
    """What tells it from the kernel's others: dtype, shape."""
    constants: Mapping[str, Any]
    """Value of every `tl.constexpr` parameter, by name; None for a pointer that is not given; False
    for PDL, which is True where the device has dependent launches."""
    warps: int
    types: Mapping[str, str] = field(default_factory=dict)
    """Triton types of parameters that have another one than `TYPES` says."""
    stages: int = 1
    multiples: tuple[str, ...] = ()
    """Integer parameters that are always multiples of 16 (and not in `do_not_specialize`)."""
    architectures: tuple[int, ...] = ARCHITECTURES

    @property
    def signature(self) -> dict[str, str]:
        """Triton type of every parameter that is no constant, by name: `*bf16`, `i32`, `fp32`."""
        types = {**TYPES, **self.types}
        names = (name for name in self.kernel.arg_names if name not in self.constants)
        return {name: types.get(name, "i32") for name in names}


def registered() -> Iterator[tuple[str, Compilation]]:
    """Yield module name and compilation, over all modules of this package that list any."""
    for module in _modules():
        for compilation in getattr(module, "COMPILATIONS", ()):
            yield module.__name__.rpartition(".")[2], compilation


def read_cache_keys() -> list[str]:
    """Read the compile cache's key of every kernel of this package, and return them, in one order.

    The key that triton 3.6 gives to a kernel depends on which others' keys were read before, so
    that a worker would not find what another process has compiled. Importing this package reads
    them all, in the order of their names. Triton 3.9 needs no order.
    """
    found: dict[str, JITFunction] = {}
    for module in _modules():
        kernels = (value for value in vars(module).values() if isinstance(value, JITFunction))
        found |= {f"{kernel.__module__}.{kernel.__name__}": kernel for kernel in kernels}
    return [found[name].cache_key for name in sorted(found)]


def _modules() -> Iterator[ModuleType]:
    for name in sorted(module.name for module in pkgutil.iter_modules(gpu.__path__)):
        yield importlib.import_module(f"{gpu.__name__}.{name}")
