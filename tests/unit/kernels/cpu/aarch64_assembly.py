"""Assembly of a tile's inner step on aarch64, for `test_aarch64`: compiled here, run nowhere.

python aarch64_assembly.py ISA FEATURES: int8's step, then int4's, of four rows.
"""

import sys
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

from outrider.kernels.jit import isa
from outrider.kernels.jit.isa import Isa

own = Isa(sys.argv[1])
isa.current = lambda: own  # as on such a machine: `tiles` asks when it is imported

from outrider.kernels.cpu.grouped_packing import Q8_0  # noqa: E402
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of  # noqa: E402
from outrider.kernels.jit import dot_tiles, grouped_tiles  # noqa: E402
from outrider.kernels.jit.simd import BYTE, FLOAT, INT, LONG  # noqa: E402
from outrider.kernels.jit.tiles import finish, parts  # noqa: E402

ROWS = 4


def function(module: ir.Module, name: str) -> tuple[ir.IRBuilder, list[Any]]:
    """Begin a function of pointers to bytes and one number."""
    pointer = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer] * 6 + [LONG])
    made = ir.Function(module, kind, name)
    return ir.IRBuilder(made.append_basic_block("entry")), list(made.args)


def step_of_int8(module: ir.Module) -> None:
    """Sum all groups of four rows and store them."""
    builder, (x, w, out, scales, row_scales, offsets, groups) = function(module, "int8")
    kind, part = kind_of(NumericPath.INT8), parts(ROWS)[0]
    cells = dot_tiles._start(builder, kind, ROWS, part, builder.bitcast(offsets, LONG.as_pointer()))
    rows = rows_of(builder, kind, x)
    with cgutils.for_range(builder, groups, intp=LONG) as loop:
        dot_tiles._step(builder, kind, cells, rows, w, part, loop.index)
    write(builder, cells, out, scales, row_scales)


def step_of_int4(module: ir.Module) -> None:
    """Sum all groups of four rows, of 8-bit quants with a zero of 128, and store them."""
    builder, (x, w, out, scales, row_scales, sums, groups) = function(module, "int4")
    kind, part = kind_of(NumericPath.INT4), parts(ROWS)[0]
    products = grouped_tiles.GroupProducts(kind, Q8_0)
    cells = grouped_tiles._zeros(builder, ROWS, part)
    rows = rows_of(builder, kind, x)
    of_group = [builder.bitcast(sums, FLOAT.as_pointer())] * ROWS
    with cgutils.for_range(builder, groups, intp=LONG) as loop:
        group = builder.gep(w, [builder.mul(loop.index, LONG(Q8_0.span_bytes(1)))])
        quants = builder.gep(group, [LONG(Q8_0.header(1))])
        starts = [builder.bitcast(sums, INT.as_pointer())] * ROWS
        at = grouped_tiles.GroupPlace(group, LONG(0), LONG(1), quants, rows, of_group, starts)
        products.add(builder, cells, at, part)
    write(builder, cells, out, scales, row_scales)


def rows_of(builder: Any, kind: NumericKind, x: Any) -> list[Any]:
    """Return pointers to the rows' activations."""
    element = FLOAT if kind.group == 1 else BYTE
    first = builder.bitcast(x, element.as_pointer())
    return [builder.gep(first, [LONG(4096 * row)]) for row in range(ROWS)]


def write(builder: Any, cells: Any, out: Any, scales: Any, row_scales: Any) -> None:
    """Store every row."""
    scale = builder.load(builder.bitcast(row_scales, FLOAT.as_pointer()))
    scales = builder.bitcast(scales, FLOAT.as_pointer())
    for number, row in enumerate(cells):
        to = builder.gep(builder.bitcast(out, FLOAT.as_pointer()), [LONG(4096 * number)])
        finish(builder, row, scale, scales, to)
    builder.ret_void()


def main() -> None:
    """Print the assembly of both."""
    module = ir.Module()
    module.triple = "aarch64-unknown-linux-gnu"
    step_of_int8(module)
    step_of_int4(module)
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    parsed = llvmlite.binding.parse_assembly(str(module))
    target = llvmlite.binding.Target.from_triple(module.triple)
    machine = target.create_target_machine(features=sys.argv[2], opt=3)
    options = llvmlite.binding.create_pipeline_tuning_options(speed_level=3)
    passes = llvmlite.binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    print(machine.emit_assembly(parsed))


if __name__ == "__main__":
    main()
