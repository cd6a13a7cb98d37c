"""Time of choosing rows, of each planner: `python -m bench.planning`.

Real planners over trees of 32 nodes; a step's plan and what is learnt of it. Prints microseconds of
the best of many short runs, planners in turns.
"""

import os
import sys
import time

import numpy as np

from bench.report import RESULTS, write_report
from outrider.contract.planning import TableEntry
from outrider.worker.speculation.bandit import Bandit
from outrider.worker.speculation.planner import Candidates, Goodput, Planner
from outrider.worker.speculation.static import Off, Static
from outrider.worker.speculation.switch_costs import SwitchCosts

NODES = 32
SEQUENCES = (1, 4, 16, 64)
STEPS, ROUNDS = 20, 200
MAX_ROWS = 16


def planners() -> dict[str, Planner]:
    """Return one of each."""
    return {
        "goodput": Goodput(100.0),
        "bandit": Bandit(100.0, 5, SwitchCosts()),
        "static": Static(100.0, (TableEntry(first=1, draft_tokens=3),)),
        "off": Off(100.0),
    }


def seconds_of_a_step(planner: Planner, sequences: int) -> float:
    """Return the mean seconds of planning and learning one step."""
    nodes, random = np.arange(NODES, dtype=np.int32), np.random.default_rng(0)
    reaches = -np.sort(-random.random((sequences, NODES), np.float32))
    trees = [Candidates(nodes, reach, nodes) for reach in reaches]
    costs = np.linspace(0.010, 0.030, MAX_ROWS * sequences + 1)
    began = time.perf_counter()
    for _ in range(STEPS):
        planner.plan(trees, costs, MAX_ROWS)
        planner.learn(2 * sequences, 0.012)
    return (time.perf_counter() - began) / STEPS


def main() -> int:
    """Measure, print and write `bench/results/planning.json`."""
    load, of_all = os.getloadavg(), planners()
    best = {name: dict.fromkeys(SEQUENCES, float("inf")) for name in of_all}
    for _ in range(ROUNDS):
        for sequences in SEQUENCES:
            for name, planner in of_all.items():
                took = seconds_of_a_step(planner, sequences)
                best[name][sequences] = min(best[name][sequences], took)
    print("µs a step", *(f"{sequences:>6}" for sequences in SEQUENCES), "sequences")
    for name, took in best.items():
        print(f"{name:9}", *(f"{1e6 * took[sequences]:6.1f}" for sequences in SEQUENCES))
    microseconds = {
        name: {str(sequences): 1e6 * seconds for sequences, seconds in took.items()}
        for name, took in best.items()
    }
    write_report(
        RESULTS / "planning.json",
        command="python -m bench.planning",
        results={"microseconds": microseconds},
        ratios={},
        load_average=load,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
