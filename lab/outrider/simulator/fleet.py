"""All cells of a simulation, each in a process of its own where there are several processors."""

import gc
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from outrider.contract import processors
from outrider.simulator.description import Simulation
from outrider.simulator.figures import CellFigures, cell_figures
from outrider.simulator.run import run_cell

POLL_SECONDS = 0.25
GC_THRESHOLD = 100_000
"""Objects between two searches for cycles: a cell makes many, and few cycles."""

_told: Any = None
"""In a process of the pool: share that each cell has done."""


def run_cells(
    simulation: Simulation,
    folder: Path,
    progress: Callable[[float], None],
    processes: int | None = None,
) -> list[CellFigures]:
    """Run every cell and return their figures in order; raises `SpecError`.

    `progress` is told the share that is done. What comes out does not depend on `processes`.
    """
    count = min(simulation.cells, processes or processors.count())
    if count == 1:
        return [_alone(simulation, folder, cell, progress) for cell in range(simulation.cells)]
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", simulation.cells)
    with ProcessPoolExecutor(count, context, _begin, (shares,)) as pool:
        futures = [pool.submit(_in_process, simulation, folder, n) for n in range(simulation.cells)]
        left = set(futures)
        while left:
            _, left = wait(left, POLL_SECONDS)
            progress(sum(shares[:]) / simulation.cells)
        return [future.result() for future in futures]


def _alone(
    simulation: Simulation, folder: Path, cell: int, progress: Callable[[float], None]
) -> CellFigures:
    gc.set_threshold(GC_THRESHOLD)
    cells = simulation.cells
    return cell_figures(
        run_cell(simulation, folder, cell, lambda share: progress((cell + share) / cells))
    )


def _begin(shares: Any) -> None:
    global _told
    _told = shares
    gc.set_threshold(GC_THRESHOLD)


def _in_process(simulation: Simulation, folder: Path, cell: int) -> CellFigures:
    def tell(share: float) -> None:
        _told[cell] = share

    return cell_figures(run_cell(simulation, folder, cell, tell))
