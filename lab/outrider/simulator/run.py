"""One run of a cell, from its beginning to the end of virtual time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.simulator.cell import Cell
from outrider.simulator.clients import Clients
from outrider.simulator.control_loop import SimulatedControlLoop
from outrider.simulator.description import Simulation
from outrider.simulator.series import Recorder
from outrider.simulator.service import control_of, policy_of

REPORTS = 200
"""Times that progress is told."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """A cell that has been run."""

    simulation: Simulation
    cell: Cell
    clients: Clients
    control_loop: SimulatedControlLoop
    recorder: Recorder
    wall_seconds: float


def run_cell(
    simulation: Simulation,
    folder: Path,
    number: int = 0,
    progress: Callable[[float], None] = lambda share: None,
    heard: Callable[[Any], None] = lambda message: None,
) -> CellRun:
    """Run cell `number`; `progress` is told the share that is done. Raises `SpecError`.

    `heard` is told all that targets send to their clients.
    """
    began = time.monotonic()
    policy = policy_of(simulation)
    clients = Clients(simulation, folder, number)

    def hear(message: Any) -> None:
        heard(message)
        clients.receive(message)

    cell = Cell(simulation, policy, folder, hear, number)
    control_loop = SimulatedControlLoop(cell, control_of(simulation), policy)
    recorder = Recorder(cell, clients, control_loop, simulation.seconds)
    control_loop.begin()
    recorder.begin()
    clients.begin(cell)
    for part in range(1, REPORTS + 1):
        cell.clock.run(simulation.seconds * part / REPORTS)
        progress(part / REPORTS)
    return CellRun(simulation, cell, clients, control_loop, recorder, time.monotonic() - began)
