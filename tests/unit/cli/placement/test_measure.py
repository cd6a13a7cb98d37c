"""Measurements in processes that wait for their arrangement, which are made up here."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from outrider.cli.failures import WorkerFailed
from outrider.cli.placement.measure import measure
from outrider.cli.terminal.progress import Lines
from outrider.cli.undecided import Undecided
from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.protos.v1.internal import control_pb2 as pb

MODEL = ModelSettings(uri="file:///model")
TARGET = WorkerSettings(role=Role.TARGET, name="target", model=MODEL, colocated=MODEL)
DRAFT = WorkerSettings(role=Role.DRAFT, name="draft", model=MODEL)


@dataclass
class Worker:
    """One whose passes take a millisecond a row, but for one measurement that is disturbed."""

    settings: WorkerSettings
    disturbed: int = -1
    ends: int = -1
    """The measurement at which it ends."""
    asked: Iterator[int] = field(default_factory=count)

    @property
    def supervisor(self) -> Any:
        return SimpleNamespace(worker=SimpleNamespace(settings=self.settings))

    async def loaded(self) -> pb.MeasureResponse:
        return pb.MeasureResponse()

    async def measured(self, wanted: pb.MeasureRequest) -> pb.MeasureResponse:
        if not wanted.passes:
            return pb.MeasureResponse(guesses=10, hits=6)
        number = next(self.asked)
        if number == self.ends:
            raise WorkerFailed("draft", 1, Path("draft.log"))
        factor = 3.0 if number == self.disturbed else 1.0
        return pb.MeasureResponse(seconds=[factor * 0.001 * one.rows for one in wanted.passes])


def measured(target: Worker, draft: Worker) -> Any:
    found, _ = asyncio.run(
        measure(cast(Undecided, target), cast(Undecided, draft), (1, 2), (TARGET, DRAFT), Lines())
    )
    return found


@pytest.mark.parametrize("disturbed", range(6))
def test_what_disturbs_one_measurement_slows_down_nothing(disturbed: int) -> None:
    undisturbed = measured(Worker(TARGET), Worker(DRAFT))
    assert undisturbed.alone[2].target[8] == pytest.approx(0.008)
    assert measured(Worker(TARGET, disturbed), Worker(DRAFT)) == undisturbed


def test_a_draft_that_ends_leaves_the_arrangements_of_one_process() -> None:
    found = measured(Worker(TARGET), Worker(DRAFT, ends=1))
    assert found.beside is None
    assert found.alone.keys() == {1, 2}
    assert (found.first_guesses, found.first_hits) == (10, 6)
