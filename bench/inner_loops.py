"""Instructions per weight of the CPU's inner loops, from their machine code: a table.

python -m bench.inner_loops                         all instruction sets, one row and eight
python -m bench.inner_loops --isa i8mm --rows 4     the loops' assembly, of one tile

Compiles for each instruction set and runs nothing, so any machine can. Loops are not unrolled.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

from outrider.kernels.jit import isa
from outrider.kernels.jit.isa import AARCH64, NEEDED, X86, Isa
from outrider.kernels.jit.simd import BYTE, FLOAT, INT, LONG

BASE = {True: ("aarch64-unknown-linux-gnu", ""), False: ("x86_64-unknown-linux-gnu", "x86-64-v2")}
"""Triple and processor of aarch64, and of x86."""
LOOPS = [one for one in (*reversed(X86), *reversed(AARCH64)) if one is not Isa.AMX]
"""Instruction sets with loops of their own; AMX has AVX-512's for one row."""
ROWS = (1, 8)
FAR = 4096
"""Bytes from one row to the next."""


def _int8(builder: Any, rows: int, x: Any, w: Any) -> tuple[Any, Callable[[Any], None], int, int]:
    """Return the sums of a tile, what adds a step to them, and its outputs and inputs."""
    from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of
    from outrider.kernels.jit import avx2_tiles, dot_tiles, maddubs, tiles

    kind = kind_of(NumericPath.INT8)
    inputs = [builder.gep(x, [LONG(FAR * row)]) for row in range(rows)]
    if kind is NumericKind.INT8_AVX2:
        vectors = 4 if rows < 3 else 2
        cells = _cells(builder, rows, vectors, INT, maddubs.LANES)
        return (
            cells,
            lambda k: avx2_tiles._step(builder, [cells], inputs, [w], k),
            vectors * maddubs.LANES,
            avx2_tiles.STEP,
        )
    part = tiles.parts(rows)[0]
    element = INT if kind.activation.__name__ == "uint8" else FLOAT
    cells = _cells(builder, rows, len(part), element, tiles.LANES)
    together, add = dot_tiles.step_of(kind, rows)
    if element == FLOAT:
        inputs = [builder.bitcast(one, FLOAT.as_pointer()) for one in inputs]
    return (
        cells,
        lambda k: add(builder, kind, cells, inputs, w, part, k),
        len(part) * tiles.LANES,
        together,
    )


def _q4_k(builder: Any, rows: int, x: Any, w: Any) -> tuple[Any, Callable[[Any], None], int, int]:
    """Return the same of Q4_K, of which a step is a group of 32 inputs."""
    from outrider.kernels.cpu.grouped_packing import Q4_NESTED
    from outrider.kernels.cpu.numeric_kind import NumericPath, kind_of
    from outrider.kernels.jit import grouped_tiles, tiles

    kind = kind_of(NumericPath.INT4)
    part = tiles.parts(rows, sums=grouped_tiles.CELLS)[0]
    element = FLOAT if kind.group == 1 else BYTE
    size = 4 if element == FLOAT else 1
    products = grouped_tiles.GroupProducts(kind, Q4_NESTED)
    sums_of = INT if products.exact else FLOAT
    cells = _cells(builder, rows, len(part), sums_of, tiles.LANES)
    dots = _cells(builder, rows, len(part), FLOAT, tiles.LANES) if products.exact else []
    span = LONG(8)
    quants = builder.gep(w, [LONG(Q4_NESTED.header(8))])

    def add(k: Any) -> None:
        at = builder.mul(k, LONG(Q4_NESTED.group * size))
        values = [builder.gep(x, [builder.add(at, LONG(FAR * row))]) for row in range(rows)]
        number = [builder.add(k, LONG(FAR * row)) for row in range(rows)]
        sums = [
            builder.gep(builder.bitcast(x, FLOAT.as_pointer()), [LONG(FAR * n)])
            for n in range(rows)
        ]
        starts = [builder.gep(builder.bitcast(x, INT.as_pointer()), [n]) for n in number]
        step = builder.gep(quants, [builder.mul(k, LONG(Q4_NESTED.quant_bytes))])
        inputs = [builder.bitcast(value, element.as_pointer()) for value in values]
        span_at = grouped_tiles.SpanPlace(w, span, sums)
        place = grouped_tiles.GroupPlace(span_at, k, step, inputs, starts)
        products.add(builder, cells, place, part)
        if products.exact:
            products.add_dots(builder, dots, span_at, k, part)

    return [*cells, *dots], add, len(part) * tiles.LANES, Q4_NESTED.group


