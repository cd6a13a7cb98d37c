"""The control loop over simulated days: `python -m bench.control_loop`.

First the plants of `plants`, then the days of `bar`. Simulated time and fixed seeds: the figures
say how the loop behaves, not how fast anything is.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.control_loop import bar
from bench.control_loop.plants import PLANTS, Plant, live
from bench.record.report import RESULTS, write_run

Figures = dict[str, float]


def main() -> int:
    """Simulates, writes JSON, prints what it came to."""
    parser = argparse.ArgumentParser(prog="python -m bench.control_loop", description=__doc__)
    parser.add_argument("--seeds", type=int, default=bar.SEEDS, help="days of each case of the bar")
    parser.add_argument("--out", type=Path, default=RESULTS / "control_loop.json")
    options = parser.parse_args()
    load = os.getloadavg()
    plants = {name: plant_figures(plant) for name, plant in PLANTS.items()}
    days = bar.measure(options.seeds)
    groups = {group: worst(cases) for group, cases in days.items()}
    write_run(options.out, "control_loop", {"plants": plants, "bar": days}, {}, load)
    for name, found in (plants | groups).items():
        print(f"{name:24}", ", ".join(f"{value:.4g} {key}" for key, value in found.items()))
    return 0


def plant_figures(plant: Plant) -> Figures:
    """Return what a day of a plant came to."""
    outcome = live(plant, bar.DAY)
    return {
        "draft_hours": outcome.draft_seconds / 3600,
        "policies": len(outcome.policies),
        "probes": len(outcome.probes),
        "percent_on": 100 * outcome.on_seconds / outcome.seconds,
        "percent_lost": 100 * outcome.loss(plant.share),
    }


def worst(cases: Mapping[str, Figures]) -> Figures:
    """Return each figure of a group of the bar, of the case where it is worst."""
    return {key: max(case[key] for case in cases.values()) for key in next(iter(cases.values()))}


if __name__ == "__main__":
    sys.exit(main())
