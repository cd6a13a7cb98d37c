"""What a pass costs by its rows, by instruction set: `python -m bench.cost_curve`.

Each side is a process of its own with the demo's target and draft (or one `--file`),
and all sides take turns, one cell at a time, so that a slow minute slows them alike. A cell is the
least time of its turns: other work on the machine only ever adds. A side may be another checkout:
`avx512@/path/to/checkout`.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.contract.settings import WorkerSettings
    from outrider.worker.checkpoints.prepared import PreparedModel

ROOT = Path(__file__).parent.parent
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROLES = ("target", "draft")
LONGEST, CONTEXT = 1024, 200
TURN_SECONDS = 0.05
"""Time for which a cell is repeated in one turn, once at least."""

Cell = tuple[str, int]


@dataclass(slots=True)
class Side:
    """One process that times passes on demand, and the least milliseconds it has found."""

    name: str
    child: subprocess.Popen[str]
    best: dict[Cell, float] = field(default_factory=dict)

    @classmethod
    def start(cls, name: str, options: argparse.Namespace) -> "Side":
        """Start the process of `isa`, or of `isa@checkout`."""
        isa, _, checkout = name.partition("@")
        root = Path(checkout or ROOT).absolute()
        folders = ("operator", "worker", "kernels", "protos", "cli", "lab", ".")
        path = os.pathsep.join(str(root / folder) for folder in folders)
        given = {"OUTRIDER_ISA": isa, "PYTHONPATH": path}
        command = [sys.executable, "-P", __file__, "--child", *sys.argv[1:]]
        child = subprocess.Popen(
            command, env=os.environ | given, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        return cls(name, child)

    def turn(self, cell: Cell) -> None:
        """Time one cell."""
        assert self.child.stdin
        assert self.child.stdout
        print(*cell, file=self.child.stdin, flush=True)
        milliseconds = float(self.child.stdout.readline())
        self.best[cell] = min(milliseconds, self.best.get(cell, milliseconds))

    def close(self) -> None:
        """End the process."""
        assert self.child.stdin
        self.child.stdin.close()
        self.child.wait()


def main() -> None:
    """Take turns and print both curves."""
    options = parse()
    if options.file is not None:
        options.roles = ["target"]
    if options.child:
        serve(options)
        return
    sides = [Side.start(name, options) for name in options.sides or here()]
    cells = [(role, rows) for role in options.roles for rows in options.rows]
    load = os.getloadavg()
    for cell in cells:
        for side in sides:
            side.turn(cell)  # compiles
            del side.best[cell]
    for _ in range(options.rounds):
        for cell in cells:
            for side in sides:
                side.turn(cell)
    for side in sides:
        side.close()
    for role in options.roles:
        show(role, sides, options)
    if options.out is not None:
        report(sides, options, load)


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost_curve", description=__doc__)
    parser.add_argument("--sides", nargs="+", help="left out: every instruction set of the machine")
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=list(ROLES))
    parser.add_argument("--file", type=Path, help="a GGUF file, in place of the demo")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="a report; left out: tables alone")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def here() -> list[str]:
    """Return the instruction sets of this machine whose inner loops differ."""
    import platform

    from outrider.kernels.jit import isa

    every = isa.available(isa.host_features(), platform.machine())
    return [one for one in every if one not in isa.LEAST]


def show(role: str, sides: list[Side], options: argparse.Namespace) -> None:
    """Print a line for each row count: milliseconds, what rows cost over one, and rows a second."""
    print(f"\n{role}, {options.dtype}, threads: {options.threads}; ms (over one row; rows/s)")
    print(f"{'rows':>5}", *(f"{side.name[:28]:>28}" for side in sides))
    for rows in options.rows:
        cells = []
        for side in sides:
            ms, one = side.best[role, rows], side.best[role, options.rows[0]]
            cells.append(f"{ms:>11.2f} {f'({ms / one:.2f}x; {1e3 * rows / ms:.0f}/s)':>16}")
        print(f"{rows:>5}", *cells)


def report(sides: list[Side], options: argparse.Namespace, load: tuple[float, ...]) -> None:
    """Write all cells, and what rows cost over one."""
    from bench.record.report import write_run

    write_run(
        options.out,
        "cost_curve",
        {
            "dtype": options.dtype,
            "threads": options.threads,
            "milliseconds": {
                side.name: {f"{role} {rows}": ms for (role, rows), ms in side.best.items()}
                for side in sides
            },
        },
        {
            f"{side.name} {role} {rows} over {options.rows[0]}": ms
            / side.best[role, options.rows[0]]
            for side in sides
            for (role, rows), ms in side.best.items()
        },
        load,
    )


def serve(options: argparse.Namespace) -> None:
    """Answer each line `role rows` with the least milliseconds of a few passes."""
    from outrider.worker.checkpoints.load import CheckpointTensors
    from outrider.worker.costs.step_timing import borrowed, chain_rows
    from outrider.worker.kv.block_pool import blocks_for
    from outrider.worker.kv.kv_cache import HostKVCache
    from outrider.worker.model import llama

    models = {}
    for role, model in prepared(options.file, options.threads).items():
        config, weights = model.config(), CheckpointTensors(model)
        kv_cache = HostKVCache(config.kv_shape, blocks_for(LONGEST), LONGEST)
        path = vars(llama)["NumericPath"](options.dtype)  # older checkouts have it elsewhere
        pass_options = llama.PassOptions(options.threads)
        models[role] = llama.Llama(config, weights, path, kv_cache, max(options.rows), pass_options)
    for line in sys.stdin:
        role, rows = line.split()
        model = models[role]
        with borrowed(model.kv_cache) as block_table:
            made = chain_rows(int(rows), CONTEXT, block_table, model.config.vocab)
            times, end = [], time.perf_counter() + TURN_SECONDS
            clock = time.thread_time if options.threads == 1 else time.perf_counter
            while not times or time.perf_counter() < end:
                start = clock()
                model.forward(made)
                times.append(1e3 * (clock() - start))
        print(min(times), flush=True)


def prepared(file: Path | None, threads: int) -> "dict[str, PreparedModel]":
    """Return the demo's models by role, or a file as target."""
    if file is not None:
        from outrider.contract.files import user_cache
        from outrider.contract.settings import ModelSettings
        from outrider.worker.checkpoints.fingerprint import ignore_progress
        from outrider.worker.checkpoints.prepare import prepare

        settings = ModelSettings(uri=f"file://{file.absolute()}")
        return {"target": prepare(settings, user_cache(), ignore_progress)}
    from outrider.worker.launch.prepare import prepare_models

    both = prepare_models(colocated(threads))
    assert both.colocated is not None
    return {"target": both.own, "draft": both.colocated}


def colocated(threads: int) -> "WorkerSettings":
    """Return settings of the demo's target with its serial draft always on."""
    from outrider.cli.service.file import read_service
    from outrider.contract.settings import Role
    from outrider.operator.plan import PlanOptions, plan
    from outrider.operator.spec import Placement, SpeculationMode

    service = read_service(ROOT / "examples" / "smollm2.yaml")
    assert service.spec.draft is not None
    draft = service.spec.draft.model_copy(update={"placement": Placement.COLOCATED})
    speculation = service.spec.speculation.model_copy(update={"mode": SpeculationMode.STATIC})
    spec = service.spec.model_copy(update={"draft": draft, "speculation": speculation})
    made = plan(service.model_copy(update={"spec": spec}), PlanOptions(threads=threads))
    (target,) = made.of(Role.TARGET)
    return target.settings


if __name__ == "__main__":
    main()
