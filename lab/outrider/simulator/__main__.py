"""`python -m outrider.simulator FILE`: what `outrider simulate` starts.

Prints progress as JSON lines and one JSON object at the end, as the worker's `profile` does.
"""

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

try:
    from outrider.operator.spec.document import SpecError
    from outrider.simulator.description import read_simulation
    from outrider.simulator.figures import document
    from outrider.simulator.fleet import run_cells
    from outrider.worker.host.process import exit_with_parent
except ImportError as error:  # the command line can be installed without operator and worker
    print(json.dumps({"missing": str(error)}), flush=True)
    sys.exit(1)

PARTS = 1000
"""Parts of the whole in which progress is told."""


def main() -> int:
    """Run the simulation of a file; status 2 for one that cannot be used."""
    options = parse()
    exit_with_parent(options.parent_fd)
    logging.basicConfig(level=logging.ERROR)
    try:
        simulation = read_simulation(options.file)
        if options.seed is not None:
            simulation = simulation.model_copy(update={"seed": options.seed})
        cells = run_cells(simulation, options.file.absolute().parent, tell)
    except SpecError as error:
        print_json(error=str(error))
        return 2
    print_json(**document(simulation, cells))
    return 0


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--parent-fd", type=int)
    return parser.parse_args()


def tell(share: float) -> None:
    """Print the share that is done."""
    print_json(stage="simulating", done=round(PARTS * share), total=PARTS)


def print_json(**fields: Any) -> None:
    """Print one JSON object on a line of stdout."""
    print(json.dumps(fields, allow_nan=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
