"""The instruction set that kernels are compiled for: the machine's best, or a lower one by name.

`OUTRIDER_ISA=avx2` makes a machine with AVX-512 do as one without, in all of the code that numba
compiles: so every inner loop is tested and measured wherever there is more. Leaves which loop suits
which format of weights to `outrider.kernels.cpu.numeric_kind`.
"""

import ctypes
import enum
import functools
import os
import platform
from collections.abc import Mapping
from pathlib import Path

import llvmlite.binding

from outrider.contract.settings import SettingsError
from outrider.contract.sysctl import sysctl

VARIABLE = "OUTRIDER_ISA"


class Isa(enum.StrEnum):
    """Instruction sets by which inner loops differ, each machine's from least to most."""

    SSE = "sse"
    AVX2 = "avx2"
    AVXVNNI = "avxvnni"
    AVX512 = "avx512"
    AMX = "amx"
    NEON = "neon"
    DOTPROD = "dotprod"
    I8MM = "i8mm"


_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"})
NEEDED: dict[Isa, frozenset[str]] = {
    Isa.SSE: frozenset(),
    Isa.AVX2: frozenset({"avx2", "fma"}),
    Isa.AVXVNNI: frozenset({"avx2", "fma", "avxvnni"}),
    Isa.AVX512: _AVX512,
    Isa.AMX: _AVX512 | {"amx-tile", "amx-int8"},
    Isa.NEON: frozenset(),
    Isa.DOTPROD: frozenset({"dotprod"}),
    Isa.I8MM: frozenset({"dotprod", "i8mm"}),
}
"""LLVM's names of the features that an instruction set is."""
X86 = (Isa.SSE, Isa.AVX2, Isa.AVXVNNI, Isa.AVX512, Isa.AMX)
AARCH64 = (Isa.NEON, Isa.DOTPROD, Isa.I8MM)
LEAST = (Isa.SSE, Isa.NEON)
"""Instruction sets that any machine has; their loops multiply floats."""
ABOVE: dict[Isa, tuple[str, ...]] = {
    Isa.SSE: ("avx", "fma", "f16c", "amx", "vaes", "vpclmulqdq", "xop"),
    Isa.AVX2: ("avx512", "avx10", "avxvnni", "avxifma", "avxneconvert", "amx"),
    Isa.AVXVNNI: ("avx512", "avx10", "amx"),
    Isa.AVX512: ("amx",),
    Isa.AMX: (),
    Isa.NEON: ("dotprod", "i8mm", "sve", "sme", "bf16"),
    Isa.DOTPROD: ("i8mm", "sve", "sme", "bf16"),
    Isa.I8MM: ("sve", "sme"),
}
"""Beginnings of the names of features that go beyond an instruction set.

SVE is beyond all of aarch64's: LLVM adds the bytes of a 128-bit vector up wrongly by instructions
for whole SVE vectors, where those are longer (`sunpkhi` after `sdot`; Neoverse V1 has 256 bits).
"""
LINUX_NAMES = {"asimddp": "dotprod", "i8mm": "i8mm"}
"""Flags of /proc/cpuinfo on aarch64, some of which LLVM does not read."""
MAC_NAMES = {"hw.optional.arm.FEAT_DotProd": "dotprod", "hw.optional.arm.FEAT_I8MM": "i8mm"}
"""Names of processor features in macOS's sysctl, none of which LLVM reads."""
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18
"""Linux's numbers of the call that permits a process AMX's registers (arch/x86/xstate.rst)."""


def available(features: Mapping[str, bool], machine: str) -> tuple[Isa, ...]:
    """Return the instruction sets that a machine with LLVM `features` has, best last."""
    ladder = AARCH64 if machine in ("aarch64", "arm64") else X86
    return tuple(isa for isa in ladder if all(features.get(need) for need in NEEDED[isa]))


def choose(name: str | None, has: tuple[Isa, ...]) -> Isa:
    """Return the instruction set called `name`, or the best; raises `SettingsError`."""
    if name is None:
        return has[-1]
    if name not in has:
        raise SettingsError(f"{VARIABLE}: {name!r} is not allowed; it must be {' or '.join(has)}")
    return Isa(name)


def without(features: Mapping[str, bool], isa: Isa) -> dict[str, bool]:
    """Return `features` with all that goes beyond `isa` switched off."""
    left = {name: on and not name.startswith(ABOVE[isa]) for name, on in features.items()}
    return left | {"sve": False} if isa in AARCH64 else left  # which a processor's name implies


@functools.cache
def host_features() -> dict[str, bool]:
    """Return LLVM's features of this machine, without AMX where the kernel does not permit it."""
    features = dict(llvmlite.binding.get_host_cpu_features())
    if features.get("amx-tile") and not _permits_amx():
        features |= {name: False for name in features if name.startswith("amx")}
    if platform.machine() == "aarch64":
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
        features |= {name: True for flag, name in LINUX_NAMES.items() if flag in flags}
    said = sysctl(*MAC_NAMES)
    return features | {MAC_NAMES[flag]: True for flag, value in said.items() if value == "1"}


def _permits_amx() -> bool:
    """Ask Linux for AMX's registers, for all threads of this process."""
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0)


@functools.cache
def current() -> Isa:
    """Return this process's instruction set; raises `SettingsError` for one it cannot have."""
    return choose(os.environ.get(VARIABLE), available(host_features(), platform.machine()))


@functools.cache
def features() -> dict[str, bool]:
    """Return the features that kernels may use: the machine's, unless less is asked for."""
    is_lower = VARIABLE in os.environ or current() in AARCH64
    return without(host_features(), current()) if is_lower else host_features()


def feature_string() -> str:
    """Return `features` as LLVM reads them."""
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features().items()))
