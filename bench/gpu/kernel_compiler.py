"""A kernel compiled for a GPU that is not here, and the resources of its machine code.

Leaves what to compile to `outrider.kernels.gpu`; works with triton 3.4 and later.
"""

import ast
import hashlib
import inspect
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from outrider.kernels import gpu
from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.dependent_launch import CAPABILITY

FOLDER = Path(gpu.__path__[0])
ALIGNED = [["tt.divisibility", 16]]
MATRIX = {"wgmma": r"wgmma\.mma_async", "tcgen05": r"tcgen05\.mma", "mma.sync": r"mma\.sync"}
"""Matrix instructions by how they are spelled in PTX."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Resources of one compiled kernel."""

    registers: int
    """Registers of a thread."""
    stack: int
    """Bytes of a thread that do not fit its registers: spills, or arrays indexed at run time."""
    shared: int
    """Bytes of shared memory of a block."""
    matrix: str
    """The matrix instruction that it uses, or none."""
    stores: int | None
    """Stores to shared memory in its loops of matrix products; None: it has no such loop."""
    instructions: int | None
    """Instructions of the longest of those loops; None: it has none."""


def build(compilation: Compilation, architecture: int) -> Machine:
    """Compile afresh; raises what Triton raises where it cannot."""
    if triton.knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET is set: nothing can be compiled in this process")
    target = GPUTarget("cuda", architecture, 32)
    options = {"num_warps": compilation.warps, "num_stages": compilation.stages}
    with triton.knobs.cache.scope(), tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        made: Any = triton.compile(
            source(on(compilation, architecture)), target=target, options=options
        )
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(made.asm["cubin"])
        registers, stack = usage(cubin)
        loops = [*matrix_loops(cubin)]
        stores = sum(name.startswith("STS") for loop in loops for name in loop) if loops else None
        longest = max(map(len, loops), default=None)
    if on(compilation, architecture).constants.get("PDL") and not waits_first(str(made.asm["ptx"])):
        raise RuntimeError(
            f"{compilation.name}: touches memory before the kernels before have ended"
        )
    shared, unit = int(made.metadata.shared), matrix(str(made.asm["ptx"]))
    return Machine(registers, stack, shared, unit, stores, longest)


def on(compilation: Compilation, architecture: int) -> Compilation:
    """Return the configuration of launches on a device, which are dependent where it has such."""
    if "PDL" not in compilation.constants:
        return compilation
    return replace(
        compilation, constants={**compilation.constants, "PDL": architecture >= CAPABILITY}
    )


def source(compilation: Compilation) -> Any:
    """The kernel specialised as a launch would: pointers and `multiples` divisible by 16."""
    names: list[str] = compilation.kernel.arg_names
    given = {*compilation.signature, *compilation.constants}
    if given != set(names):
        raise ValueError(f"{compilation.name}: wrong parameters {sorted(given ^ set(names))}")
    types = {name: compilation.signature.get(name, "constexpr") for name in names}
    divisible = {n for n, kind in types.items() if kind.startswith("*")} | {*compilation.multiples}
    attributes = {(i,): ALIGNED for i, name in enumerate(names) if name in divisible}
    return ASTSource(compilation.kernel, types, dict(compilation.constants), attributes)


def waits_first(ptx: str) -> bool:
    """True if a dependent launch waits before its first access to the device's memory."""
    wait = ptx.find("griddepcontrol.wait")
    access = re.search(r"\b(?:ld|st|red|atom)\.global|\bcp\.async", ptx)
    return wait >= 0 and (access is None or wait < access.start())


def usage(cubin: Path) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack and local memory."""
    text = dump(cubin, "-res-usage")
    found = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", text)
    if found is None:
        raise RuntimeError(f"cuobjdump names no registers: {text!r}")
    registers, stack, local = map(int, found.groups())
    return registers, stack + local


def matrix_loops(cubin: Path) -> Iterator[list[str]]:
    """Yield the instructions' names of every loop that multiplies matrices."""
    code = re.findall(r"/\*([0-9a-f]{4,})\*/ +(?:@\S+ +)?([A-Z]\S*)(.*?);", dump(cubin, "-sass"))
    for end, name, operands in code:
        target = re.search(r"0x([0-9a-f]+) *$", operands) if name.startswith("BRA") else None
        if target is not None:
            within = range(int(target[1], 16), int(end, 16))
            loop = [name for at, name, _ in code if int(at, 16) in within]
            if any("MMA" in name for name in loop):
                yield loop


def dump(cubin: Path, what: str) -> str:
    tool = triton.knobs.nvidia.cuobjdump.path
    return subprocess.run([tool, what, cubin], check=True, capture_output=True, text=True).stdout


def matrix(ptx: str) -> str:
    """The strongest matrix instruction in `ptx`."""
    return next((name for name, spelling in MATRIX.items() if re.search(spelling, ptx)), "none")


def digest(compilation: Compilation, architecture: int) -> str:
    """Changes with the code of the kernel and of what it imports, and with the configuration."""
    function = getattr(compilation.kernel, "fn", compilation.kernel)
    file = Path(inspect.getsourcefile(function) or "")
    parts = [
        *(part for module in reached(file.stem) for part in compiled_parts(module)),
        str(function.__name__),
        str(sorted(compilation.signature.items())),
        str(sorted((name, str(value)) for name, value in compilation.constants.items())),
        f"{compilation.warps} {compilation.stages} {sorted(compilation.multiples)} {architecture}",
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def reached(module: str) -> tuple[str, ...]:
    """`module` of the package and all that it imports of the package, in order of names."""
    found, ahead = set[str](), [module]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += imports(name)
    return tuple(sorted(found))


def imports(module: str) -> Iterator[str]:
    """Yield modules of the package that `module` imports."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{gpu.__name__}."):
            yield (node.module or "").removeprefix(f"{gpu.__name__}.")


@cache
def compiled_parts(module: str) -> tuple[str, ...]:
    """Syntax of what Triton compiles in a module, and of the constants that it may see."""
    return tuple(
        ast.dump(undocumented(node))
        for node in tree(module).body
        if compiled(node) or constant(node)
    )


def tree(module: str) -> ast.Module:
    """Syntax of a module of the package."""
    return ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))


def compiled(node: ast.stmt) -> bool:
    """True if this is a `@triton.jit` function."""
    return isinstance(node, ast.FunctionDef) and any(
        "triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def constant(node: ast.stmt) -> bool:
    """True if this is a global that kernels can read: `NAME: tl.constexpr = ...`."""
    return isinstance(node, ast.AnnAssign) and "constexpr" in ast.unparse(node.annotation)


def undocumented(node: ast.stmt) -> ast.stmt:
    """The function without its docstring."""
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
        node.body = node.body[1:]
    return node