FORMATS = {"int8": _int8, "q4_k": _q4_k}


def _cells(builder: Any, rows: int, vectors: int, element: Any, lanes: int) -> list[list[Any]]:
    zero = ir.Constant(ir.VectorType(element, lanes), [0] * lanes)
    return [[cgutils.alloca_once_value(builder, zero) for _ in range(vectors)] for _ in range(rows)]


def assembly(own: Isa, name: str, rows: int) -> tuple[str, int]:
    """Return the assembly of a tile's loop, and the weights of one turn."""
    module = ir.Module()
    module.triple, processor = BASE[own in AARCH64]
    pointer = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer, LONG])
    made = ir.Function(module, kind, name)
    builder = ir.IRBuilder(made.append_basic_block("entry"))
    x, w, out, steps = made.args
    cells, add, outputs, inputs = FORMATS[name](builder, rows, x, w)
    with cgutils.for_range(builder, steps, intp=LONG) as loop:
        add(loop.index)
    every = [builder.load(cell) for row in cells for cell in row]
    for number, value in enumerate(every):
        to = builder.gep(out, [LONG(64 * number)])
        builder.store(value, builder.bitcast(to, value.type.as_pointer()), align=4)
    builder.ret_void()
    return _compiled(module, processor, own), outputs * inputs


def _compiled(module: ir.Module, processor: str, own: Isa) -> str:
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    parsed = llvmlite.binding.parse_assembly(str(module))
    target = llvmlite.binding.Target.from_triple(module.triple)
    features = ",".join(f"+{name}" for name in sorted(NEEDED[own]))
    machine = target.create_target_machine(cpu=processor, features=features, opt=3)
    options = llvmlite.binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = False
    passes = llvmlite.binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    return str(machine.emit_assembly(parsed))


def loop_of(text: str) -> list[str]:
    """Return the instructions of the loop: from its label to the jump back."""
    lines = [line.strip() for line in text.splitlines()]
    places = {line.split(":")[0]: at for at, line in enumerate(lines) if line.startswith(".L")}
    jumps = (
        (places[word], at)
        for at, line in enumerate(lines)
        for word in line.replace(",", " ").split()[1:]
        if places.get(word, at) < at
    )
    first, last = max(jumps, key=lambda jump: jump[1] - jump[0])
    return [one for one in lines[first + 1 : last + 1] if one and one[0] not in ".#/"]


def tiles_of(own: Isa, name: str, rows: int) -> Iterator[int]:
    """Yield the rows of each tile by which so many rows are computed."""
    from outrider.kernels.cpu import linear_avx2
    from outrider.kernels.jit import tiles

    most = tiles.TILE_ROWS
    if own is Isa.AVX2 and name == "int8":
        most = linear_avx2.TILE_ROWS
    cuts = -(-rows // most)
    for cut in range(cuts):
        here = rows // (cuts - cut)
        yield here
        rows -= here


def per_weight(own: Isa, name: str, rows: int) -> float:
    """Return instructions per weight of all tiles that compute so many rows."""
    found = 0.0
    for here in tiles_of(own, name, rows):
        text, weights = assembly(own, name, here)
        found += len(loop_of(text)) / weights
    return found


def _line(own: Isa) -> str:
    cells = [f"{per_weight(own, name, rows):.3f}" for name in FORMATS for rows in ROWS]
    return f"| `{own}` | {' | '.join(cells)} |"


def main() -> int:
    """Print the table, or assembly."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", type=Isa, choices=LOOPS, help="compile for this one alone")
    parser.add_argument("--rows", type=int, help="print the assembly of a tile of so many rows")
    options = parser.parse_args()
    if options.isa is None:
        return _table()
    isa.current = lambda: options.isa  # as on such a machine: `tiles` asks when it is imported
    isa.features = lambda: dict.fromkeys(NEEDED[options.isa], True)
    if options.rows is None:
        print(_line(options.isa))
    else:
        for name in FORMATS:
            print(f"{name}:", *loop_of(assembly(options.isa, name, options.rows)[0]), sep="\n")
    return 0


def _table() -> int:
    names = [f"{name}, {rows} row{'s' * (rows > 1)}" for name in FORMATS for rows in ROWS]
    print(f"| `OUTRIDER_ISA` | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for own in LOOPS:
        command = (sys.executable, "-m", "bench.inner_loops", "--isa", own)
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
