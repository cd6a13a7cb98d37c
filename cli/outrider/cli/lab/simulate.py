"""`outrider simulate`: starts the simulator as a process, and shows what it found.

The simulator runs the workers' schedulers, which this command line does not import.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from outrider.cli.terminal.progress import reporter
from outrider.cli.terminal.tables import figures, flat
from outrider.cli.workers.output import result_of
from outrider.contract.version import missing_extra

SIMULATOR = (sys.executable, "-P", "-m", "outrider.simulator")
MISSING = missing_extra("simulate")


async def simulate(file: Path, seed: int | None) -> dict[str, Any]:
    """Return what a simulation came to; raises `BadInput` for a file that cannot be used."""
    seeded = () if seed is None else ("--seed", str(seed))
    command = (*SIMULATOR, str(file), *seeded)
    return await result_of("the simulator", command, MISSING, reporter(), file.name)


def show(found: Mapping[str, Any]) -> None:
    """Print the summary as a table, then what the operator did."""
    console = Console()
    console.print(figures(lines(found["summary"])))
    for number, cell in enumerate(found["cells"]):
        for event in cell["events"]:
            console.print(
                f"cell {number} {_clock(event['second'])} {event['sentence']}",
                highlight=False, markup=False, soft_wrap=True,
            )  # fmt: skip


def lines(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a line for each figure; nested ones are named by their path."""
    return [(name, "-" if x is None else f"{x:,.4g}") for name, x in flat(summary)]


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
