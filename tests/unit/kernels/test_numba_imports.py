"""What reaches into numba or LLVM is in `outrider.kernels.jit` and nowhere else that runs."""

import ast
from collections.abc import Iterator
from pathlib import Path

from outrider.kernels import jit

ROOT = Path(__file__).parents[3]
FOLDERS = ("operator", "worker", "kernels", "protos", "cli", "bench", "tools")
COUNTS = ROOT / "bench" / "inner_loops.py"
"""Has LLVM compile the package's loops for other machines, and runs none."""
PUBLIC = {"numba.njit", "numba.types", "numba.extending.overload"}
"""Names that modules elsewhere may import."""


def imported(source: str) -> Iterator[str]:
    """Yield every name that a module imports, of whatever it imports it from."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def internals(source: str) -> set[str]:
    """Return the names of numba and llvmlite that only the package may import."""
    return {
        name for name in imported(source) if name.split(".")[0] in ("numba", "llvmlite")
    } - PUBLIC


def test_only_one_package_reaches_into_numba_and_llvm() -> None:
    package = Path(jit.__path__[0])
    found = {
        str(file.relative_to(ROOT)): names
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        if not file.is_relative_to(package) and file != COUNTS
        if (names := internals(file.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_internals_are_found_however_they_are_imported() -> None:
    source = "import llvmlite.binding\nfrom numba import njit, core\nfrom numba.core import types"
    assert internals(source) == {"llvmlite.binding", "numba.core", "numba.core.types"}
