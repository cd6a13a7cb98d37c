"""Digest of a compiled kernel's source: its code without comments, its configuration.

Reads files only; compiling is `kernel_compiler`'s.
"""

import ast
import hashlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from outrider.kernels import gpu
from outrider.kernels.gpu.compilation import Compilation

FOLDER = Path(gpu.__path__[0])


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
