"""A real stage whose passes take as long as on a slower device.

It computes what a stage computes, then sleeps until the stated time is over. So stages that share
processors with each other, and with whatever else runs, take times that can be foretold.
"""

import argparse
import asyncio
import functools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from outrider.contract.settings import WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.__main__ import finish
from outrider.worker.launch.load_stage import LoadedStage
from outrider.worker.launch.load_steps import LoadSteps
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.layer_executor import LayerExecutor, LayerModel
from outrider.worker.pipeline.records import Floats
from outrider.worker.server.stage_node import load_here, serve_stage

PARENT = 0
"""Its input, which ends with the process that started it."""


class PaddedExecutor(LayerExecutor):
    """A stage's layers, whose passes take at least a stated time."""

    def __init__(
        self,
        model: LayerModel,
        seconds: Callable[[int], float],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`seconds` of a pass of so many rows."""
        super().__init__(model)
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        """Run the layers, then wait for the rest of the stated time."""
        until = self._clock() + self._seconds(rows.count)
        computed = super().compute(rows, hidden)
        self._sleep(max(0.0, until - self._clock()))
        return computed


def load_padded(
    base: float, by_row: float, settings: WorkerSettings, place: StagePlace, steps: LoadSteps
) -> LoadedStage:
    """Load a stage whose pass of n rows takes `base` + n - 1 times `by_row` seconds."""
    loaded = load_here(settings, place, steps)
    executor = PaddedExecutor(loaded.executor.model, lambda rows: base + (rows - 1) * by_row)
    return replace(loaded, executor=executor)


def main() -> None:
    """Serve a stage until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--seconds", type=float, nargs=2, required=True, help="of one row, a row")
    options = parser.parse_args()
    settings = WorkerSettings.from_json(options.settings.read_text())
    place = StagePlace.of(os.environ, settings.pipeline.stages)
    assert place is not None
    load = functools.partial(load_padded, *options.seconds)
    finish(asyncio.run(serve_stage(settings, place, PARENT, load)))


if __name__ == "__main__":
    main()
